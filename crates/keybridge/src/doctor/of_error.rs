//! Which check an error of `up` belongs to.

use super::checks;
use crate::target::TargetAddress;
use crate::{Error, ErrorKind};

/// Names the check that an error belongs to, and says how to run all of them.
pub(crate) fn name_check(error: Error, address: &TargetAddress) -> Error {
    let name = match error.check.as_deref().and_then(checks::named).or_else(|| of_kind(&error)) {
        Some(check) => check.name,
        None => return error,
    };
    let word = address.as_word();
    let hint =
        format!("`keybridge doctor {word}` checks the whole chain; this is its check `{name}`");
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
        ErrorKind::IncompleteCopy => "helper",
        ErrorKind::InUse => "target-socket",
        ErrorKind::NotPermitted | ErrorKind::NotFound | ErrorKind::SameHome => "target-home",
        ErrorKind::NoGnupg => "target-gpg",
        ErrorKind::Failed => "bridge",
    })
}
