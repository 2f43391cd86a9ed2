//! The redirect file of libassuan: `%Assuan%`, LF, `socket=NAME`, LF.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::SocketFileError;
use crate::os_string;

const HEADER: &[u8] = b"%Assuan%\nsocket=";

/// The longest path of a Unix socket: `sun_path` has 104 bytes on macOS and the BSDs and 108
/// elsewhere, with a NUL at the end.
pub(super) const MAX_SOCKET_PATH: usize = if cfg!(any(
    target_vendor = "apple",
    target_os = "freebsd",
    target_os = "openbsd",
    target_os = "netbsd",
    target_os = "dragonfly"
)) {
    103
} else {
    107
};

/// The target of a redirect file, before its variables are expanded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Variable(OsString),
}

impl Redirect {
    pub(super) fn parse(file: &[u8]) -> Result<Self, SocketFileError> {
        let name = file.strip_prefix(HEADER).ok_or(SocketFileError::RedirectHeader)?;
        let name = name.strip_suffix(b"\n").ok_or(SocketFileError::RedirectNotEnded)?;
        if name.contains(&b'\n') {
            return Err(SocketFileError::RedirectExtraLine);
        }
        if name.contains(&0) {
            return Err(SocketFileError::RedirectNul);
        }
        pieces(name).map(Self)
    }

    /// The path, with each `${VAR}` replaced by its value. As in libassuan, an unset one is empty,
    /// and values aren't expanded again.
    pub fn expand(
        &self,
        mut variable: impl FnMut(&OsStr) -> Option<OsString>,
    ) -> Result<PathBuf, SocketFileError> {
        let mut path = Vec::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => path.extend_from_slice(text),
                Piece::Variable(name) => {
                    let value = variable(name).unwrap_or_default();
                    path.extend_from_slice(value.as_encoded_bytes());
                }
            }
        }
        if path.contains(&0) {
            return Err(SocketFileError::RedirectNul);
        }
        if path.len() > MAX_SOCKET_PATH {
            return Err(SocketFileError::RedirectTooLong { found: path.len() });
        }
        let absolute = path.starts_with(b"/");
        let path = PathBuf::from(os_string(path));
        if absolute { Ok(path) } else { Err(SocketFileError::RedirectNotAbsolute { path }) }
    }
}

/// `${` can't be escaped; only a variable's value can contain it.
fn pieces(mut name: &[u8]) -> Result<Vec<Piece>, SocketFileError> {
    let mut pieces = Vec::new();
    while let Some(text) = name.windows(2).position(|pair| pair == b"${") {
        let (text, rest) = name.split_at(text);
        let mut rest = rest.splitn(2, |&byte| byte == b'}');
        let (Some(variable), Some(after)) = (rest.next(), rest.next()) else {
            return Err(SocketFileError::VariableNotClosed);
        };
        let variable = variable.strip_prefix(b"${").unwrap_or(variable);
        pieces.push(Piece::Text(text.to_vec()));
        pieces.push(Piece::Variable(os_string(variable.to_vec())));
        name = after;
    }
    pieces.push(Piece::Text(name.to_vec()));
    Ok(pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redirect(name: &str) -> Result<Redirect, SocketFileError> {
        Redirect::parse(format!("%Assuan%\nsocket={name}\n").as_bytes())
    }

    fn expand(name: &str) -> Result<PathBuf, SocketFileError> {
        redirect(name)?.expand(|variable| match variable.to_str() {
            Some("HOME") => Some("/home/me".into()),
            Some("NUL") => Some("a\0b".into()),
            Some("NESTED") => Some("${HOME}".into()),
            _ => None,
        })
    }

    #[test]
    fn variables_are_filled_in_once() {
        for (name, path) in [
            ("/run/S.gpg-agent", "/run/S.gpg-agent"),
            ("${HOME}/S.gpg-agent", "/home/me/S.gpg-agent"),
            ("/a${UNSET}b${}c", "/abc"),
            ("${HOME}${HOME}", "/home/me/home/me"),
            ("/a/${NESTED}", "/a/${HOME}"),
            ("/a/$HOME/$/}{", "/a/$HOME/$/}{"),
            ("/a b/$${HOME}", "/a b/$/home/me"),
        ] {
            assert_eq!(expand(name), Ok(PathBuf::from(path)), "{name}");
        }
    }

    #[test]
    fn the_form_is_exact() {
        for (file, error) in [
            ("%Assuan%", SocketFileError::RedirectHeader),
            ("%Assuan%\r\nsocket=/a\r\n", SocketFileError::RedirectHeader),
            ("%assuan%\nsocket=/a\n", SocketFileError::RedirectHeader),
            ("%Assuan%\n socket=/a\n", SocketFileError::RedirectHeader),
            ("%Assuan%\nsocket=", SocketFileError::RedirectNotEnded),
            ("%Assuan%\nsocket=/a", SocketFileError::RedirectNotEnded),
            ("%Assuan%\nsocket=/a\n\n", SocketFileError::RedirectExtraLine),
            ("%Assuan%\nsocket=/a\nb=c\n", SocketFileError::RedirectExtraLine),
            ("%Assuan%\nsocket=/a\0\n", SocketFileError::RedirectNul),
            ("%Assuan%\nsocket=/a/${HOME\n", SocketFileError::VariableNotClosed),
            ("%Assuan%\nsocket=/a/${\n", SocketFileError::VariableNotClosed),
        ] {
            assert_eq!(Redirect::parse(file.as_bytes()), Err(error), "{file:?}");
        }
    }

    #[test]
    fn the_path_is_absolute_and_fits_a_socket_address() {
        for name in ["", "a", "./a", "${UNSET}", "${UNSET}a", "${NESTED}"] {
            let error = expand(name).unwrap_err();
            assert!(matches!(error, SocketFileError::RedirectNotAbsolute { .. }), "{name}");
        }
        assert_eq!(expand("/${NUL}"), Err(SocketFileError::RedirectNul));
        let longest = format!("/{}", "x".repeat(MAX_SOCKET_PATH - 1));
        assert_eq!(expand(&longest), Ok(PathBuf::from(&longest)));
        let error = SocketFileError::RedirectTooLong { found: MAX_SOCKET_PATH + 1 };
        assert_eq!(expand(&format!("{longest}x")), Err(error));
    }

    #[test]
    fn an_error_shows_a_path_that_cannot_control_a_terminal() {
        let error = expand("a\u{1b}[2J").unwrap_err();
        assert!(error.to_string().ends_with("a\\u{1b}[2J"), "{error}");
    }
}
