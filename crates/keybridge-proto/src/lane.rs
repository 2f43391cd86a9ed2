//! The two kinds of agent that a bridge carries.

use std::fmt;
use std::str::FromStr;

/// Which agent a stream leads to. A target can name a lane, never a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// gpg-agent, spoken to in Assuan.
    Gpg,
    /// ssh-agent.
    Ssh,
}

impl Lane {
    /// Every lane, in the order in which they are shown.
    pub const ALL: [Self; 2] = [Self::Gpg, Self::Ssh];

    /// The name of the lane in an OPEN frame.
    pub const fn wire_name(self) -> &'static str {
        match self {
            Self::Gpg => "gpg-agent",
            Self::Ssh => "ssh-agent",
        }
    }

    /// The lane that an OPEN frame names.
    pub fn from_wire_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.wire_name().as_bytes() == name)
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gpg => "gpg",
            Self::Ssh => "ssh",
        })
    }
}

impl FromStr for Lane {
    type Err = UnknownLane;

    fn from_str(name: &str) -> Result<Self, UnknownLane> {
        match name {
            "gpg" => Ok(Self::Gpg),
            "ssh" => Ok(Self::Ssh),
            _ => Err(UnknownLane),
        }
    }
}

/// A word that names no lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such lane; the lanes are gpg and ssh")]
pub struct UnknownLane;
