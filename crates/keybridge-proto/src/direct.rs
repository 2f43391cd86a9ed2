//! The second path of a link, which bypasses the engine: how both ends agree on it, and how each
//! proves to the other who it is.
//!
//! The host's [`DirectAsk`] and the helper's [`DirectOffer`] are the payloads of DIRECT, sent on the
//! first path. On the second path the helper then sends the [`Proof`] of its offer, and the host that
//! of its ask. Each knows the other's proof only from the first path, and the host sends nothing to a
//! peer that doesn't know it.
//!
//! With its proof the host can send one end of a socket pair. If the helper takes it, it passes its
//! clients over it: one byte for the lane, and with it the client's own connection.

use crate::{Lane, Secret};

/// The size of a proof: 128 bits can't be guessed.
pub const PROOF_SIZE: usize = 16;

/// The longest path of a socket.
const LONGEST_PATH: usize = 107;

/// A secret that proves to be the other end of the link.
#[derive(Debug, Clone)]
pub struct Proof(Secret<[u8; PROOF_SIZE]>);

impl Proof {
    /// A proof of random bytes, which the caller provides.
    pub const fn new(random: [u8; PROOF_SIZE]) -> Self {
        Self(Secret::new(random))
    }

    /// The bytes, to be sent only on the paths of the link.
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }

    /// Whether these are the bytes, compared in constant time.
    pub fn is(&self, bytes: &[u8]) -> bool {
        let difference = self.expose().iter().zip(bytes).fold(0, |sum, (ours, theirs)| {
            // Keeps the compiler from stopping at the first byte that differs.
            std::hint::black_box(sum | (ours ^ theirs))
        });
        bytes.len() == PROOF_SIZE && difference == 0
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::new)
    }
}

/// The host asks for a second path.
#[derive(Debug, Clone)]
pub struct DirectAsk {
    /// What the host will send.
    pub host: Proof,
}

impl DirectAsk {
    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        self.host.expose().to_vec()
    }

    /// Parses a payload.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        Proof::decode(payload).map(|host| Self { host })
    }
}

/// The helper listens for a second path.
#[derive(Debug, Clone)]
pub struct DirectOffer {
    /// What the helper will send.
    pub helper: Proof,
    /// Where it listens: a path in the target, without symbolic links. Untrusted.
    pub socket: Vec<u8>,
}

impl DirectOffer {
    /// The payload; none if the path is too long for a socket.
    pub fn encode(&self) -> Option<Vec<u8>> {
        (self.socket.len() <= LONGEST_PATH).then(|| [self.helper.expose(), &self.socket].concat())
    }

    /// Parses a payload.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (helper, socket) = payload.split_at_checked(PROOF_SIZE)?;
        if !socket.starts_with(b"/") || socket.len() > LONGEST_PATH || socket.contains(&0) {
            return None;
        }
        Some(Self { helper: Proof::decode(helper)?, socket: socket.to_vec() })
    }
}

/// The byte with which the helper passes a client of this lane.
pub const fn passed_as(lane: Lane) -> u8 {
    match lane {
        Lane::Gpg => b'g',
        Lane::Ssh => b's',
    }
}

/// The lane of a client that is passed with this byte.
pub fn lane_of_passed(byte: u8) -> Option<Lane> {
    Lane::ALL.into_iter().find(|lane| passed_as(*lane) == byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: [u8; PROOF_SIZE] = *b"0123456789abcdef";

    #[test]
    fn a_proof_is_its_own_bytes_alone() {
        let proof = Proof::new(RANDOM);
        assert!(proof.is(&RANDOM));
        for place in 0..PROOF_SIZE {
            let mut other = RANDOM;
            other[place] ^= 1;
            assert!(!proof.is(&other));
        }
        assert!(!proof.is(b"") && !proof.is(&RANDOM[..15]) && !proof.is(b"0123456789abcdef0"));
        assert_eq!(format!("{proof:?}"), "Proof(Secret(16 bytes))");
    }

    #[test]
    fn ask_and_offer_come_back() {
        let ask = DirectAsk { host: Proof::new(RANDOM) };
        assert!(DirectAsk::decode(&ask.encode()).unwrap().host.is(&RANDOM));
        let offer = DirectOffer { helper: Proof::new(RANDOM), socket: b"/tmp/x/S".to_vec() };
        let read = DirectOffer::decode(&offer.encode().unwrap()).unwrap();
        assert!(read.helper.is(&RANDOM));
        assert_eq!(read.socket, offer.socket);
    }

    #[test]
    fn what_is_none_is_refused() {
        for bad in [&b""[..], &RANDOM[..15], b"0123456789abcdefg"] {
            assert!(DirectAsk::decode(bad).is_none(), "{bad:?}");
        }
        let long = [&b"/"[..], &[b'x'; LONGEST_PATH]].concat();
        for socket in [&b""[..], b"relative", b"/with\0nul", &long] {
            let payload = [&RANDOM[..], socket].concat();
            assert!(DirectOffer::decode(&payload).is_none(), "{socket:?}");
        }
        let offer = DirectOffer { helper: Proof::new(RANDOM), socket: long };
        assert!(offer.encode().is_none());
    }
}
