//! GnuPG on this machine: gpg and gpgconf can be run, and are new enough.

use keybridge_proto::Lane;

use super::{Check, Outcome, Part, Problem};
use crate::doctor::{Facts, Fix};
use crate::platform::{System, find_program};
use crate::{Error, ErrorKind};

pub(crate) static CHECK: Check = Check {
    name: "home-gpg",
    title: "GnuPG on this machine",
    part: Part::Home,
    lane: Some(Lane::Gpg),
    needs: &[],
    examine,
};

/// The first version with a restricted socket that keybridge can use.
const OLDEST: (u32, u32) = (2, 1);

fn examine(facts: &Facts) -> Option<Outcome> {
    Some(match (&facts.home.gpg, &facts.home.dirs) {
        (Err(error), _) | (Ok(_), Err(error)) => Outcome::Broken(missing(error)),
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

fn missing(error: &Error) -> Problem {
    let problem = Problem::from(error);
    // Only what can't be started at all has to be installed.
    if error.message.contains("can't be started") { problem.fix(install()) } else { problem }
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
