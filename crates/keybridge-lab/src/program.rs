//! The programs of this machine that tests start.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

/// What the scripts install.
const LIST: &str = include_str!("../../../scripts/programs.txt");

/// A command that runs a program. A name alone has to be in `scripts/programs.txt`, and there; a path
/// is taken as it is.
#[track_caller]
pub fn command(name: impl AsRef<OsStr>) -> Command {
    let name = name.as_ref();
    if let Some(name) = name.to_str().filter(|name| !name.contains('/')) {
        program(name);
    }
    Command::new(name)
}

/// Where a program is.
#[track_caller]
pub fn program(name: &str) -> PathBuf {
    find(name, &std::env::var_os("PATH").unwrap_or_default())
}

#[track_caller]
fn find(name: &str, path: &OsStr) -> PathBuf {
    let packages = packages(name).unwrap_or_else(|| panic!("{name} isn't in scripts/programs.txt"));
    let servers = [PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")];
    let mut places = std::env::split_paths(path).chain(servers).map(|folder| folder.join(name));
    let found = places.find(|place| place.is_file());
    found.unwrap_or_else(|| panic!("{name} is missing; as root: apt-get install {packages}"))
}

/// The Debian packages of a program that is in the list.
fn packages(name: &str) -> Option<String> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    let mut words = lines.map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>());
    words.find(|words| words.first() == Some(&name)).map(|words| words[1..].join(" "))
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        for (name, package) in [("gpg", "gnupg"), ("git", "git"), ("ssh-keygen", "openssh-client")]
        {
            let failed = catch_unwind(|| find(name, "/nonexistent".as_ref())).unwrap_err();
            let expected = format!("{name} is missing; as root: apt-get install {package}");
            assert_eq!(failed.downcast_ref(), Some(&expected));
        }
        // One that nobody would install.
        catch_unwind(|| command("keybridge-no-such-program")).unwrap_err();
        assert_eq!(command("/nonexistent/x").get_program(), "/nonexistent/x");
    }

    #[test]
    fn every_line_names_a_purpose_a_program_and_packages() {
        for line in LIST.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            assert!(line.split_whitespace().count() >= 3, "{line}");
        }
    }
}
