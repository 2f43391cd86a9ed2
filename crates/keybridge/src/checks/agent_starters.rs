//! Nothing in the target would start another agent at the sockets, or lead clients to one.

use keybridge_proto::Lane;
use keybridge_proto::inspection::{AgentStarter, StarterKind};

use crate::ErrorKind;
use crate::checks::{Outcome, Problem};
use crate::doctor::Fix;
use crate::facts::Facts;
use crate::target::RunAs;

pub(crate) fn examine(facts: &Facts) -> Option<Outcome> {
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
