//! The target is bridged, and the bridge works.

use keybridge_proto::printable;

use super::{Check, Outcome, Part, Problem, helper, state_folder, target_gpg, target_socket};
use crate::ErrorKind;
use crate::doctor::Facts;
use crate::doctor::facts::BridgeFacts;
use crate::supervisor::{BridgeState, BridgeStatus};

pub(crate) static CHECK: Check = Check {
    name: "bridge",
    title: "the bridge to the target",
    part: Part::Bridge,
    lane: None,
    needs: &[&state_folder::CHECK, &target_socket::CHECK, &target_gpg::CHECK, &helper::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let target = facts.target.as_ref()?;
    let name = &target.address;
    let up = || facts.fix_by_up(facts.up(&[]));
    Some(match &target.bridge {
        BridgeFacts::Unknown => {
            Outcome::Broken(Problem::new(format!("the bridge to {name} doesn't answer")).fix(up()))
        }
        BridgeFacts::Down { why } => {
            let why = why.as_deref().map(|why| format!(": {}", printable(why)));
            let cause = format!("{name} is not bridged{}", why.unwrap_or_default());
            Outcome::Broken(Problem::new(cause).fix(up()))
        }
        BridgeFacts::Up { status, .. } => match status.state {
            BridgeState::Ready => Outcome::Fine(format!(
                "ready since {} UTC, {} reconnects",
                printable(&status.since.trim_end_matches('Z').replace('T', " ")),
                status.reconnects
            )),
            BridgeState::Starting | BridgeState::Waiting | BridgeState::Failed => {
                Outcome::Broken(not_ready(status).fix(up()))
            }
        },
    })
}

fn not_ready(status: &BridgeStatus) -> Problem {
    let why = status.reason.as_deref().map(|why| format!(": {}", printable(why)));
    let state = status.state.word();
    let problem = Problem::new(format!("the bridge is {state}{}", why.unwrap_or_default()));
    let hints = status.hints.iter().map(|hint| printable(hint).to_string());
    let kind = status.kind.unwrap_or(ErrorKind::Failed);
    hints.fold(problem, Problem::hint).kind(kind)
}
