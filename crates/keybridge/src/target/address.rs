//! The addresses of targets, as people write them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use keybridge_proto::printable;

use crate::{Error, ErrorKind};

/// Where a bridge leads to. Two addresses that are equal are the same target.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum TargetAddress {
    /// `local:DIR`, a second GnuPG home on this machine; an absolute path.
    Local(PathBuf),
}

/// Addresses that are planned; better told apart from a typing error.
const NOT_YET: [&str; 6] = ["docker://", "podman://", "k8s://", "ssh://", "wsl://", "exec:"];

impl FromStr for TargetAddress {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if let Some(folder) = text.strip_prefix("local:") {
            if folder.is_empty() {
                return Err(usage("local: needs a folder").hint("write local:DIR"));
            }
            // Not resolved: the helper looks at the folder without following links.
            let absolute = std::path::absolute(Path::new(folder))
                .map_err(|error| usage(format!("{}: {error}", printable(folder))))?;
            return Ok(Self::Local(absolute));
        }
        let shown = printable(text);
        if let Some(scheme) = NOT_YET.iter().find(|scheme| text.starts_with(**scheme)) {
            return Err(usage(format!("{shown}: {scheme} targets are not there yet"))
                .hint("today a target is local:DIR, a second GnuPG home on this machine"));
        }
        Err(usage(format!("{shown}: not the address of a target"))
            .hint("today a target is local:DIR, a second GnuPG home on this machine"))
    }
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(folder) => {
                write!(f, "local:{}", printable(folder.as_os_str().as_encoded_bytes()))
            }
        }
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
        let TargetAddress::Local(folder) = "local:here".parse().unwrap();
        assert!(folder.is_absolute() && folder.ends_with("here"));
    }

    #[test]
    fn other_words_are_refused_with_the_right_form() {
        for text in ["local:", "web", "docker://web", "exec:sh", ""] {
            let error = text.parse::<TargetAddress>().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage, "{text}");
            assert!(error.hints.iter().any(|hint| hint.contains("local:DIR")), "{text}");
        }
        let error = "\u{1b}[31mred".parse::<TargetAddress>().unwrap_err();
        assert!(!error.message.contains('\u{1b}'));
    }
}
