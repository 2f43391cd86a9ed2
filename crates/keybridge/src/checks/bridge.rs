//! The bridge: it is up, its link answers, and gpg in the target signs over it.

use keybridge_proto::printable;

use crate::ErrorKind;
use crate::checks::{Outcome, Problem};
use crate::doctor::Fix;
use crate::facts::BridgeFacts;
use crate::facts::Facts;
use crate::supervisor::{BridgeState, BridgeStatus};

/// The target is bridged.
pub(crate) fn bridge(facts: &Facts) -> Option<Outcome> {
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
    let hints = status.hints.iter().map(|hint| printable(&hint.to_string()).to_string());
    let kind = status.kind.unwrap_or(ErrorKind::Failed);
    hints.fold(problem, Problem::hint).kind(kind)
}

/// The link of the bridge answers.
pub(crate) fn link(facts: &Facts) -> Option<Outcome> {
    let target = facts.target.as_ref()?;
    let BridgeFacts::Up { round_trip, .. } = &target.bridge else {
        return Some(Outcome::NotTried("there is no link".to_owned()));
    };
    Some(match round_trip {
        Ok(Some(time)) => {
            Outcome::Fine(format!("answers in {:.1} ms", time.as_secs_f64() * 1000.0))
        }
        Ok(None) => {
            let up = facts.up(&[]);
            // The first one may be told that the link is lost, and the second one has the next link.
            let again = facts.fix_by_up(format!("{up} || {up}"));
            Outcome::Broken(Problem::new("the helper doesn't answer over the link").fix(again))
        }
        Err(error) => Outcome::Warning(Problem::from(error)),
    })
}

/// gpg in the target signs with a lent key.
pub(crate) fn signature(facts: &Facts) -> Option<Outcome> {
    let target = facts.target.as_ref()?;
    let asked = facts.inspection().and_then(|inspection| inspection.signature.as_ref());
    Some(match (asked, &facts.host.quiet_key) {
        (Some(signature), _) => match &signature.result {
            Ok(time) => Outcome::Fine(format!(
                "made with {} in {} ms, and verified",
                signature.fingerprint,
                time.as_millis()
            )),
            Err(why) => {
                let logs = format!("keybridge logs {}", target.address.as_word());
                let cause = format!("signing with {} failed: {why}", signature.fingerprint);
                Outcome::Broken(Problem::new(cause).fix(Fix::new(logs)))
            }
        },
        (None, Err(why)) => Outcome::NotTried(why.clone()),
        (None, Ok(_)) => Outcome::NotTried("the target wasn't looked at".to_owned()),
    })
}
