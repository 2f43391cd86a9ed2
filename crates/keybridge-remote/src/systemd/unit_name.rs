//! Names of units that listen.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// systemd's own limit.
const MAX_SIZE: usize = 255;

/// The name of a socket unit: no path, no instance of a template.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct UnitName(String);

impl UnitName {
    pub(super) fn of_file(name: &OsStr) -> Option<Self> {
        name.to_str()?.parse().ok()
    }

    /// The unit's file, if it is in this folder.
    pub(super) fn in_folder(&self, folder: &Path) -> PathBuf {
        folder.join(&self.0)
    }

    /// The folder of files that add to the unit.
    pub(super) fn drop_ins_in(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.d", self.0))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for UnitName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
        let stem = text.strip_suffix(".socket").filter(|stem| {
            !stem.is_empty() && !stem.starts_with(['.', '-']) && stem.bytes().all(is_plain)
        });
        if stem.is_none() || text.len() > MAX_SIZE {
            return Err("the name of a socket unit is expected");
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for UnitName {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_a_socket_unit_and_no_path() {
        for name in ["gpg-agent.socket", "ssh-agent.socket", "a.b_c:d.socket"] {
            assert_eq!(name.parse::<UnitName>().unwrap().as_str(), name);
        }
        for name in
            ["", ".socket", "..socket", "-a.socket", "../a.socket", "a/b.socket", "a.service"]
        {
            assert!(name.parse::<UnitName>().is_err(), "{name}");
        }
        assert!("gpg-agent@x.socket".parse::<UnitName>().is_err());
        assert!(format!("{}.socket", "a".repeat(249)).parse::<UnitName>().is_err());
    }
}
