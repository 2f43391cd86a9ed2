//! Which check an error of `up` belongs to.

use super::{checks, fix};
use crate::target::TargetAddress;
use crate::{Error, ErrorKind};

/// Names the check that an error belongs to, and says how to run all of them.
pub(crate) fn name_check(error: Error, address: &TargetAddress, user: Option<&str>) -> Error {
    let name = match error.check.as_deref().and_then(checks::named).or_else(|| of_kind(&error)) {
        Some(check) => check.name,
        None => return error,
    };
    let target = address.to_string();
    let user = user.iter().flat_map(|user| ["--user", user]);
    let doctor = fix::line(["keybridge", "doctor"].into_iter().chain(user).chain([&*target]));
    let hint = format!("`{doctor}` checks the whole chain; this is its check `{name}`");
    error.at_check(name).hint(hint)
}

/// The check of an error that no step has named.
fn of_kind(error: &Error) -> Option<&'static super::Check> {
    checks::named(match error.kind {
        // The command line is wrong, and no link of the chain.
        ErrorKind::Usage => return None,
        ErrorKind::NoTarget | ErrorKind::LoginRefused => "target",
        ErrorKind::NoAgent => "gpg-agent",
        ErrorKind::NoUser => "user",
        ErrorKind::NoShell => "shell",
        ErrorKind::IncompleteCopy | ErrorKind::WrongProcessor => "helper",
        ErrorKind::InUse => "target-socket",
        ErrorKind::NotPermitted | ErrorKind::NotFound | ErrorKind::SameHome => "target-home",
        ErrorKind::NoGnupg => "target-gpg",
        ErrorKind::Failed => "bridge",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_check_of_its_place_or_else_of_its_kind() {
        let address: TargetAddress = "docker://web".parse().unwrap();
        let named = |error: Error| name_check(error, &address, None);
        let error = named(Error::new(ErrorKind::NoTarget, "x").at_check("engine").context("y"));
        assert_eq!(error.check.as_deref(), Some("engine"));
        let error = named(Error::new(ErrorKind::InUse, "x"));
        assert_eq!(error.check.as_deref(), Some("target-socket"));
        assert_eq!(
            error.hints,
            [
                "`keybridge doctor docker://web` checks the whole chain; this is its check `target-socket`"
            ]
        );
        let error = name_check(Error::new(ErrorKind::NoUser, "x"), &address, Some("a b"));
        assert!(
            error.hints[0].contains("`keybridge doctor --user 'a b' docker://web`"),
            "{error:?}"
        );
        let error = named(Error::new(ErrorKind::Usage, "x"));
        assert_eq!((error.check, error.hints), (None, Vec::new()));
    }

    #[test]
    fn every_kind_has_a_check_that_exists() {
        use ErrorKind::{
            Failed, InUse, IncompleteCopy, LoginRefused, NoAgent, NoGnupg, NoShell, NoTarget,
            NoUser, NotFound, NotPermitted, SameHome, WrongProcessor,
        };
        for kind in [
            Failed,
            InUse,
            IncompleteCopy,
            LoginRefused,
            NoAgent,
            NoGnupg,
            NoShell,
            NoTarget,
            NoUser,
            NotFound,
            NotPermitted,
            SameHome,
            WrongProcessor,
        ] {
            assert!(of_kind(&Error::new(kind, "x")).is_some(), "{kind:?}");
        }
        for place in ["home-gpg", "extra-socket", "secret-keys", "ssh-agent", "engine", "helper"] {
            assert!(checks::named(place).is_some(), "{place}");
        }
    }
}
