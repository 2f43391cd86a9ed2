//! The exchange after connecting to an agent, before its greeting.
//!
//! ```text
//! Unix socket   nothing
//! native        nonce ▶
//! Cygwin        nonce ▶   ◀ the same nonce   pid, uid, gid ▶   ◀ pid, uid, gid
//! ```

use super::{NONCE_SIZE, Nonce, SocketFileError};
use crate::Secret;

/// A pid of four bytes, a uid and a gid of two each.
const CREDENTIALS_SIZE: usize = 8;

/// The exchange that opens one connection, until it is [`Step::Done`].
#[derive(Debug)]
pub struct Opening {
    moves: Vec<Move>,
    /// How many moves were made.
    made: usize,
}

#[derive(Debug)]
enum Move {
    Send(Secret<Vec<u8>>),
    /// The peer has to send the nonce back. It got it from us before, so this proves that it speaks the
    /// protocol, but not who it is.
    ReceiveNonce(Nonce),
    /// The identity that the peer claims. It isn't used.
    ReceiveCredentials,
}

/// The next step of an [`Opening`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<'a> {
    /// Send all of these bytes. They may be the nonce, so they are secret.
    Send(Secret<&'a [u8]>),
    /// Read exactly so many bytes and pass them to [`Opening::received`].
    Receive(usize),
    /// The connection is open, and the greeting follows.
    Done,
}

impl Opening {
    /// For a Unix socket, where nothing is exchanged.
    pub const fn none() -> Self {
        Self { moves: Vec::new(), made: 0 }
    }

    /// For the socket file of GnuPG for Windows.
    pub fn native(nonce: &Nonce) -> Self {
        Self { moves: vec![send(nonce.expose())], made: 0 }
    }

    /// For the socket file of Cygwin, with the identity to send.
    pub fn cygwin(nonce: &Nonce, pid: u32, uid: u16, gid: u16) -> Self {
        let mut credentials = Vec::with_capacity(CREDENTIALS_SIZE);
        credentials.extend(pid.to_ne_bytes());
        credentials.extend(uid.to_ne_bytes());
        credentials.extend(gid.to_ne_bytes());
        let moves = vec![
            send(nonce.expose()),
            Move::ReceiveNonce(nonce.clone()),
            send(&credentials),
            Move::ReceiveCredentials,
        ];
        Self { moves, made: 0 }
    }

    /// What to do next. Bytes to send are returned once; bytes to receive, until they came.
    pub fn step(&mut self) -> Step<'_> {
        match self.moves.get(self.made) {
            Some(Move::Send(bytes)) => {
                self.made += 1;
                Step::Send(Secret::new(bytes.expose()))
            }
            Some(Move::ReceiveNonce(_)) => Step::Receive(NONCE_SIZE),
            Some(Move::ReceiveCredentials) => Step::Receive(CREDENTIALS_SIZE),
            None => Step::Done,
        }
    }

    /// Takes the bytes that the last [`Step::Receive`] asked for. After an error the connection is to
    /// be closed.
    pub fn received(&mut self, bytes: &[u8]) -> Result<(), SocketFileError> {
        match self.moves.get(self.made) {
            Some(Move::ReceiveNonce(nonce)) => {
                check_size(bytes, NONCE_SIZE)?;
                if bytes != nonce.expose() {
                    return Err(SocketFileError::PeerNonce);
                }
            }
            Some(Move::ReceiveCredentials) => check_size(bytes, CREDENTIALS_SIZE)?,
            Some(Move::Send(_)) | None => {
                return Err(SocketFileError::PeerSize { expected: 0, found: bytes.len() });
            }
        }
        self.made += 1;
        Ok(())
    }
}

fn send(bytes: &[u8]) -> Move {
    Move::Send(Secret::new(bytes.to_vec()))
}

fn check_size(bytes: &[u8], expected: usize) -> Result<(), SocketFileError> {
    if bytes.len() == expected {
        Ok(())
    } else {
        Err(SocketFileError::PeerSize { expected, found: bytes.len() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONCE: [u8; 16] = *b"QZX~QZX~QZX~\n\0\r\xff";

    fn sent(step: &Step<'_>) -> Vec<u8> {
        match step {
            Step::Send(bytes) => bytes.expose().to_vec(),
            Step::Receive(_) | Step::Done => panic!("expected bytes to send, got {step:?}"),
        }
    }

    #[test]
    fn a_unix_socket_is_open_at_once() {
        let mut opening = Opening::none();
        assert_eq!(opening.step(), Step::Done);
        assert_eq!(opening.step(), Step::Done);
    }

    #[test]
    fn the_native_opening_is_the_nonce() {
        let mut opening = Opening::native(&Secret::new(NONCE));
        assert_eq!(sent(&opening.step()), NONCE);
        assert_eq!(opening.step(), Step::Done);
    }

    #[test]
    fn the_cygwin_opening_is_nonce_and_credentials_both_ways() {
        let mut opening = Opening::cygwin(&Secret::new(NONCE), 0x0102_0304, 0x0506, 0x0708);
        assert_eq!(sent(&opening.step()), NONCE);
        assert_eq!(opening.step(), Step::Receive(16));
        assert_eq!(opening.step(), Step::Receive(16));
        opening.received(&NONCE).unwrap();
        let mut credentials = 0x0102_0304_u32.to_ne_bytes().to_vec();
        credentials.extend([0x0506_u16, 0x0708].map(u16::to_ne_bytes).concat());
        assert_eq!(sent(&opening.step()), credentials);
        assert_eq!(opening.step(), Step::Receive(8));
        opening.received(&[0xff; 8]).unwrap();
        assert_eq!(opening.step(), Step::Done);
    }

    #[test]
    fn a_peer_with_another_nonce_is_refused_and_stays_so() {
        let mut opening = Opening::cygwin(&Secret::new(NONCE), 1, 2, 3);
        sent(&opening.step());
        let mut other = NONCE;
        other[15] ^= 1;
        assert_eq!(opening.received(&other), Err(SocketFileError::PeerNonce));
        assert_eq!(opening.step(), Step::Receive(16));
    }

    #[test]
    fn bytes_of_another_number_or_out_of_turn_are_refused() {
        let refused = |expected, found| Err(SocketFileError::PeerSize { expected, found });
        let mut opening = Opening::cygwin(&Secret::new(NONCE), 1, 2, 3);
        assert_eq!(opening.received(&NONCE), refused(0, 16));
        sent(&opening.step());
        for found in (0..16).chain(17..33) {
            assert_eq!(opening.received(&vec![0; found]), refused(16, found));
        }
        opening.received(&NONCE).unwrap();
        assert_eq!(opening.received(&[0; 8]), refused(0, 8));
        sent(&opening.step());
        assert_eq!(opening.received(&[0; 7]), refused(8, 7));
        opening.received(&[0; 8]).unwrap();
        assert_eq!(opening.received(b""), refused(0, 0));
        assert_eq!(Opening::none().received(b"OK"), refused(0, 2));
    }

    #[test]
    fn debug_prints_no_nonce() {
        let mut opening = Opening::cygwin(&Secret::new(NONCE), 1, 2, 3);
        let shown = [format!("{opening:?}"), format!("{:?}", opening.step())].concat();
        assert!(!shown.contains('Z') && !shown.contains("81, 90"), "{shown}");
    }
}
