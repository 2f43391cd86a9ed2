//! The helper listens where ssh in the target looks for its agent.

use keybridge_proto::Lane;
use keybridge_proto::inspection::Listener;

use super::{Check, Outcome, Part, Problem, bridge, ssh_agent};
use crate::doctor::{Facts, Fix};

pub(crate) static CHECK: Check = Check {
    name: "target-ssh",
    title: "the socket that ssh in the target uses",
    part: Part::Bridge,
    lane: Some(Lane::Ssh),
    needs: &[&ssh_agent::CHECK, &bridge::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    // An agent that isn't there has its own check.
    if facts.home.ssh.is_err() {
        return None;
    }
    let inspection = facts.inspection()?;
    let lane = &inspection.lanes.ssh;
    let socket = lane.socket.as_deref().unwrap_or("no socket");
    let why = match (&lane.listener, &lane.problem) {
        (Listener::Helper { .. }, _) if lane.is_set_up != Some(false) => {
            return Some(Outcome::Fine(socket.to_owned()));
        }
        (Listener::Helper { .. }, _) => "ssh's settings there don't name the socket".to_owned(),
        (_, Some(problem)) => problem.clone(),
        (Listener::Nobody | Listener::Stale, None) => format!("nobody listens at {socket}"),
        (Listener::Agent { .. } | Listener::Unknown(_), None) => {
            format!("something else listens at {socket}")
        }
    };
    let problem = Problem::new(why).fix(Fix::new(facts.up(&["--lanes", "gpg,ssh"])));
    let is_named = facts.settings.lanes_are_named();
    Some(if is_named { Outcome::Broken(problem) } else { Outcome::Warning(problem) })
}
