//! What can be wrong with a socket file. No variant holds bytes of the file, since they may be a nonce.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::MAX_SIZE;
use super::redirect::MAX_SOCKET_PATH;
use super::resolve::MAX_REDIRECTS;
use crate::printable;

/// Why a socket file, or the exchange after connecting, is invalid.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SocketFileError {
    /// The file is empty.
    #[error("expected a socket file, got an empty file")]
    Empty,
    /// The file is too long.
    #[error("expected a socket file of at most {MAX_SIZE} bytes, got {found} or more")]
    TooLong {
        /// How many bytes were read.
        found: usize,
    },
    /// There is no LF in a native file.
    #[error("expected a port and a line end, got {found} bytes without a line end")]
    PortNotEnded {
        /// How many bytes the file has.
        found: usize,
    },
    /// The port isn't a number.
    #[error("expected a port of one to five decimal digits, got {found} other bytes")]
    PortNotDecimal {
        /// How many bytes are there.
        found: usize,
    },
    /// The port is 0 or too large.
    #[error("expected a port from 1 to 65535, got another number")]
    PortOutOfRange,
    /// The nonce of a native file is too short or too long.
    #[error("expected a nonce of exactly 16 bytes after the port, got {found} bytes")]
    NonceSize {
        /// How many bytes there are.
        found: usize,
    },
    /// A file begins with `!`, but isn't Cygwin's.
    #[error("expected the header \"!<socket >\" of a Cygwin socket file, got something else")]
    CygwinHeader,
    /// A Cygwin file has no NUL.
    #[error("expected a NUL at the end of a Cygwin socket file, got none")]
    CygwinNotEnded,
    /// A Cygwin file has bytes after its NUL.
    #[error("expected a Cygwin socket file to end at its NUL, got {found} bytes after it")]
    CygwinTrailing {
        /// How many bytes there are after it.
        found: usize,
    },
    /// The file is that of a datagram socket, which no agent has.
    #[error("expected a stream socket (s) in a Cygwin socket file, got a datagram socket (d)")]
    Datagram,
    /// The kind of the socket is neither stream nor datagram.
    #[error("expected a stream socket (s) in a Cygwin socket file, got an unknown kind")]
    CygwinKind,
    /// The nonce of a Cygwin file has another form.
    #[error(
        "expected a nonce of four words of eight hexadecimal digits, got {found} bytes that are \
         not that"
    )]
    NonceWords {
        /// How many bytes are there.
        found: usize,
    },
    /// A file begins with `%`, but isn't a redirect.
    #[error(
        "expected the lines \"%Assuan%\" and \"socket=NAME\" of a redirect, got something else"
    )]
    RedirectHeader,
    /// The last line of a redirect has no LF.
    #[error("expected a line end at the end of a redirect, got none")]
    RedirectNotEnded,
    /// A redirect has more than its two lines.
    #[error("expected a redirect of two lines, got more")]
    RedirectExtraLine,
    /// A `${` has no `}`.
    #[error("expected a }} for each ${{ in the name of a redirect, got none")]
    VariableNotClosed,
    /// There is a NUL in the path.
    #[error("expected a path in a redirect, got one with a NUL in it")]
    RedirectNul,
    /// The path is relative, or empty.
    #[error("expected a redirect to an absolute path, got {}", shown(path))]
    RedirectNotAbsolute {
        /// The path, with variables filled in.
        path: PathBuf,
    },
    /// The path is longer than a socket's path can be.
    #[error("expected a redirect to a path of at most {MAX_SOCKET_PATH} bytes, got {found}")]
    RedirectTooLong {
        /// How many bytes the path has, with variables filled in.
        found: usize,
    },
    /// The peer sent too many or too few bytes, or they were not asked for.
    #[error("expected {expected} bytes from the peer in the opening exchange, got {found}")]
    PeerSize {
        /// How many were asked for.
        expected: usize,
        /// How many came.
        found: usize,
    },
    /// The peer sent something else back than the nonce, so it isn't a Cygwin socket.
    #[error("expected the peer to send the nonce back, got something else")]
    PeerNonce,
}

/// Why a path doesn't lead to an agent.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// The path can't be read.
    #[error("can't read {}", shown(path))]
    Read {
        /// The path.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file at the path isn't a valid socket file.
    #[error("{} isn't a valid socket file", shown(path))]
    File {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        source: SocketFileError,
    },
    /// The redirects form a loop.
    #[error("redirects lead back to {}", shown(path))]
    Loop {
        /// The path.
        path: PathBuf,
    },
    /// There are too many redirects one after the other.
    #[error("expected at most {MAX_REDIRECTS} redirects, got another one to {}", shown(path))]
    TooManyRedirects {
        /// The target of the one that wasn't followed.
        path: PathBuf,
    },
}

fn shown(path: &Path) -> impl fmt::Display {
    printable(path.as_os_str().as_encoded_bytes())
}
