//! The engine of a container answers.

use super::{Check, Outcome, Part, Problem};
use crate::doctor::Facts;

pub(crate) static CHECK: Check = Check {
    name: "engine",
    title: "the container's engine",
    part: Part::Way,
    lane: None,
    needs: &[],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    Some(match facts.target.as_ref()?.engine.as_ref()? {
        Ok(version) => Outcome::Fine(version.clone()),
        Err(error) => Outcome::Broken(Problem::from(error)),
    })
}
