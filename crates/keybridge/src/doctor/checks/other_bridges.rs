//! The other bridges: none was killed, and if no target was named, how each of them is.

use super::{Check, Outcome, Part, Problem, state_folder};
use crate::doctor::{Facts, Fix};
use crate::shell_quote::quoted;
use crate::supervisor::BridgeState;
use keybridge_proto::printable;

pub(crate) static CHECK: Check = Check {
    name: "bridges",
    title: "the bridges of this user",
    part: Part::Home,
    lane: None,
    needs: &[&state_folder::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let is_meant = |address: &str| facts.target_name().as_deref() == Some(address);
    // The bridge of the target has its own check.
    let mut killed = facts.home.state.killed.iter().filter(|one| !is_meant(&one.to_string()));
    if let Some(address) = killed.next() {
        let problem = Problem::new(format!("the bridge to {address} was killed"));
        let undo = Fix::safe(format!("keybridge down {}", address.as_word()));
        return Some(Outcome::Warning(problem.fix(undo)));
    }
    if facts.target.is_some() {
        return None;
    }
    let unwell = facts.bridges.iter().find(|bridge| bridge.state != BridgeState::Ready);
    if let Some(bridge) = unwell {
        let target = printable(&bridge.target).to_string();
        let why = bridge.reason.as_deref().map(|why| format!(": {}", printable(why)));
        let state = format!("{target} is {}{}", bridge.state.word(), why.unwrap_or_default());
        let look = Fix::new(format!("keybridge doctor {}", quoted(&target)));
        return Some(Outcome::Warning(Problem::new(state).fix(look)));
    }
    Some(Outcome::Fine(match facts.bridges.len() {
        0 => "nothing is bridged; `keybridge doctor TARGET` checks a target too".to_owned(),
        1 => "1 is up".to_owned(),
        count => format!("{count} are up"),
    }))
}
