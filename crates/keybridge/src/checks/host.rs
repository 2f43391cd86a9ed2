//! The host: GnuPG, the two agents, keybridge's own folder, and the bridges of this user.

use std::path::Path;

use keybridge_proto::gate::AgentSocket;
use keybridge_proto::{Lane, printable};

use crate::checks::{Outcome, Problem};
use crate::doctor::{Fix, fix};
use crate::facts::Facts;
use crate::platform::{Privacy, ServiceState, System, find_program, ssh_agent_service};
use crate::setup::agents::{check_ssh_keys, describe};
use crate::shell_quote::quoted;
use crate::ssh_agent::{LimitedKeys, OpenSshVersion};
use crate::supervisor::BridgeState;
use crate::{Error, ErrorKind};

/// The first version with a restricted socket that keybridge can use.
const OLDEST: (u32, u32) = (2, 1);

/// gpg and gpgconf can be run, and are new enough.
pub(crate) fn gnupg(facts: &Facts) -> Option<Outcome> {
    Some(match (&facts.host.gpg, &facts.host.dirs) {
        (Err(error), _) | (Ok(_), Err(error)) => {
            let problem = Problem::from(error);
            let is_missing = error.kind == ErrorKind::ProgramMissing;
            Outcome::Broken(if is_missing { problem.fix(install()) } else { problem })
        }
        (Ok(version), Ok(dirs)) if is_old(version) => {
            let cause = format!("gpg {version} is too old: keybridge needs 2.1 or later");
            let hint = format!("its home is {}", dirs.home.display());
            Outcome::Broken(Problem::new(cause).kind(ErrorKind::NoAgent).fix(install()).hint(hint))
        }
        (Ok(version), Ok(dirs)) => {
            Outcome::Fine(format!("gpg {version}, home {}", dirs.home.display()))
        }
    })
}

fn is_old(version: &str) -> bool {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => (major, minor) < OLDEST,
        _ => false,
    }
}

/// The command of the first package manager that the host has.
fn install() -> Fix {
    let commands = [
        System::here().gnupg_command,
        ("dnf", "sudo dnf install -y gnupg2"),
        ("apk", "sudo apk add gnupg"),
        ("pacman", "sudo pacman -S --noconfirm gnupg"),
        ("zypper", "sudo zypper install -y gpg2"),
        ("brew", "brew install gnupg"),
    ];
    let has = |program: &str| find_program(program).is_some();
    let usable = commands.iter().find(|(program, _)| has(program)).unwrap_or(&commands[0]);
    Fix::new(usable.1)
}

/// gpg-agent runs, and answers.
pub(crate) fn gpg_agent(facts: &Facts) -> Option<Outcome> {
    let launch = gpgconf(facts, &["--launch", "gpg-agent"]);
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
                    None => gpgconf(facts, &["--kill", "gpg-agent"]),
                };
                problem.fix(Fix::new(format!("{kill}; {launch}")))
            })
        }
    })
}

/// The socket that targets get is the restricted one.
pub(crate) fn extra_socket(facts: &Facts) -> Option<Outcome> {
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
            gpgconf(facts, &["--kill", "gpg-agent"]),
            gpgconf(facts, &["--launch", "gpg-agent"]),
        )))),
    })
}

/// The command of GnuPG's that starts and ends gpg-agent.
fn gpgconf(facts: &Facts, words: &[&str]) -> String {
    fix::gnupg("gpgconf", &facts.host.gnupg, words)
}

/// Removes the setting from the file. One on the command line or in the environment isn't there.
fn without_setting(facts: &Facts, file: &Path) -> Fix {
    let remove = r#"sed -i.bak '/^ *socket *= *"main"/d'"#;
    Fix::new(facts.then_up(&format!("{remove} {}", fix::path(file))))
}

/// An ssh-agent answers, and has the keys that are to be lent.
pub(crate) fn ssh_agent(facts: &Facts) -> Option<Outcome> {
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
            let problem = no_ssh_agent(facts, error);
            // Without it there is still the gpg lane, unless it was asked for.
            let is_wanted =
                facts.settings.lanes_are_named() || facts.settings.names_agent(Lane::Ssh);
            if is_wanted { Outcome::Broken(problem) } else { Outcome::Warning(problem) }
        }
    })
}

/// The first OpenSSH whose agent takes binds while it is locked (CVE-2026-73281).
const BINDS_WHEN_LOCKED: OpenSshVersion = OpenSshVersion(10, 5);

/// Keys with destinations, in an agent that may take their use from a target for one on the host.
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

fn no_ssh_agent(facts: &Facts, error: &Error) -> Problem {
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
    let reload = gpgconf(facts, &["--reload", "gpg-agent"]);
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

/// keybridge's own folder belongs to the user alone.
pub(crate) fn state_folder(facts: &Facts) -> Option<Outcome> {
    let state = &facts.host.state;
    let path = state.path.display();
    Some(match state.privacy {
        None => Outcome::Fine(format!("{path} doesn't exist yet")),
        Some(Privacy::Private) => Outcome::Fine(path.to_string()),
        Some(Privacy::TooOpen) => Outcome::Broken(
            Problem::new(format!("other users can enter {path}"))
                .fix(Fix::safe(format!("chmod 700 {}", fix::path(&state.path)))),
        ),
        Some(Privacy::NotOurs) => Outcome::Broken(
            Problem::new(format!("{path} isn't a folder of your own"))
                .hint("remove it, or set KEYBRIDGE_STATE to another folder"),
        ),
    })
}

/// No other bridge was killed, and if no target was named, each of them works.
pub(crate) fn bridges(facts: &Facts) -> Option<Outcome> {
    let is_meant = |address: &str| facts.target_name().as_deref() == Some(address);
    // The bridge of the target has its own check.
    let mut killed = facts.host.state.killed.iter().filter(|one| !is_meant(&one.to_string()));
    if let Some(address) = killed.next() {
        let problem = Problem::new(format!("the bridge to {address} was killed"));
        // It forgets the settings, which may be narrow.
        let undo = Fix::safe(format!("keybridge down {}", address.as_word()));
        let undo = Fix { lends: true, ..undo };
        return Some(Outcome::Warning(problem.fix(undo)));
    }
    if facts.target.is_some() {
        return None;
    }
    let unwell = facts.bridges.iter().find(|bridge| bridge.state != BridgeState::Ready);
    if let Some(bridge) = unwell {
        let target = printable(&bridge.target).to_string();
        let why = bridge.reason.as_deref().map(|why| format!(": {}", printable(why)));
        let state = format!("{target} is {}{}", bridge.state.word(), why.unwrap_or_default());
        let look = Fix::new(format!("keybridge doctor {}", quoted(&target)));
        return Some(Outcome::Warning(Problem::new(state).fix(look)));
    }
    Some(Outcome::Fine(match facts.bridges.len() {
        0 => "nothing is bridged; `keybridge doctor TARGET` checks a target too".to_owned(),
        1 => "1 is up".to_owned(),
        count => format!("{count} are up"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_versions_before_2_1_are_too_old() {
        for (version, old) in [
            ("1.4.23", true),
            ("2.0.30", true),
            ("2.1.18", false),
            ("2.5.3-beta", false),
            ("", false),
        ] {
            assert_eq!(is_old(version), old, "{version}");
        }
    }

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
