//! An ssh-agent of this machine answers, and has the keys that are to be lent.

use keybridge_proto::Lane;

use super::{Check, Outcome, Part, Problem};
use crate::doctor::{Facts, Fix, fix};
use crate::platform::{ServiceState, ssh_agent_service};
use crate::setup::agents::{check_ssh_keys, describe};
use crate::{Error, ErrorKind};

pub(crate) static CHECK: Check = Check {
    name: "ssh-agent",
    title: "the ssh-agent on this machine",
    part: Part::Home,
    lane: Some(Lane::Ssh),
    needs: &[],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    let selection = &facts.settings.policy.ssh_keys;
    Some(match &facts.home.ssh {
        Ok((found, keys)) => match check_ssh_keys(selection, keys) {
            Ok(()) => Outcome::Fine(format!("{found}, {}", describe(selection, keys))),
            Err(error) => Outcome::Broken(Problem::from(&error)),
        },
        Err(error) => {
            let problem = missing(facts, error);
            // Without it there is still the gpg lane, unless it was asked for.
            let is_wanted =
                facts.settings.lanes_are_named() || facts.settings.names_agent(Lane::Ssh);
            if is_wanted { Outcome::Broken(problem) } else { Outcome::Warning(problem) }
        }
    })
}

fn missing(facts: &Facts, error: &Error) -> Problem {
    if let Some(state) = ssh_agent_service()
        && !facts.settings.names_agent(Lane::Ssh)
    {
        let start = "Start-Service ssh-agent";
        let (cause, command) = match state {
            ServiceState::Enabled => (error.message.clone(), start.to_owned()),
            ServiceState::Disabled => (
                format!("{}; the service ssh-agent is disabled", error.message),
                format!("Set-Service ssh-agent -StartupType Automatic; {start}"),
            ),
        };
        return Problem::new(cause)
            .kind(ErrorKind::NoAgent)
            .fix(Fix::new(command))
            .hint("type that in PowerShell as an administrator; or start Pageant");
    }
    let dirs = facts.home.dirs.as_ref().ok();
    let Some(dirs) = dirs.filter(|_| !facts.settings.names_agent(Lane::Ssh)) else {
        return Problem::from(error);
    };
    let file = fix::path(&dirs.home.join("gpg-agent.conf"));
    let reload = fix::gnupg("gpgconf", &facts.home.gnupg, &["--reload", "gpg-agent"]);
    let enable = format!("echo enable-ssh-support >>{file} && {reload}");
    // A bridge that is up gets a lane only by its name.
    let lacks_lane = facts.status().is_some_and(|status| status.lanes.ssh.is_none());
    let command = if lacks_lane {
        format!("{enable} && {}", facts.up(&["--lanes", "gpg,ssh"]))
    } else {
        facts.then_up(&enable)
    };
    Problem::new(&error.message)
        .kind(ErrorKind::NoAgent)
        .fix(Fix::new(command))
        .hint("that has gpg-agent do it; or start one in this shell: eval \"$(ssh-agent)\"")
}
