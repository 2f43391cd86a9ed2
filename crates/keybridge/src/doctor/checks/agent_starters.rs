//! Nothing in the target would start another agent at the sockets, or lead clients to one.

use keybridge_proto::Lane;
use keybridge_proto::inspection::{AgentStarter, StarterKind};

use super::{Check, Outcome, Part, Problem, target_home};
use crate::ErrorKind;
use crate::doctor::{Facts, Fix};
use crate::target::RunAs;

pub(crate) static CHECK: Check = Check {
    name: "agent-starters",
    title: "what would start another agent in the target",
    part: Part::Target,
    lane: None,
    needs: &[&target_home::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let inspection = facts.inspection()?;
    let starters = facts.lanes().into_iter().flat_map(|lane| {
        inspection.lanes[lane].starters.iter().map(move |starter| (lane, starter))
    });
    let mut outcomes: Vec<Outcome> =
        starters.map(|(lane, starter)| judge(facts, lane, starter)).collect();
    // What breaks the bridge comes first.
    outcomes.sort_by_key(|outcome| !matches!(outcome, Outcome::Broken(_)));
    let none = || Outcome::Fine("none".to_owned());
    Some(outcomes.into_iter().next().unwrap_or_else(none))
}

fn judge(facts: &Facts, lane: Lane, starter: &AgentStarter) -> Outcome {
    let AgentStarter { kind, name, fix } = starter;
    let in_target = || Fix::new(facts.typed(&["sh", "-c", fix], RunAs::User));
    match kind {
        StarterKind::SystemdUnit if facts.is_ready() => {
            let cause = format!("the systemd unit {name} starts an agent at the next login");
            Outcome::Warning(Problem::new(cause).fix(in_target()))
        }
        StarterKind::SystemdUnit => {
            let cause = format!("the systemd unit {name} owns the socket of the {lane} lane");
            let problem = Problem::new(cause)
                .kind(ErrorKind::InUse)
                .fix(Fix::new(facts.up(&["--replace"])))
                .fix(in_target());
            match lane {
                Lane::Gpg => Outcome::Broken(problem),
                Lane::Ssh => Outcome::Warning(problem),
            }
        }
        StarterKind::GpgConf => {
            let cause = format!("{name} makes gpg start an agent of its own");
            Outcome::Broken(Problem::new(cause).fix(in_target()))
        }
        StarterKind::SshAuthSock => Outcome::Warning(
            Problem::new(format!("SSH_AUTH_SOCK in the target names another agent: {name}"))
                .hint("leave it unset there: ssh then uses the bridge"),
        ),
    }
}
