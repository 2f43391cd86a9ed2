//! GnuPG on the host: gpg and gpgconf can be run, and are new enough.

use crate::ErrorKind;
use crate::checks::{Outcome, Problem};
use crate::doctor::Fix;
use crate::facts::Facts;
use crate::platform::{System, find_program};

/// The first version with a restricted socket that keybridge can use.
const OLDEST: (u32, u32) = (2, 1);

pub(crate) fn examine(facts: &Facts) -> Option<Outcome> {
    Some(match (&facts.host.gpg, &facts.host.dirs) {
        (Err(error), _) | (Ok(_), Err(error)) => {
            let problem = Problem::from(error);
            let is_missing = error.kind == ErrorKind::ProgramMissing;
            Outcome::Broken(if is_missing { problem.fix(install()) } else { problem })
        }
        (Ok(version), Ok(dirs)) if is_old(version) => {
            let cause = format!("gpg {version} is too old: keybridge needs 2.1 or later");
            let hint = format!("its home is {}", dirs.home.display());
            Outcome::Broken(Problem::new(cause).kind(ErrorKind::NoAgent).fix(install()).hint(hint))
        }
        (Ok(version), Ok(dirs)) => {
            Outcome::Fine(format!("gpg {version}, home {}", dirs.home.display()))
        }
    })
}

fn is_old(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < OLDEST,
        _ => false,
    }
}

/// The command of the first package manager that this machine has.
fn install() -> Fix {
    let commands = [
        System::here().gnupg_command,
        ("dnf", "sudo dnf install -y gnupg2"),
        ("apk", "sudo apk add gnupg"),
        ("pacman", "sudo pacman -S --noconfirm gnupg"),
        ("zypper", "sudo zypper install -y gpg2"),
        ("brew", "brew install gnupg"),
    ];
    let has = |program: &str| find_program(program).is_some();
    let usable = commands.iter().find(|(program, _)| has(program)).unwrap_or(&commands[0]);
    Fix::new(usable.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_before_2_1_are_too_old() {
        for (version, old) in [
            ("1.4.23", true),
            ("2.0.30", true),
            ("2.1.18", false),
            ("2.5.3-beta", false),
            ("", false),
        ] {
            assert_eq!(is_old(version), old, "{version}");
        }
    }
}
