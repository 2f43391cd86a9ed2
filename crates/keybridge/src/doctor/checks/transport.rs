//! The program that leads to the target is there.

use super::{Check, Outcome, Part, Problem};
use crate::doctor::Facts;

pub(crate) static CHECK: Check = Check {
    name: "transport",
    title: "the program that leads to the target",
    part: Part::Way,
    lane: None,
    needs: &[],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    Some(match facts.target.as_ref()?.transport.as_ref()? {
        Ok(version) => Outcome::Fine(version.clone()),
        Err(error) => Outcome::Broken(Problem::from(error)),
    })
}
