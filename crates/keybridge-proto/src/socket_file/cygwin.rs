//! The socket file of Cygwin and MSYS:
//! `!<socket >PORT s XXXXXXXX-XXXXXXXX-XXXXXXXX-XXXXXXXX` and a NUL.

use std::num::NonZeroU16;

use super::{NONCE_SIZE, Nonce, SocketFileError, parse_port};
use crate::Secret;

const HEADER: &[u8] = b"!<socket >";

pub(super) fn parse(file: &[u8]) -> Result<(NonZeroU16, Nonce), SocketFileError> {
    let rest = file.strip_prefix(HEADER).ok_or(SocketFileError::CygwinHeader)?;
    let mut parts = rest.splitn(2, |&byte| byte == 0);
    let (Some(line), Some(after)) = (parts.next(), parts.next()) else {
        return Err(SocketFileError::CygwinNotEnded);
    };
    if !after.is_empty() {
        return Err(SocketFileError::CygwinTrailing { found: after.len() });
    }
    let mut fields = line.splitn(3, |&byte| byte == b' ');
    let port = parse_port(fields.next().unwrap_or_default())?;
    match fields.next() {
        Some(b"s") => {}
        Some(b"d") => return Err(SocketFileError::Datagram),
        Some(_) | None => return Err(SocketFileError::CygwinKind),
    }
    let nonce = parse_nonce(fields.next().unwrap_or_default())?;
    Ok((port, nonce))
}

/// Four words. Each was printed as an integer, so its bytes are in the host's order.
fn parse_nonce(words: &[u8]) -> Result<Nonce, SocketFileError> {
    let malformed = || SocketFileError::NonceWords { found: words.len() };
    let mut nonce = [0; NONCE_SIZE];
    let mut fields = words.split(|&byte| byte == b'-');
    for bytes in nonce.chunks_exact_mut(size_of::<u32>()) {
        let word = fields.next().and_then(parse_word).ok_or_else(malformed)?;
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    match fields.next() {
        None => Ok(Secret::new(nonce)),
        Some(_) => Err(malformed()),
    }
}

/// Eight hexadecimal digits. `from_str_radix` would also accept a plus or minus.
fn parse_word(digits: &[u8]) -> Option<u32> {
    if digits.len() != 8 {
        return None;
    }
    digits.iter().try_fold(0, |word, &digit| Some(word << 4 | char::from(digit).to_digit(16)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &[u8] = b"!<socket >50123 s 00112233-44556677-8899AABB-ccddeeff\0";

    #[test]
    fn the_words_are_integers_of_the_host() {
        let (port, nonce) = parse(FILE).unwrap();
        assert_eq!(port.get(), 50123);
        let words = [0x0011_2233_u32, 0x4455_6677, 0x8899_aabb, 0xccdd_eeff];
        assert_eq!(nonce.expose(), words.map(u32::to_ne_bytes).concat());
        #[cfg(target_endian = "little")]
        assert_eq!(nonce.expose().first(), Some(&0x33));
    }

    #[test]
    fn a_datagram_socket_is_named_as_such() {
        let file = String::from_utf8(FILE.to_vec()).unwrap().replace(" s ", " d ");
        let error = parse(file.as_bytes()).unwrap_err();
        assert_eq!(error, SocketFileError::Datagram);
        assert!(error.to_string().contains("datagram"));
    }

    #[test]
    fn the_file_ends_with_its_only_nul() {
        let file = FILE.strip_suffix(b"\0").unwrap();
        assert_eq!(parse(file), Err(SocketFileError::CygwinNotEnded));
        let file = [FILE, b"\n"].concat();
        assert_eq!(parse(&file), Err(SocketFileError::CygwinTrailing { found: 1 }));
        let file = [FILE, b"\0"].concat();
        assert_eq!(parse(&file), Err(SocketFileError::CygwinTrailing { found: 1 }));
    }

    #[test]
    fn a_line_of_another_form_is_refused() {
        for (line, error) in [
            ("!<socket>1 s ", SocketFileError::CygwinHeader),
            ("!", SocketFileError::CygwinHeader),
            ("!<socket >", SocketFileError::PortNotDecimal { found: 0 }),
            ("!<socket > 1 s ", SocketFileError::PortNotDecimal { found: 0 }),
            ("!<socket >70000 s ", SocketFileError::PortOutOfRange),
            ("!<socket >1", SocketFileError::CygwinKind),
            ("!<socket >1 x ", SocketFileError::CygwinKind),
            ("!<socket >1 ss ", SocketFileError::CygwinKind),
            ("!<socket >1  s ", SocketFileError::CygwinKind),
            ("!<socket >1 s", SocketFileError::NonceWords { found: 0 }),
            ("!<socket >1 s ", SocketFileError::NonceWords { found: 0 }),
        ] {
            assert_eq!(parse(format!("{line}\0").as_bytes()), Err(error), "{line}");
        }
    }

    #[test]
    fn a_nonce_is_four_words_of_eight_digits() {
        for words in [
            "00000000-00000000-00000000",
            "00000000-00000000-00000000-",
            "00000000-00000000-00000000-0000000",
            "00000000-00000000-00000000-000000000",
            "00000000-00000000-00000000-00000000-",
            "00000000-00000000-00000000-00000000-00000000",
            "00000000-00000000-00000000-0000000g",
            "+0000000-00000000-00000000-00000000",
            "00000000 00000000 00000000 00000000",
            "00000000-00000000-00000000-00000000 ",
        ] {
            let file = format!("!<socket >1 s {words}\0");
            let error = SocketFileError::NonceWords { found: words.len() };
            assert_eq!(parse(file.as_bytes()), Err(error), "{words}");
        }
    }
}
