//! The sockets where gpg and ssh in the target look for their agents: the helper listens there, or can.

use keybridge_proto::Lane;
use keybridge_proto::inspection::Listener;

use crate::ErrorKind;
use crate::checks::{Outcome, Problem};
use crate::doctor::Fix;
use crate::facts::Facts;

/// gpg's.
pub(crate) fn gpg(facts: &Facts) -> Option<Outcome> {
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
        Listener::Nobody if facts.is_ready() => Outcome::Broken(
            Problem::new(format!("nobody listens at {socket}")).fix(facts.fix_by_up(facts.up(&[]))),
        ),
        Listener::Nobody => Outcome::Fine(format!("{socket}, where nobody listens yet")),
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

/// That of git's programs.
pub(crate) fn git(facts: &Facts) -> Option<Outcome> {
    let lane = &facts.inspection()?.lanes.git;
    let socket = lane.socket.as_deref().unwrap_or("no socket");
    let why = match (&lane.listener, &lane.problem) {
        (Listener::Helper { .. }, _) => return Some(Outcome::Fine(socket.to_owned())),
        (_, Some(problem)) => problem.clone(),
        (Listener::Nobody, None) => format!("nobody listens at {socket}"),
        (Listener::Agent { .. } | Listener::Unknown(_), None) => {
            format!("something else listens at {socket}")
        }
    };
    Some(Outcome::Broken(Problem::new(why).fix(facts.fix_by_up(facts.up(&[])))))
}

/// ssh's.
pub(crate) fn ssh(facts: &Facts) -> Option<Outcome> {
    // An agent that isn't there has its own check.
    if facts.host.ssh.is_err() {
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
        (Listener::Nobody, None) => format!("nobody listens at {socket}"),
        (Listener::Agent { .. } | Listener::Unknown(_), None) => {
            format!("something else listens at {socket}")
        }
    };
    let problem =
        Problem::new(why).fix(Fix::new(facts.up(&["--lanes", &facts.lanes_and(Lane::Ssh)])));
    let is_named = facts.settings.lanes_are_named();
    Some(if is_named { Outcome::Broken(problem) } else { Outcome::Warning(problem) })
}
