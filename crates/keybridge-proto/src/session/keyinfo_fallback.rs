//! Answers `KEYINFO` for an agent that forbids it.
//!
//! From 2.3 on, gpg asks `KEYINFO` for a key before it signs with it. The extra socket of an agent before
//! 2.3 forbids that. All that gpg wants to know is whether the key is there, and `HAVEKEY` tells.

use crate::assuan::{Command, is_keygrip};

/// A `KEYINFO` that the agent forbade, while `HAVEKEY` is under way.
#[derive(Debug)]
pub(crate) struct KeyinfoFallback {
    keygrip: [u8; 40],
    /// The agent's answer to `KEYINFO`, for the client if the key isn't there.
    refusal: Vec<u8>,
}

/// The keygrip of a `KEYINFO` that can be answered from `HAVEKEY`.
pub(crate) fn keyinfo_keygrip(command: &Command<'_>) -> Option<[u8; 40]> {
    let mut words = command.words();
    let keygrip = words.next().filter(|word| is_keygrip(word))?;
    let is_for_one_key = command.verb.is("KEYINFO") && words.next().is_none();
    if is_for_one_key { keygrip.try_into().ok() } else { None }
}

impl KeyinfoFallback {
    pub(crate) fn new(keygrip: [u8; 40], refusal: &[u8]) -> Self {
        Self { keygrip, refusal: refusal.to_vec() }
    }

    /// What the agent is asked instead.
    pub(crate) fn question(&self) -> Vec<u8> {
        [b"HAVEKEY ", &self.keygrip[..], b"\n"].concat()
    }

    /// The answer for the client: that of a newer agent for a key on disk that may have a passphrase.
    pub(crate) fn answer(&self, has_key: bool) -> Vec<u8> {
        if has_key {
            [b"S KEYINFO ", &self.keygrip[..], b" D - - - P - - -\nOK\n"].concat()
        } else {
            self.refusal.clone()
        }
    }
}
