//! The target exists, runs, and can be reached.

use keybridge_proto::printable;

use super::{Check, Outcome, Part, Problem, engine, transport};
use crate::ErrorKind;
use crate::doctor::{Facts, Fix};
use crate::target::{Presence, Target};

pub(crate) static CHECK: Check = Check {
    name: "target",
    title: "the target exists and runs",
    part: Part::Way,
    lane: None,
    needs: &[&engine::CHECK, &transport::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let facts_of_target = facts.target.as_ref()?;
    let (target, presence) = match &facts_of_target.found {
        Ok(found) => found,
        Err(error) => {
            let problem = Problem::from(error);
            let meant = facts_of_target.similar.as_ref();
            return Some(Outcome::Broken(match meant {
                Some(meant) => {
                    problem.fix(Fix::new(format!("keybridge doctor {}", meant.as_word())))
                }
                None => problem,
            }));
        }
    };
    let away = |state: &str, verb: &str| {
        let (name, program) = (target.address(), target.engine_program());
        let problem = Problem::new(format!("{name} {state}")).kind(ErrorKind::NoTarget);
        Outcome::Broken(match program {
            Some((program, name)) => {
                problem.fix(facts.fix_by_up(facts.then_up(&format!("{program} {verb} {name}"))))
            }
            None => problem,
        })
    };
    Some(match presence {
        Presence::Paused => away("is paused", "unpause"),
        Presence::Stopped => away("isn't running", "start"),
        Presence::Removed => Outcome::Broken(
            Problem::new(format!("{} was removed", target.address())).kind(ErrorKind::NoTarget),
        ),
        Presence::Unreachable(error) => Outcome::Broken(Problem::from(error)),
        Presence::Running => match &facts_of_target.reached {
            Err(error) if error.means_away() => Outcome::Broken(Problem::from(error)),
            Ok(_) | Err(_) => Outcome::Fine(describe(target)),
        },
    })
}

fn describe(target: &Target) -> String {
    match target.describe() {
        text if text.is_empty() => target.address().to_string(),
        text => printable(&text).to_string(),
    }
}
