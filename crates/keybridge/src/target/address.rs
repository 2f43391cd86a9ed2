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
    /// `docker://NAME`, a container by its name, its id or a prefix of that.
    Docker(String),
}

/// Addresses that are planned; better told apart from a typing error.
const NOT_YET: [&str; 5] = ["podman://", "k8s://", "ssh://", "wsl://", "exec:"];

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
            return container(name);
        }
        if let Some(scheme) = NOT_YET.iter().find(|scheme| text.starts_with(**scheme)) {
            return Err(usage(format!("{shown}: {scheme} targets are not there yet")).hint(FORMS));
        }
        container(text)
    }
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Docker(name) => write!(f, "docker://{}", printable(name)),
            Self::Local(folder) => {
                write!(f, "local:{}", printable(folder.as_os_str().as_encoded_bytes()))
            }
        }
    }
}

const FORMS: &str = "a target is a container, docker://NAME or NAME, or local:DIR, a second GnuPG \
                     home on this machine";

/// A container's name or id, in the characters that the engine allows.
fn container(name: &str) -> Result<TargetAddress, Error> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "_.-".contains(character);
    if name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(allowed) {
        Ok(TargetAddress::Docker(name.to_owned()))
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
    fn a_bare_name_is_a_container() {
        for text in ["web", "docker://web"] {
            assert_eq!(text.parse(), Ok(TargetAddress::Docker("web".into())));
        }
    }

    #[test]
    fn other_words_are_refused_with_the_right_form() {
        for text in ["local:", "local:~/x", "docker://", "a/b", "-x", "exec:sh", "podman://x", ""] {
            let error = text.parse::<TargetAddress>().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage, "{text}");
            assert!(error.hints.iter().any(|hint| hint.contains("local:")), "{text}");
        }
        let error = "\u{1b}[31mred".parse::<TargetAddress>().unwrap_err();
        assert!(!error.message.contains('\u{1b}'));
    }
}
