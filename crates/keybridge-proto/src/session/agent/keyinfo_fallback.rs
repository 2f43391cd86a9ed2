//! Heals a difference of versions: gpg 2.3 and later asks `KEYINFO` for a key before it signs with
//! it, and the extra socket of an agent before 2.3 forbids that. What gpg wants to know is whether
//! the key is there, and `HAVEKEY` tells.

use crate::assuan::{Command, is_keygrip};

/// The answer to a `KEYINFO` that the agent forbids, to be found out by other means.
#[derive(Debug)]
pub(super) struct KeyinfoFallback {
    keygrip: [u8; 40],
    /// What the agent said, for the client if the key isn't there.
    refusal: Vec<u8>,
}

/// The keygrip that a command asks about, if it is one that can be healed.
pub(super) fn keyinfo_keygrip(command: &Command<'_>) -> Option<[u8; 40]> {
    let mut words = command.words();
    let keygrip = words.next().filter(|word| is_keygrip(word))?;
    let healable = command.verb.is("KEYINFO") && words.next().is_none();
    if healable { keygrip.try_into().ok() } else { None }
}

impl KeyinfoFallback {
    pub(super) fn new(keygrip: [u8; 40], refusal: &[u8]) -> Self {
        Self { keygrip, refusal: refusal.to_vec() }
    }

    /// What the agent is asked instead.
    pub(super) fn question(&self) -> Vec<u8> {
        [b"HAVEKEY ", &self.keygrip[..], b"\n"].concat()
    }

    /// What the client is told: what a newer agent says of a key on disk that has a passphrase, or
    /// may have one.
    pub(super) fn answer(&self, has_key: bool) -> Vec<u8> {
        if has_key {
            [b"S KEYINFO ", &self.keygrip[..], b" D - - - P - - -\nOK\n"].concat()
        } else {
            self.refusal.clone()
        }
    }
}
