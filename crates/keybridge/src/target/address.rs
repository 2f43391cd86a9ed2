//! The addresses of targets, as people write them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use keybridge_proto::printable;

use crate::{Error, ErrorKind};

/// Where a bridge leads to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetAddress {
    /// `local:DIR`, a second GnuPG home on this machine; an absolute path.
    Local(PathBuf),
    /// `NAME`, a container of whichever engine has it, by its name, its id or a prefix of that.
    Container(String),
    /// `docker://NAME`, a container of Docker's.
    Docker(String),
    /// `podman://NAME`, a container of Podman's.
    Podman(String),
}

impl TargetAddress {
    /// Whether a target whose full address was noted may be meant.
    pub fn may_mean(&self, noted: &str) -> bool {
        match self {
            Self::Container(name) => [Self::Docker(name.clone()), Self::Podman(name.clone())]
                .iter()
                .any(|address| address.to_string() == noted),
            Self::Local(_) | Self::Docker(_) | Self::Podman(_) => self.to_string() == noted,
        }
    }
}

/// Addresses that are planned; better told apart from a typing error.
const NOT_YET: [&str; 4] = ["k8s://", "ssh://", "wsl://", "exec:"];

impl FromStr for TargetAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(folder) = text.strip_prefix("local:") {
            if folder.is_empty() {
                return Err(usage("local: needs a folder").hint("write local:DIR"));
            }
            if folder.starts_with('~') {
                let message = format!("{}: the shell didn't expand the ~", printable(text));
                return Err(usage(message).hint("write local:$HOME/…"));
            }
            // Not resolved: the helper looks at the folder without following links.
            let absolute = std::path::absolute(Path::new(folder))
                .map_err(|error| usage(format!("{}: {error}", printable(folder))))?;
            return Ok(Self::Local(absolute));
        }
        let shown = printable(text);
        if let Some(name) = text.strip_prefix("docker://") {
            return container(name).map(Self::Docker);
        }
        if let Some(name) = text.strip_prefix("podman://") {
            return container(name).map(Self::Podman);
        }
        if let Some(scheme) = NOT_YET.iter().find(|scheme| text.starts_with(**scheme)) {
            return Err(usage(format!("{shown}: {scheme} targets are not there yet")).hint(FORMS));
        }
        container(text).map(Self::Container)
    }
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Container(name) => write!(f, "{}", printable(name)),
            Self::Podman(name) => write!(f, "podman://{}", printable(name)),
            Self::Docker(name) => write!(f, "docker://{}", printable(name)),
            Self::Local(folder) => {
                write!(f, "local:{}", printable(folder.as_os_str().as_encoded_bytes()))
            }
        }
    }
}

const FORMS: &str = "a target is a container, NAME, docker://NAME or podman://NAME, or local:DIR, \
                     a second GnuPG home on this machine";

/// A container's name or id, in the characters that the engine allows.
fn container(name: &str) -> Result<String, Error> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "_.-".contains(character);
    if name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(allowed) {
        Ok(name.to_owned())
    } else {
        Err(usage(format!("{}: not the address of a target", printable(name))).hint(FORMS))
    }
}

fn usage(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_address_is_an_absolute_folder() {
        let address: TargetAddress = "local:/tmp/second".parse().unwrap();
        assert_eq!(address, TargetAddress::Local("/tmp/second".into()));
        assert_eq!(address.to_string(), "local:/tmp/second");
        let Ok(TargetAddress::Local(folder)) = "local:here".parse() else { panic!("not local") };
        assert!(folder.is_absolute() && folder.ends_with("here"));
    }

    #[test]
    fn a_container_is_named_with_or_without_its_engine() {
        let addresses = [
            ("web", TargetAddress::Container("web".into())),
            ("docker://web", TargetAddress::Docker("web".into())),
            ("podman://web", TargetAddress::Podman("web".into())),
        ];
        for (text, address) in addresses {
            assert_eq!(text.parse(), Ok(address.clone()));
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn a_name_alone_may_mean_a_container_of_either_engine() {
        let address: TargetAddress = "web".parse().unwrap();
        assert!(address.may_mean("docker://web") && address.may_mean("podman://web"));
        assert!(!address.may_mean("docker://web2") && !address.may_mean("local:web"));
        let address: TargetAddress = "podman://web".parse().unwrap();
        assert!(address.may_mean("podman://web") && !address.may_mean("docker://web"));
    }

    #[test]
    fn other_words_are_refused_with_the_right_form() {
        for text in [
            "local:",
            "local:~/x",
            "docker://",
            "a/b",
            "-x",
            "exec:sh",
            "podman://",
            "podman://a/b",
            "",
        ] {
            let error = text.parse::<TargetAddress>().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage, "{text}");
            assert!(error.hints.iter().any(|hint| hint.contains("local:")), "{text}");
        }
        let error = "\u{1b}[31mred".parse::<TargetAddress>().unwrap_err();
        assert!(!error.message.contains('\u{1b}'));
    }
}
