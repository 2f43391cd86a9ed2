//! git's `user.email` in the target is on the key that signs.

use super::{Check, Outcome, Part, Problem, git_signing};
use crate::doctor::{Facts, Fix};
use crate::target::RunAs;

pub(crate) static CHECK: Check = Check {
    name: "git-email",
    title: "git's user.email in the target",
    part: Part::Bridge,
    lane: None,
    needs: &[&git_signing::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let (inspection, keys) = (facts.inspection()?, facts.home.keys.as_ref().ok()?);
    let git = inspection.git.as_ref()?;
    // An SSH key has no addresses.
    if git.format.as_ref().is_some_and(|format| format.value == "ssh") {
        return None;
    }
    let cause = match git.email.as_ref().map(|email| email.value.as_str()) {
        Some(email) if git_signing::names_key(keys, email) => {
            return Some(Outcome::Fine(email.to_owned()));
        }
        Some(email) => format!("user.email {email} is not on a key that is lent"),
        None => "git in the target has no user.email".to_owned(),
    };
    let address = keys.signing_user_ids().find_map(address_of);
    let problem = Problem::new(cause);
    Some(Outcome::Warning(match address {
        Some(address) => {
            let words = ["git", "config", "--global", "user.email", address];
            problem.fix(Fix::new(facts.typed(&words, RunAs::User)))
        }
        None => problem.hint("no key that is lent for signatures has an address"),
    }))
}

/// The address of a user id: `Name <address>`, or the address alone.
fn address_of(user_id: &str) -> Option<&str> {
    let inner = user_id.rsplit_once('<').and_then(|(_, rest)| rest.strip_suffix('>'));
    let address = inner.unwrap_or(user_id);
    let is_address = address.contains('@') && !address.contains(char::is_whitespace);
    // Not an option of git's.
    (is_address && !address.starts_with('-')).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_taken_from_a_user_id() {
        assert_eq!(address_of("Lab (x) <lab@x>"), Some("lab@x"));
        assert_eq!(address_of("lab@x"), Some("lab@x"));
        assert_eq!(address_of("Lab"), None);
        assert_eq!(address_of("<-x@y>"), None);
    }
}
