//! The socket file of GnuPG for Windows: a port in decimal, LF, and 16 raw bytes.

use std::num::NonZeroU16;

use super::{Nonce, SocketFileError, parse_port};
use crate::Secret;

pub(super) fn parse(file: &[u8]) -> Result<(NonZeroU16, Nonce), SocketFileError> {
    // Only the first LF is a separator: the nonce may contain more.
    let mut parts = file.splitn(2, |&byte| byte == b'\n');
    let (Some(port), Some(nonce)) = (parts.next(), parts.next()) else {
        return Err(SocketFileError::PortNotEnded { found: file.len() });
    };
    let port = parse_port(port)?;
    let nonce = nonce.try_into().map_err(|_| SocketFileError::NonceSize { found: nonce.len() })?;
    Ok((port, Secret::new(nonce)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_may_stand_in_the_nonce() {
        for byte in 0..=u8::MAX {
            let nonce = [byte; 16];
            let file = [b"65535\n", nonce.as_slice()].concat();
            let (port, read) = parse(&file).unwrap();
            assert_eq!((port.get(), read.expose()), (65535, nonce.as_slice()));
        }
    }

    #[test]
    fn a_nonce_is_exactly_sixteen_bytes() {
        for found in (0..16).chain(17..40) {
            let file = [b"4711\n".as_slice(), &vec![b'\n'; found]].concat();
            assert_eq!(parse(&file), Err(SocketFileError::NonceSize { found }));
        }
    }

    #[test]
    fn a_port_that_is_not_one_is_refused() {
        for (file, error) in [
            ("4711", SocketFileError::PortNotEnded { found: 4 }),
            ("\n0123456789abcdef", SocketFileError::PortNotDecimal { found: 0 }),
            ("+471\n0123456789abcdef", SocketFileError::PortNotDecimal { found: 4 }),
            ("4711\r\n0123456789abcdef", SocketFileError::PortNotDecimal { found: 5 }),
            ("0\n0123456789abcdef", SocketFileError::PortOutOfRange),
            ("70000\n0123456789abcdef", SocketFileError::PortOutOfRange),
        ] {
            assert_eq!(parse(file.as_bytes()), Err(error));
        }
    }
}
