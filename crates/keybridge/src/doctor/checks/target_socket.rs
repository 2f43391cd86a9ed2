//! The helper listens where gpg looks for its agent, or can.

use keybridge_proto::Lane;
use keybridge_proto::inspection::Listener;

use super::{Check, Outcome, Part, Problem, agent_starters};
use crate::ErrorKind;
use crate::doctor::{Facts, Fix};

pub(crate) static CHECK: Check = Check {
    name: "target-socket",
    title: "the socket that gpg in the target uses",
    part: Part::Target,
    lane: Some(Lane::Gpg),
    needs: &[&agent_starters::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let inspection = facts.inspection()?;
    inspection.gnupg.as_ref()?;
    let lane = &inspection.lanes.gpg;
    let socket = lane.socket.as_deref().unwrap_or("an unknown path");
    if let Some(problem) = &lane.problem {
        return Some(Outcome::Broken(Problem::new(problem)));
    }
    let in_use = |who: &str| {
        let problem = Problem::new(format!("{who} listens at {socket}")).kind(ErrorKind::InUse);
        Outcome::Broken(problem.fix(Fix::new(facts.up(&["--replace"]))))
    };
    Some(match &lane.listener {
        Listener::Helper { pid, version, .. } => Outcome::Fine(format!(
            "{socket}, keybridge-remote {}{}",
            version.as_deref().unwrap_or("of an unknown version"),
            process(*pid)
        )),
        Listener::Nobody | Listener::Stale if facts.is_ready() => Outcome::Broken(
            Problem::new(format!("nobody listens at {socket}")).fix(facts.fix_by_up(facts.up(&[]))),
        ),
        Listener::Nobody | Listener::Stale => {
            Outcome::Fine(format!("{socket}, where nobody listens yet"))
        }
        // `up` takes over from an agent that has no keys to lose.
        Listener::Agent { has_secret_keys: Some(false), .. } if !facts.is_ready() => {
            Outcome::Fine(format!("{socket}, where an agent without keys listens"))
        }
        Listener::Agent { pid, program, has_secret_keys } => {
            let keys = if *has_secret_keys == Some(true) { ", with secret keys," } else { "" };
            let program = program.as_deref().unwrap_or("another agent");
            in_use(&format!("{program}{}{keys}", process(*pid)))
        }
        Listener::Unknown(what) => in_use(&format!("something else ({what})")),
    })
}

fn process(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" (process {pid})")).unwrap_or_default()
}
