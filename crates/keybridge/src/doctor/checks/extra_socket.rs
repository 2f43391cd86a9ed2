//! The socket of gpg-agent that targets get is the restricted one.

use std::path::Path;

use keybridge_proto::Lane;
use keybridge_proto::gate::AgentSocket;

use super::{Check, Outcome, Part, Problem, gpg_agent};
use crate::doctor::{Facts, Fix, fix};

pub(crate) static CHECK: Check = Check {
    name: "extra-socket",
    title: "gpg-agent's restricted socket",
    part: Part::Home,
    lane: Some(Lane::Gpg),
    needs: &[&gpg_agent::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let command = |words: &[&str]| fix::gnupg("gpgconf", &facts.home.gnupg, words);
    Some(match &facts.home.extra_socket {
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
