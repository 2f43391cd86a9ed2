//! The second path of a link, which goes past the engine: what both ends tell each other about it, and
//! how they prove to be each other.
//!
//! The host's [`DirectAsk`] and the helper's [`DirectOffer`] are the payloads of DIRECT, and go by the
//! first path. On the second one, the helper then shows the [`Proof`] of the offer, and after it the
//! host that of the ask: each has the other's from the first path alone, and the host says nothing
//! to somebody who hasn't.

use crate::Secret;

/// The size of a proof: nobody guesses 128 bits.
pub const PROOF_SIZE: usize = 16;

/// The longest path of a socket.
const LONGEST_PATH: usize = 107;

/// What shows that the other end of a path is the other end of the link.
#[derive(Debug, Clone)]
pub struct Proof(Secret<[u8; PROOF_SIZE]>);

impl Proof {
    /// A proof of random bytes, which the caller draws.
    pub const fn new(random: [u8; PROOF_SIZE]) -> Self {
        Self(Secret::new(random))
    }

    /// The bytes, for the paths of the link alone.
    pub fn expose(&self) -> &[u8] {
        self.0.expose()
    }

    /// Whether these are the bytes. How long that takes doesn't tell how many of them are right.
    pub fn is(&self, bytes: &[u8]) -> bool {
        let difference = self.expose().iter().zip(bytes).fold(0, |sum, (ours, theirs)| {
            // Not shortened to the first one that differs.
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
    /// What the host will show.
    pub host: Proof,
}

impl DirectAsk {
    /// The payload.
    pub fn encode(&self) -> Vec<u8> {
        self.host.expose().to_vec()
    }

    /// Reads a payload.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        Proof::decode(payload).map(|host| Self { host })
    }
}

/// The helper listens for a second path.
#[derive(Debug, Clone)]
pub struct DirectOffer {
    /// What the helper will show.
    pub helper: Proof,
    /// Where it listens, as a path in the target without links; bytes from outside.
    pub socket: Vec<u8>,
}

impl DirectOffer {
    /// The payload; none if the path is too long for a socket.
    pub fn encode(&self) -> Option<Vec<u8>> {
        (self.socket.len() <= LONGEST_PATH).then(|| [self.helper.expose(), &self.socket].concat())
    }

    /// Reads a payload.
    pub fn decode(payload: &[u8]) -> Option<Self> {
        let (helper, socket) = payload.split_at_checked(PROOF_SIZE)?;
        if !socket.starts_with(b"/") || socket.len() > LONGEST_PATH || socket.contains(&0) {
            return None;
        }
        Some(Self { helper: Proof::decode(helper)?, socket: socket.to_vec() })
    }
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
