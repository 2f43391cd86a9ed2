//! A shell answers in the target, or the engine can do without one.

use super::{Check, Outcome, Part, Problem, user};
use crate::doctor::Facts;

pub(crate) static CHECK: Check = Check {
    name: "shell",
    title: "a shell in the target",
    part: Part::Way,
    lane: None,
    needs: &[&user::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    Some(match &facts.target.as_ref()?.reached {
        Ok(reached) if reached.has_shell => {
            let processor = reached.processor.as_deref().unwrap_or("unknown");
            Outcome::Fine(format!("sh answers, processor {processor}"))
        }
        Ok(_) => Outcome::Fine("there is none, and none is needed".to_owned()),
        Err(error) => Outcome::Broken(Problem::from(error)),
    })
}
