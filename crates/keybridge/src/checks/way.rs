//! The way to the target: its engine or the program that leads there, the target, its user and shell, and
//! the helper.

use keybridge_proto::inspection::Listener;
use keybridge_proto::printable;

use crate::ErrorKind;
use crate::checks::{Outcome, Problem};
use crate::doctor::Fix;
use crate::facts::Facts;
use crate::keyring::Lending;
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

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// keybridge's helper is in the target or can be put there, and is of this version.
pub(crate) fn helper(facts: &Facts) -> Option<Outcome> {
    let target = facts.target.as_ref()?;
    let word = target.address.as_word();
    if let Some(version) = running_version(facts).filter(|version| *version != VERSION) {
        let cause = format!("a helper of version {version} is running, and this is {VERSION}");
        let lending = facts.status().map(|status| {
            let mut options = lent_as_before(&status.lending);
            options.extend(status.narrowed.options());
            options
        });
        let lending = lending.unwrap_or_default();
        let options: Vec<&str> = lending.iter().map(String::as_str).collect();
        let again = format!("keybridge down {word} && {}", facts.up(&options));
        // Not safe: a target can say what it likes about its helper, and the bridge may have other flags.
        let problem = Problem::new(cause).fix(Fix::new(again));
        return Some(Outcome::Broken(
            problem.hint("add the other flags that the bridge was started with"),
        ));
    }
    Some(match (&target.inspection, &target.reached) {
        (Err(error), _) => Outcome::Broken(Problem::from(error)),
        (Ok(_), Ok(reached)) if reached.has_helper => Outcome::Fine(format!("version {VERSION}")),
        (Ok(_), _) => Outcome::Fine(format!("version {VERSION}; `up` puts it there")),
    })
}

/// The options for what the bridge lends: the next one must not lend more.
fn lent_as_before(lending: &Lending) -> Vec<String> {
    let uses = lending.uses.map(|uses| uses.to_string());
    let named = [("--lend", &lending.lend), ("--keys", &lending.keys), ("--uses", &uses)];
    let named = named.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
    named.flat_map(|(name, value)| [name.to_owned(), value.clone()]).collect()
}

/// The version of the helper that runs in the target, or of the bridge's own process.
fn running_version(facts: &Facts) -> Option<String> {
    let lanes = facts.inspection().map(|inspection| &inspection.lanes);
    let of_helper = lanes.into_iter().flat_map(|lanes| lanes.iter()).find_map(|(_, lane)| {
        match &lane.listener {
            Listener::Helper { version, .. } => version.clone(),
            Listener::Nobody | Listener::Agent { .. } | Listener::Unknown(_) => None,
        }
    });
    let of_bridge = || facts.status().map(|status| printable(&status.version).to_string());
    of_helper.or_else(of_bridge).filter(|version| !version.is_empty())
}
