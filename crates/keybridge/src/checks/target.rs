//! The target: GnuPG and its home, other agents, and the sockets of the lanes.

use keybridge_proto::Lane;
use keybridge_proto::inspection::{
    AgentStarter, GnupgFacts, HomeProblemKind, LaneFacts, Listener, StarterKind,
};

use crate::ErrorKind;
use crate::checks::{Outcome, Problem};
use crate::doctor::Fix;
use crate::facts::Facts;
use crate::target::RunAs;

/// With the package managers of most images.
const INSTALL: &str = "{ apt-get update && apt-get install -y gnupg; } || apk add gnupg || \
                       dnf install -y gnupg2";

/// GnuPG is there, and new enough.
pub(crate) fn gnupg(facts: &Facts) -> Option<Outcome> {
    let problem = match &facts.inspection()?.gnupg {
        Some(GnupgFacts { version: Ok(version), program, .. }) => {
            return Some(Outcome::Fine(format!("gpg {version} ({program})")));
        }
        Some(GnupgFacts { version: Err(why), program, .. }) => {
            Problem::new(format!("{program}: {why}"))
        }
        None => {
            let problem = Problem::new("there is no gpg in the target").kind(ErrorKind::NoGnupg);
            let install = facts.typed(&["sh", "-c", INSTALL], RunAs::Root);
            problem.fix(Fix::new(facts.then_up(&install)))
        }
    };
    // The ssh lane does without it.
    let lanes = facts.status().map(|status| &status.lanes);
    let does_without = lanes.is_some_and(|lanes| lanes.ssh.is_some() && lanes.gpg.is_none());
    Some(if does_without && !facts.settings.lanes_are_named() {
        Outcome::Warning(problem)
    } else {
        Outcome::Broken(problem)
    })
}

/// GnuPG's home belongs to the user alone.
pub(crate) fn gnupg_home(facts: &Facts) -> Option<Outcome> {
    let inspection = facts.inspection()?;
    let gnupg = inspection.gnupg.as_ref()?;
    let home = gnupg.home.as_deref().unwrap_or_default();
    let Some(found) = &gnupg.home_problem else {
        let state = if gnupg.has_home { "" } else { "doesn't exist yet: " };
        return Some(Outcome::Fine(format!("{state}{}", facts.marked(home))));
    };
    let problem = Problem::new(&found.message).kind(ErrorKind::NotPermitted);
    let fix = match found.kind {
        HomeProblemKind::TooOpen => Some(facts.typed(&["chmod", "700", home], RunAs::User)),
        // The target names the path: the superuser there would give away whatever it leads to.
        HomeProblemKind::WrongOwner => {
            let hint = "look at the folder in the target before you change its owner";
            return Some(Outcome::Broken(problem.hint(hint)));
        }
        HomeProblemKind::Other => None,
    };
    Some(Outcome::Broken(match (fix, &found.fix) {
        (Some(fix), _) => problem.fix(Fix::new(facts.then_up(&fix))),
        (None, Some(hint)) => problem.hint(hint),
        (None, None) => problem,
    }))
}

/// Nothing would start another agent at the sockets, or lead clients to one.
pub(crate) fn agent_starters(facts: &Facts) -> Option<Outcome> {
    let inspection = facts.inspection()?;
    let starters = facts.lanes().into_iter().flat_map(|lane| {
        inspection.lanes[lane].starters.iter().map(move |starter| (lane, starter))
    });
    let mut outcomes: Vec<Outcome> =
        starters.map(|(lane, starter)| starter_of(facts, lane, starter)).collect();
    // What breaks the bridge comes first.
    outcomes.sort_by_key(|outcome| !matches!(outcome, Outcome::Broken(_)));
    let none = || Outcome::Fine("none".to_owned());
    Some(outcomes.into_iter().next().unwrap_or_else(none))
}

fn starter_of(facts: &Facts, lane: Lane, starter: &AgentStarter) -> Outcome {
    let AgentStarter { kind, name, fix } = starter;
    let in_target = || Fix::new(facts.typed(&["sh", "-c", fix], RunAs::User));
    match kind {
        StarterKind::SystemdUnit if facts.is_ready() => {
            let cause = format!("a systemd unit starts an agent at the next login: {name}");
            Outcome::Warning(Problem::new(cause).fix(in_target()))
        }
        StarterKind::SystemdUnit => {
            let cause = format!("a systemd unit owns the socket of the {lane} lane: {name}");
            let problem = Problem::new(cause)
                .kind(ErrorKind::InUse)
                .fix(Fix::new(facts.up(&["--replace"])))
                .fix(in_target());
            match lane {
                Lane::Gpg => Outcome::Broken(problem),
                Lane::Ssh | Lane::Git => Outcome::Warning(problem),
            }
        }
        StarterKind::GpgConf => {
            let cause = format!("gpg in the target starts an agent of its own: {name}");
            Outcome::Broken(Problem::new(cause).fix(in_target()))
        }
        StarterKind::SshAuthSock => Outcome::Warning(
            Problem::new(format!("SSH_AUTH_SOCK in the target names another agent: {name}"))
                .hint("leave it unset there: ssh then uses the bridge"),
        ),
    }
}

/// The helper listens where gpg looks for its agent, or can.
pub(crate) fn gpg_socket(facts: &Facts) -> Option<Outcome> {
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

/// The helper listens where git's programs ask.
pub(crate) fn git_socket(facts: &Facts) -> Option<Outcome> {
    let lane = &facts.inspection()?.lanes.git;
    Some(match unserved(lane) {
        None => Outcome::Fine(lane.socket.clone().unwrap_or_default()),
        Some(why) => Outcome::Broken(Problem::new(why).fix(facts.fix_by_up(facts.up(&[])))),
    })
}

/// The helper listens where ssh looks for its agent.
pub(crate) fn ssh_socket(facts: &Facts) -> Option<Outcome> {
    // An agent that isn't there has its own check.
    if facts.host.ssh.is_err() {
        return None;
    }
    let lane = &facts.inspection()?.lanes.ssh;
    let why = match unserved(lane) {
        None if lane.is_set_up != Some(false) => {
            return Some(Outcome::Fine(lane.socket.clone().unwrap_or_default()));
        }
        None => "ssh's settings there don't name the socket".to_owned(),
        Some(why) => why,
    };
    let problem =
        Problem::new(why).fix(Fix::new(facts.up(&["--lanes", &facts.lanes_and(Lane::Ssh)])));
    let is_named = facts.settings.lanes_are_named();
    Some(if is_named { Outcome::Broken(problem) } else { Outcome::Warning(problem) })
}

/// Why the helper doesn't serve the socket of a lane; `None` if it does.
fn unserved(lane: &LaneFacts) -> Option<String> {
    let socket = lane.socket.as_deref().unwrap_or("no socket");
    match (&lane.listener, &lane.problem) {
        (Listener::Helper { .. }, _) => None,
        (_, Some(problem)) => Some(problem.clone()),
        (Listener::Nobody, None) => Some(format!("nobody listens at {socket}")),
        (Listener::Agent { .. } | Listener::Unknown(_), None) => {
            Some(format!("something else listens at {socket}"))
        }
    }
}
