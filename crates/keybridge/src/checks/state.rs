//! What keybridge itself keeps: its folder, and the bridges of this user.

use keybridge_proto::printable;

use crate::checks::{Outcome, Problem};
use crate::doctor::{Fix, fix};
use crate::facts::Facts;
use crate::platform::Privacy;
use crate::shell_quote::quoted;
use crate::supervisor::BridgeState;

/// The folder belongs to the user alone.
pub(crate) fn folder(facts: &Facts) -> Option<Outcome> {
    let state = &facts.host.state;
    let path = state.path.display();
    Some(match state.privacy {
        None => Outcome::Fine(format!("{path} doesn't exist yet")),
        Some(Privacy::Private) => Outcome::Fine(path.to_string()),
        Some(Privacy::TooOpen) => Outcome::Broken(
            Problem::new(format!("other users can enter {path}"))
                .fix(Fix::safe(format!("chmod 700 {}", fix::path(&state.path)))),
        ),
        Some(Privacy::NotOurs) => Outcome::Broken(
            Problem::new(format!("{path} isn't a folder of your own"))
                .hint("remove it, or set KEYBRIDGE_STATE to another folder"),
        ),
    })
}

/// No other bridge was killed, and if no target was named, each of them works.
pub(crate) fn bridges(facts: &Facts) -> Option<Outcome> {
    let is_meant = |address: &str| facts.target_name().as_deref() == Some(address);
    // The bridge of the target has its own check.
    let mut killed = facts.host.state.killed.iter().filter(|one| !is_meant(&one.to_string()));
    if let Some(address) = killed.next() {
        let problem = Problem::new(format!("the bridge to {address} was killed"));
        // It forgets the settings, which may be narrow.
        let undo = Fix::safe(format!("keybridge down {}", address.as_word()));
        let undo = Fix { lends: true, ..undo };
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
