//! The way to the target: its engine or the program that leads there, the target, its user and shell.

use keybridge_proto::printable;

use crate::ErrorKind;
use crate::checks::{Outcome, Problem};
use crate::doctor::Fix;
use crate::facts::Facts;
use crate::target::{Presence, Target};

/// The engine of a container answers.
pub(crate) fn engine(facts: &Facts) -> Option<Outcome> {
    facts.target.as_ref()?.engine.as_ref().map(Outcome::from)
}

/// The program that leads to the target is there.
pub(crate) fn transport(facts: &Facts) -> Option<Outcome> {
    facts.target.as_ref()?.transport.as_ref().map(Outcome::from)
}

/// The target exists, runs, and can be reached.
pub(crate) fn target(facts: &Facts) -> Option<Outcome> {
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

/// The user whose keyring and sockets are used exists in the target.
pub(crate) fn user(facts: &Facts) -> Option<Outcome> {
    let target = facts.target.as_ref()?;
    match &target.reached {
        Err(error) if error.kind == ErrorKind::NoUser => {
            Some(Outcome::Broken(Problem::from(error)))
        }
        Ok(_) | Err(_) => Some(Outcome::Fine(target.user_name())),
    }
}

/// A shell answers in the target, or the engine can do without one.
pub(crate) fn shell(facts: &Facts) -> Option<Outcome> {
    Some(match &facts.target.as_ref()?.reached {
        Ok(reached) if reached.has_shell => {
            let processor = reached.processor.as_deref().unwrap_or("unknown");
            Outcome::Fine(format!("sh answers, processor {processor}"))
        }
        Ok(_) => Outcome::Fine("there is none, and none is needed".to_owned()),
        Err(error) => Outcome::Broken(Problem::from(error)),
    })
}
