//! Which check an error of `up` belongs to.

use super::Check;
use crate::shell_quote;
use crate::target::TargetAddress;
use crate::{Error, ErrorKind, Hint};

/// Names the check that an error belongs to, and says how to run all of them.
pub(crate) fn name_check(error: Error, address: &TargetAddress, user: Option<&str>) -> Error {
    let Some(check) = error.check.or_else(|| of_kind(error.kind)) else { return error };
    let target = address.to_string();
    let user = user.iter().flat_map(|user| ["--user", user]);
    let doctor =
        shell_quote::line(["keybridge", "doctor"].into_iter().chain(user).chain([&*target]));
    let effect = format!("checks the whole chain; this is its check `{check}`");
    error.at_check(check).hint(Hint::Run(doctor.into(), effect.into()))
}

/// The check of an error that no step has named.
const fn of_kind(kind: ErrorKind) -> Option<Check> {
    Some(match kind {
        // The command line is wrong, and no link of the chain.
        ErrorKind::Usage => return None,
        ErrorKind::NoTarget | ErrorKind::LoginRefused => Check::Target,
        ErrorKind::NoAgent | ErrorKind::AgentAbsent => Check::GpgAgent,
        ErrorKind::ProgramMissing => Check::HostGpg,
        ErrorKind::NoUser => Check::User,
        ErrorKind::NoShell => Check::Shell,
        ErrorKind::IncompleteCopy | ErrorKind::WrongProcessor => Check::Helper,
        ErrorKind::InUse => Check::TargetSocket,
        ErrorKind::NotPermitted | ErrorKind::NotFound | ErrorKind::SameHome => Check::TargetHome,
        ErrorKind::NoGnupg => Check::TargetGpg,
        ErrorKind::Failed => Check::Bridge,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_check_of_its_place_or_else_of_its_kind() {
        let address: TargetAddress = "docker://web".parse().unwrap();
        let named = |error: Error| name_check(error, &address, None);
        let error =
            named(Error::new(ErrorKind::NoTarget, "x").at_check(Check::Engine).context("y"));
        assert_eq!(error.check, Some(Check::Engine));
        let error = named(Error::new(ErrorKind::InUse, "x"));
        assert_eq!(error.check, Some(Check::TargetSocket));
        assert_eq!(
            error.hints[0].to_string(),
            "`keybridge doctor docker://web` checks the whole chain; this is its check `target-socket`"
        );
        let error = name_check(Error::new(ErrorKind::NoUser, "x"), &address, Some("a b"));
        let Hint::Run(command, _) = &error.hints[0] else { panic!("{error:?}") };
        assert_eq!(command, "keybridge doctor --user 'a b' docker://web");
        let error = named(Error::new(ErrorKind::Usage, "x"));
        assert_eq!((error.check, error.hints), (None, Vec::new()));
    }
}
