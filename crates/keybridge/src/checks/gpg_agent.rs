//! The gpg-agent of the host, and its socket for targets.

use std::path::Path;

use keybridge_proto::gate::AgentSocket;

use crate::ErrorKind;
use crate::checks::{Outcome, Problem};
use crate::doctor::{Fix, fix};
use crate::facts::Facts;

/// It runs, and answers.
pub(crate) fn agent(facts: &Facts) -> Option<Outcome> {
    let command = |words: &[&str]| fix::gnupg("gpgconf", &facts.host.gnupg, words);
    let launch = command(&["--launch", "gpg-agent"]);
    Some(match &facts.host.agent {
        Ok(agent) => Outcome::Fine(format!("version {}, process {}", agent.version, agent.pid)),
        Err(error) => {
            let problem = Problem::from(error);
            Outcome::Broken(if error.kind == ErrorKind::AgentAbsent {
                problem.fix(Fix::safe(launch))
            } else {
                // It hangs, or something else is at its socket. gpgconf would wait for it.
                let kill = match facts.host.hung_agent {
                    Some(pid) => format!("kill -KILL {pid}"),
                    None => command(&["--kill", "gpg-agent"]),
                };
                problem.fix(Fix::new(format!("{kill}; {launch}")))
            })
        }
    })
}

/// The socket that targets get is the restricted one.
pub(crate) fn extra_socket(facts: &Facts) -> Option<Outcome> {
    let command = |words: &[&str]| fix::gnupg("gpgconf", &facts.host.gnupg, words);
    Some(match &facts.host.extra_socket {
        Ok(path) => match facts.settings.policy.socket {
            AgentSocket::Extra => Outcome::Fine(format!("{}, restricted", path.display())),
            AgentSocket::Main => {
                let path = path.display();
                let problem = Problem::new(format!(
                    "the settings name the main socket {path}, which only keybridge restricts"
                ));
                let hint = "leave the setting socket out: the extra socket is the default";
                Outcome::Warning(match &facts.config_file {
                    Some(file) => problem.fix(without_setting(facts, file)),
                    None => problem.hint(hint),
                })
            }
        },
        // A new agent makes its sockets again.
        Err(error) => Outcome::Broken(Problem::from(error).fix(Fix::new(format!(
            "{} && {}",
            command(&["--kill", "gpg-agent"]),
            command(&["--launch", "gpg-agent"]),
        )))),
    })
}

/// Removes the setting from the file. One on the command line or in the environment isn't there.
fn without_setting(facts: &Facts, file: &Path) -> Fix {
    let remove = r#"sed -i.bak '/^ *socket *= *"main"/d'"#;
    Fix::new(facts.then_up(&format!("{remove} {}", fix::path(file))))
}
