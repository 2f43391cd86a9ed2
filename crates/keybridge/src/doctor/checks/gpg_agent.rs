//! The gpg-agent of this machine runs, and answers.

use keybridge_proto::Lane;

use super::{Check, Outcome, Part, Problem, home_gpg};
use crate::doctor::{Facts, Fix, fix};

pub(crate) static CHECK: Check = Check {
    name: "gpg-agent",
    title: "gpg-agent on this machine",
    part: Part::Home,
    lane: Some(Lane::Gpg),
    needs: &[&home_gpg::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let command = |words: &[&str]| fix::gnupg("gpgconf", &facts.home.gnupg, words);
    let launch = command(&["--launch", "gpg-agent"]);
    Some(match &facts.home.agent {
        Ok(agent) => Outcome::Fine(format!("version {}, process {}", agent.version, agent.pid)),
        Err(error) => {
            let problem = Problem::from(error);
            let is_absent = error.message.ends_with("isn't running");
            Outcome::Broken(if is_absent {
                problem.fix(Fix::safe(launch))
            } else {
                // It hangs, or something else is at its socket. gpgconf would wait for it.
                let kill = match facts.home.hung_agent {
                    Some(pid) => format!("kill -KILL {pid}"),
                    None => command(&["--kill", "gpg-agent"]),
                };
                problem.fix(Fix::new(format!("{kill}; {launch}")))
            })
        }
    })
}
