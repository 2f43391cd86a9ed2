//! An ssh-agent of the host answers, and has the keys that are to be lent.

use keybridge_proto::Lane;

use crate::checks::{Outcome, Problem};
use crate::doctor::{Fix, fix};
use crate::facts::Facts;
use crate::platform::{ServiceState, ssh_agent_service};
use crate::setup::agents::{check_ssh_keys, describe};
use crate::ssh_agent::{LimitedKeys, OpenSshVersion};
use crate::{Error, ErrorKind};

pub(crate) fn examine(facts: &Facts) -> Option<Outcome> {
    let selection = &facts.settings.policy.ssh_keys;
    Some(match &facts.host.ssh {
        Ok((found, keys)) => match check_ssh_keys(selection, keys) {
            Ok(()) => match facts.host.limited_keys.and_then(unsafe_when_locked) {
                Some(problem) => Outcome::Warning(problem),
                None => Outcome::Fine(format!("{found}, {}", describe(selection, keys))),
            },
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

/// The first OpenSSH whose agent takes binds while it is locked (CVE-2026-73281).
const BINDS_WHEN_LOCKED: OpenSshVersion = OpenSshVersion(10, 5);

/// Keys with destinations, in an agent that may take their use from a target for one at home.
fn unsafe_when_locked(keys: LimitedKeys) -> Option<Problem> {
    let version = match keys.ssh {
        Some(version) if version >= BINDS_WHEN_LOCKED => return None,
        Some(version) => format!("`ssh -V` says OpenSSH {version}"),
        None => "`ssh -V` doesn't say which OpenSSH this is".to_owned(),
    };
    let cause = format!(
        "{} of the ssh-agent's keys are limited to destinations, but an agent before OpenSSH \
         {BINDS_WHEN_LOCKED} that is locked forgets that (CVE-2026-73281); {version}",
        keys.count
    );
    Some(Problem::new(cause).hint("update OpenSSH, or don't lock this agent (ssh-add -x)"))
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
    let dirs = facts.host.dirs.as_ref().ok();
    let Some(dirs) = dirs.filter(|_| !facts.settings.names_agent(Lane::Ssh)) else {
        return Problem::from(error);
    };
    let file = fix::path(&dirs.home.join("gpg-agent.conf"));
    let reload = fix::gnupg("gpgconf", &facts.host.gnupg, &["--reload", "gpg-agent"]);
    let enable = format!("echo enable-ssh-support >>{file} && {reload}");
    // A bridge that is up gets a lane only by its name.
    let lacks_lane = facts.status().is_some_and(|status| status.lanes.ssh.is_none());
    let command = if lacks_lane {
        format!("{enable} && {}", facts.up(&["--lanes", &facts.lanes_and(Lane::Ssh)]))
    } else {
        facts.then_up(&enable)
    };
    Problem::new(&error.message)
        .kind(ErrorKind::NoAgent)
        .fix(Fix::new(command))
        .hint("that has gpg-agent do it; or start one in this shell: eval \"$(ssh-agent)\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_with_destinations_are_warned_of_unless_openssh_is_known_to_keep_them() {
        let warning = |ssh| unsafe_when_locked(LimitedKeys { count: 2, ssh });
        for (ssh, says) in [
            (Some(OpenSshVersion(9, 2)), "says OpenSSH 9.2"),
            (Some(OpenSshVersion(10, 4)), "says OpenSSH 10.4"),
            (None, "doesn't say which"),
        ] {
            let problem = warning(ssh).unwrap();
            assert!(problem.cause.starts_with("2 of ") && problem.cause.contains(says));
        }
        for version in [OpenSshVersion(10, 5), OpenSshVersion(11, 0)] {
            assert_eq!(warning(Some(version)), None);
        }
    }
}
