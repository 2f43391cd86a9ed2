//! Finds where an agent listens, from the path of its socket.

use std::ffi::{OsStr, OsString};
use std::io;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use super::{Nonce, ResolveError, SocketFile};
use crate::Secret;

/// How many redirects are followed. libassuan follows one; more than a few are a mistake.
pub(super) const MAX_REDIRECTS: usize = 4;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Contents {
    /// A Unix socket.
    Socket,
    /// A file with these bytes; one more than [`MAX_SIZE`](super::MAX_SIZE) is enough. They are
    /// secret, since they may include a nonce.
    File(Secret<Vec<u8>>),
}

/// Where an agent listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentAddress {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP port on 127.0.0.1, opened with [`Opening::native`](super::Opening::native).
    Native {
        /// The port.
        port: NonZeroU16,
        /// What to send first.
        nonce: Nonce,
    },
    /// A TCP port on 127.0.0.1, opened with [`Opening::cygwin`](super::Opening::cygwin).
    Cygwin {
        /// The port.
        port: NonZeroU16,
        /// What to send first, and to get back.
        nonce: Nonce,
    },
}

/// Follows `path` to where the agent listens. `read` reads a path, and `variable` the environment.
pub fn resolve(
    path: &Path,
    mut read: impl FnMut(&Path) -> io::Result<Contents>,
    mut variable: impl FnMut(&OsStr) -> Option<OsString>,
) -> Result<AgentAddress, ResolveError> {
    let mut path = path.to_owned();
    let mut passed = Vec::new();
    loop {
        let file = match read(&path) {
            Ok(Contents::Socket) => return Ok(AgentAddress::Unix(path)),
            Ok(Contents::File(file)) => file,
            Err(source) => return Err(ResolveError::Read { path, source }),
        };
        let next = match SocketFile::parse(file.expose()) {
            Ok(SocketFile::Native { port, nonce }) => {
                return Ok(AgentAddress::Native { port, nonce });
            }
            Ok(SocketFile::Cygwin { port, nonce }) => {
                return Ok(AgentAddress::Cygwin { port, nonce });
            }
            Ok(SocketFile::Redirect(redirect)) => redirect.expand(&mut variable),
            Err(error) => Err(error),
        };
        let next = match next {
            Ok(next) => next,
            Err(source) => return Err(ResolveError::File { path, source }),
        };
        if next == path || passed.contains(&next) {
            return Err(ResolveError::Loop { path: next });
        }
        passed.push(path);
        if passed.len() > MAX_REDIRECTS {
            return Err(ResolveError::TooManyRedirects { path: next });
        }
        path = next;
    }
}

#[cfg(test)]
mod tests {
    use super::super::SocketFileError;
    use super::*;

    const NONCE: &[u8; 16] = b"QZX~QZX~QZX~\n\0\r\xff";

    /// A file system of some paths: `/socket` is one, `/to/X` redirects to `/X`, `/N` to `/N+1`.
    fn read(path: &Path) -> io::Result<Contents> {
        let path = path.to_str().unwrap();
        let redirect = |to: &str| Contents::File(Secret::new(redirect_to(to)));
        Ok(match path {
            "/socket" => Contents::Socket,
            "/native" => Contents::File(Secret::new([b"4711\n", NONCE.as_slice()].concat())),
            "/cygwin" => Contents::File(Secret::new(
                b"!<socket >4712 s 00000000-00000000-00000000-00000000\0".to_vec(),
            )),
            "/broken" => Contents::File(Secret::new(b"4711\nQZX~".to_vec())),
            "/itself" => redirect("/itself"),
            "/ping" => redirect("/pong"),
            "/pong" => redirect("/ping"),
            "/variable" => redirect("/${LANE}"),
            "/relative" => redirect("socket"),
            _ => {
                if let Some(hops) = path.strip_prefix("/hops/") {
                    match hops.parse::<u32>().unwrap() {
                        0 => redirect("/socket"),
                        hops => redirect(&format!("/hops/{}", hops - 1)),
                    }
                } else {
                    return Err(io::ErrorKind::NotFound.into());
                }
            }
        })
    }

    fn redirect_to(name: &str) -> Vec<u8> {
        format!("%Assuan%\nsocket={name}\n").into_bytes()
    }

    fn resolved(path: &str) -> Result<AgentAddress, ResolveError> {
        resolve(Path::new(path), read, |name| (name == "LANE").then(|| "native".into()))
    }

    #[test]
    fn each_kind_leads_to_its_endpoint() {
        assert_eq!(resolved("/socket").unwrap(), AgentAddress::Unix("/socket".into()));
        let native = AgentAddress::Native {
            port: NonZeroU16::new(4711).unwrap(),
            nonce: Secret::new(*NONCE),
        };
        assert_eq!(resolved("/native").unwrap(), native);
        assert_eq!(resolved("/variable").unwrap(), native);
        let cygwin = AgentAddress::Cygwin {
            port: NonZeroU16::new(4712).unwrap(),
            nonce: Secret::new([0; 16]),
        };
        assert_eq!(resolved("/cygwin").unwrap(), cygwin);
    }

    #[test]
    fn four_redirects_are_followed_and_no_more() {
        for hops in 0..MAX_REDIRECTS {
            let path = format!("/hops/{hops}");
            assert_eq!(resolved(&path).unwrap(), AgentAddress::Unix("/socket".into()));
        }
        let error = resolved("/hops/4").unwrap_err();
        assert!(
            matches!(&error, ResolveError::TooManyRedirects { path } if path == Path::new("/socket")),
            "{error}"
        );
    }

    #[test]
    fn a_loop_names_the_path_it_comes_back_to() {
        for path in ["/itself", "/ping"] {
            let error = resolved(path).unwrap_err();
            assert!(matches!(&error, ResolveError::Loop { path: p } if p == Path::new(path)));
            assert!(error.to_string().contains(path), "{error}");
        }
    }

    #[test]
    fn an_error_names_the_file_it_was_found_in() {
        let error = resolved("/absent").unwrap_err();
        assert!(error.to_string().contains("/absent"), "{error}");
        let error = resolved("/relative").unwrap_err();
        assert!(error.to_string().contains("/relative"), "{error}");
        let error = resolved("/broken").unwrap_err();
        let short = SocketFileError::NonceSize { found: 4 };
        assert!(matches!(&error, ResolveError::File { source, .. } if *source == short), "{error}");
        assert!(!format!("{error} {error:?}").contains('Z'));
    }

    #[test]
    fn debug_prints_no_byte_of_a_file() {
        let contents = read(Path::new("/native")).unwrap();
        assert_eq!(format!("{contents:?}"), "File(Secret(21 bytes))");
    }
}
