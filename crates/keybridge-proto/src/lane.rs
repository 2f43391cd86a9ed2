//! What a bridge carries: two kinds of agent, and the signatures of git.

use std::fmt;
use std::ops::{Index, IndexMut};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which agent a stream leads to. A target can name a lane, never a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lane {
    /// gpg-agent, spoken to in Assuan.
    Gpg,
    /// ssh-agent.
    Ssh,
    /// Commits and tags, which the host reads and signs.
    Git,
}

impl Lane {
    /// Every lane, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Gpg, Self::Ssh, Self::Git];

    /// Those that lead to an agent.
    pub const AGENTS: [Self; 2] = [Self::Gpg, Self::Ssh];

    /// The name of the lane in an OPEN frame.
    pub const fn wire_name(self) -> &'static str {
        match self {
            Self::Gpg => "gpg-agent",
            Self::Ssh => "ssh-agent",
            Self::Git => "git",
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
            Self::Git => "git",
        })
    }
}

impl FromStr for Lane {
    type Err = UnknownLane;

    fn from_str(name: &str) -> Result<Self, UnknownLane> {
        match name {
            "gpg" => Ok(Self::Gpg),
            "ssh" => Ok(Self::Ssh),
            "git" => Ok(Self::Git),
            _ => Err(UnknownLane),
        }
    }
}

/// A word that names no lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no such lane; the lanes are gpg, ssh and git")]
pub struct UnknownLane;

/// One value for each lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PerLane<T> {
    /// The value of the gpg lane.
    pub gpg: T,
    /// The value of the ssh lane.
    pub ssh: T,
    /// The value of the git lane.
    pub git: T,
}

impl<T> PerLane<T> {
    /// Makes each lane's value.
    pub fn from_fn(mut value: impl FnMut(Lane) -> T) -> Self {
        Self { gpg: value(Lane::Gpg), ssh: value(Lane::Ssh), git: value(Lane::Git) }
    }

    /// Turns each lane's value into another one.
    pub fn map<U>(self, mut change: impl FnMut(Lane, T) -> U) -> PerLane<U> {
        PerLane {
            gpg: change(Lane::Gpg, self.gpg),
            ssh: change(Lane::Ssh, self.ssh),
            git: change(Lane::Git, self.git),
        }
    }

    /// The same with references to the values.
    pub const fn as_ref(&self) -> PerLane<&T> {
        PerLane { gpg: &self.gpg, ssh: &self.ssh, git: &self.git }
    }

    /// Each lane with its value, in the order of [`Lane::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Lane, &T)> {
        self.as_ref().into_iter()
    }
}

impl<T> IntoIterator for PerLane<T> {
    type Item = (Lane, T);
    type IntoIter = std::array::IntoIter<(Lane, T), 3>;

    fn into_iter(self) -> Self::IntoIter {
        [(Lane::Gpg, self.gpg), (Lane::Ssh, self.ssh), (Lane::Git, self.git)].into_iter()
    }
}

impl<T> Index<Lane> for PerLane<T> {
    type Output = T;

    fn index(&self, lane: Lane) -> &T {
        match lane {
            Lane::Gpg => &self.gpg,
            Lane::Ssh => &self.ssh,
            Lane::Git => &self.git,
        }
    }
}

impl<T> IndexMut<Lane> for PerLane<T> {
    fn index_mut(&mut self, lane: Lane) -> &mut T {
        match lane {
            Lane::Gpg => &mut self.gpg,
            Lane::Ssh => &mut self.ssh,
            Lane::Git => &mut self.git,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_has_its_own_value() {
        let mut names = PerLane::from_fn(Lane::wire_name);
        assert_eq!((names[Lane::Gpg], names[Lane::Ssh]), ("gpg-agent", "ssh-agent"));
        names[Lane::Ssh] = "another";
        assert_eq!(names, PerLane { gpg: "gpg-agent", ssh: "another", git: "git" });
        let lengths = names.as_ref().map(|lane, name| (lane, name.len()));
        assert_eq!(
            lengths,
            PerLane { gpg: (Lane::Gpg, 9), ssh: (Lane::Ssh, 7), git: (Lane::Git, 3) }
        );
    }

    #[test]
    fn values_come_in_the_order_of_the_lanes() {
        let numbers = PerLane { gpg: 1, ssh: 2, git: 3 };
        assert_eq!(
            numbers.iter().collect::<Vec<_>>(),
            [(Lane::Gpg, &1), (Lane::Ssh, &2), (Lane::Git, &3)]
        );
        assert_eq!(numbers.into_iter().map(|(lane, _)| lane).collect::<Vec<_>>(), Lane::ALL);
        assert_eq!(PerLane::<Option<u8>>::default(), PerLane { gpg: None, ssh: None, git: None });
    }
}
