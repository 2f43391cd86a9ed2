//! The files at the path of an agent's socket, and how to open a connection with them.
//!
//! At the path there is a Unix socket, a file that redirects to one, or on Windows a file with a TCP
//! port and a nonce, in GnuPG's own format or in Cygwin's. A restarted agent writes another port and
//! nonce, so a file is read again for every connection and nothing is cached.

mod cygwin;
mod error;
mod handshake;
mod native;
mod redirect;
mod resolve;

use std::num::NonZeroU16;

pub use error::{ResolveError, SocketFileError};
pub use handshake::{Opening, Step};
pub use redirect::Redirect;
pub use resolve::{AgentAddress, Contents, resolve};

use crate::Secret;

/// What a client sends to prove that it could read the socket file.
pub type Nonce = Secret<[u8; NONCE_SIZE]>;

/// The size of a nonce, in both formats.
const NONCE_SIZE: usize = 16;

/// The largest file that can be a socket file: libassuan reads 511 bytes of a redirect, and the
/// other kinds are smaller. A reader needs to read one byte more than this, never the whole file.
pub const MAX_SIZE: usize = 511;

/// A parsed socket file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketFile {
    /// Written by GnuPG for Windows.
    Native {
        /// The port on 127.0.0.1.
        port: NonZeroU16,
        /// The first bytes to send.
        nonce: Nonce,
    },
    /// Written by a Cygwin or MSYS program, such as the gpg of Git for Windows.
    Cygwin {
        /// The port on 127.0.0.1.
        port: NonZeroU16,
        /// The first bytes to send, which come back from a peer that knows them.
        nonce: Nonce,
    },
    /// Has the path of the real socket.
    Redirect(Redirect),
}

impl SocketFile {
    /// Parses the content of a socket file.
    pub fn parse(file: &[u8]) -> Result<Self, SocketFileError> {
        if file.len() > MAX_SIZE {
            return Err(SocketFileError::TooLong { found: file.len() });
        }
        match file.first() {
            None => Err(SocketFileError::Empty),
            Some(b'!') => cygwin::parse(file).map(|(port, nonce)| Self::Cygwin { port, nonce }),
            Some(b'%') => Redirect::parse(file).map(Self::Redirect),
            Some(_) => native::parse(file).map(|(port, nonce)| Self::Native { port, nonce }),
        }
    }
}

/// A port in decimal. Errors don't show the digits: in a damaged file they may be bytes of the nonce.
fn parse_port(digits: &[u8]) -> Result<NonZeroU16, SocketFileError> {
    // 65535 has five digits.
    if !(1..=5).contains(&digits.len()) || !digits.iter().all(u8::is_ascii_digit) {
        return Err(SocketFileError::PortNotDecimal { found: digits.len() });
    }
    let port = digits.iter().fold(0, |port: u32, digit| port * 10 + u32::from(digit - b'0'));
    u16::try_from(port).ok().and_then(NonZeroU16::new).ok_or(SocketFileError::PortOutOfRange)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_tells_the_kinds_apart() {
        let native = SocketFile::parse(b"4711\n0123456789abcdef").unwrap();
        assert!(matches!(native, SocketFile::Native { port, .. } if port.get() == 4711));
        let cygwin = b"!<socket >4712 s 00000000-00000000-00000000-00000000\0";
        let cygwin = SocketFile::parse(cygwin).unwrap();
        assert!(matches!(cygwin, SocketFile::Cygwin { port, .. } if port.get() == 4712));
        let redirect = SocketFile::parse(b"%Assuan%\nsocket=/run/agent\n").unwrap();
        assert!(matches!(redirect, SocketFile::Redirect(_)));
    }

    #[test]
    fn a_port_is_one_to_five_digits_and_not_zero() {
        for (digits, port) in [("1", 1), ("65535", 65535), ("00080", 80)] {
            assert_eq!(parse_port(digits.as_bytes()).map(NonZeroU16::get), Ok(port));
        }
        for digits in ["", "+80", "-80", " 80", "80 ", "8o", "000080", "0x50", "٣"] {
            assert_eq!(
                parse_port(digits.as_bytes()),
                Err(SocketFileError::PortNotDecimal { found: digits.len() }),
                "{digits:?}"
            );
        }
        for digits in ["0", "00000", "65536", "70000", "99999"] {
            assert_eq!(parse_port(digits.as_bytes()), Err(SocketFileError::PortOutOfRange));
        }
    }

    #[test]
    fn a_file_that_is_empty_or_too_long_is_refused() {
        assert_eq!(SocketFile::parse(b""), Err(SocketFileError::Empty));
        let file = vec![b'%'; MAX_SIZE + 1];
        assert_eq!(SocketFile::parse(&file), Err(SocketFileError::TooLong { found: 512 }));
    }

    #[test]
    fn debug_prints_no_nonce() {
        let file = SocketFile::parse(b"4711\n0123456789abcdef").unwrap();
        assert_eq!(format!("{file:?}"), "Native { port: 4711, nonce: Secret(16 bytes) }");
    }
}
