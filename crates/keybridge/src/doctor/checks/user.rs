//! The user whose keyring and sockets are used exists in the target.

use super::{Check, Outcome, Part, Problem, target};
use crate::ErrorKind;
use crate::doctor::Facts;

pub(crate) static CHECK: Check = Check {
    name: "user",
    title: "the user in the target",
    part: Part::Way,
    lane: None,
    needs: &[&target::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let target = facts.target.as_ref()?;
    match &target.reached {
        Err(error) if error.kind == ErrorKind::NoUser => {
            Some(Outcome::Broken(Problem::from(error)))
        }
        Ok(_) | Err(_) => Some(Outcome::Fine(target.user_name())),
    }
}
