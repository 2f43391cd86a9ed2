//! What a target can have done with a lent key, in the words of the setting `uses`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Lane;

/// One kind of operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// A signature of a commit that the host has read.
    Commit,
    /// A signature of a tag that the host has read.
    Tag,
    /// A signature of a hash, by gpg-agent.
    Sign,
    /// A decryption, by gpg-agent.
    Decrypt,
    /// A signature of a hash with a key that only certifies, by gpg-agent.
    Certify,
    /// A login to an SSH server.
    Login,
    /// A signature of a file or a message, by the ssh-agent.
    Sshsig,
}

impl Operation {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::Commit,
        Self::Tag,
        Self::Sign,
        Self::Decrypt,
        Self::Certify,
        Self::Login,
        Self::Sshsig,
    ];

    /// The lane that carries it.
    pub const fn lane(self) -> Lane {
        match self {
            Self::Commit | Self::Tag => Lane::Git,
            Self::Sign | Self::Decrypt | Self::Certify => Lane::Gpg,
            Self::Login | Self::Sshsig => Lane::Ssh,
        }
    }

    /// Its word in the settings.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Commit => "commit",
            Self::Tag => "tag",
            Self::Sign => "sign",
            Self::Decrypt => "decrypt",
            Self::Certify => "certify",
            Self::Login => "login",
            Self::Sshsig => "sshsig",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Operation {
    type Err = UnknownOperation;

    fn from_str(word: &str) -> Result<Self, UnknownOperation> {
        Self::ALL.into_iter().find(|operation| operation.word() == word).ok_or(UnknownOperation)
    }
}

/// A word that names no operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such use; the uses are commit, tag, sign, decrypt, certify, login and sshsig")]
pub struct UnknownOperation;

/// Some of the operations.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Operation>", into = "Vec<Operation>")]
pub struct OperationSet(u8);

impl OperationSet {
    /// None of them.
    pub const NONE: Self = Self(0);

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// Whether an operation is among them.
    pub const fn has(self, operation: Operation) -> bool {
        self.0 & operation.bit() != 0
    }

    /// Whether one of a lane is among them.
    pub fn has_any_of(self, lane: Lane) -> bool {
        self.iter().any(|operation| operation.lane() == lane)
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// These and those.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Those that are in both.
    #[must_use]
    pub const fn in_both(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// These without those.
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// The operations, in the order in which they are shown.
    pub fn iter(self) -> impl Iterator<Item = Operation> {
        Operation::ALL.into_iter().filter(move |operation| self.has(*operation))
    }
}

/// What is lent unless the user says otherwise.
impl Default for OperationSet {
    fn default() -> Self {
        Operation::ALL.into_iter().filter(|operation| *operation != Operation::Certify).collect()
    }
}

impl FromIterator<Operation> for OperationSet {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        Self(operations.into_iter().fold(0, |bits, operation| bits | operation.bit()))
    }
}

impl From<Vec<Operation>> for OperationSet {
    fn from(operations: Vec<Operation>) -> Self {
        operations.into_iter().collect()
    }
}

impl From<OperationSet> for Vec<Operation> {
    fn from(set: OperationSet) -> Self {
        set.iter().collect()
    }
}

/// The words, with commas.
impl fmt::Display for OperationSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, operation) in self.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            f.write_str(operation.word())?;
        }
        Ok(())
    }
}

impl fmt::Debug for OperationSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_into_it() {
        let set: OperationSet =
            [Operation::Tag, Operation::Login, Operation::Tag].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Operation::Tag, Operation::Login]);
        assert_eq!((set.to_string(), set.is_empty()), ("tag,login".to_owned(), false));
        assert!(
            set.has_any_of(Lane::Git) && set.has_any_of(Lane::Ssh) && !set.has_any_of(Lane::Gpg)
        );
        let all: OperationSet = Operation::ALL.into_iter().collect();
        assert_eq!(
            (set.and(all), set.in_both(all), set.without(all)),
            (all, set, OperationSet::NONE)
        );
        assert_eq!(OperationSet::default().to_string(), "commit,tag,sign,decrypt,login,sshsig");
    }

    #[test]
    fn words_are_read_back_and_others_are_none() {
        for operation in Operation::ALL {
            assert_eq!(operation.word().parse(), Ok(operation));
            let json = serde_json::to_string(&operation).unwrap();
            assert_eq!(json, format!("\"{operation}\""));
        }
        for word in ["", "Commit", "authenticate", "commit "] {
            assert_eq!(word.parse::<Operation>(), Err(UnknownOperation), "{word}");
        }
        let set = OperationSet::default();
        let json = serde_json::to_string(&set).unwrap();
        assert_eq!(serde_json::from_str::<OperationSet>(&json).unwrap(), set);
        assert!(serde_json::from_str::<OperationSet>("[\"x\"]").is_err());
    }
}
