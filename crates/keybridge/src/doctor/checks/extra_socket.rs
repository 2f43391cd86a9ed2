//! The socket of gpg-agent that targets get is the restricted one.

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
            AgentSocket::Main => Outcome::Warning(
                Problem::new(format!(
                    "the settings name the main socket {}, which only keybridge restricts",
                    path.display()
                ))
                .hint("leave the setting socket out: the extra socket is the default"),
            ),
        },
        // A new agent makes its sockets again.
        Err(error) => Outcome::Broken(Problem::from(error).fix(Fix::new(format!(
            "{} && {}",
            command(&["--kill", "gpg-agent"]),
            command(&["--launch", "gpg-agent"]),
        )))),
    })
}
