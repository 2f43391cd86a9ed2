//! Finds the agents of the host that a target gets, and their keys.

use std::rc::Rc;

use keybridge_proto::ssh::{Fingerprint, KeySelection};
use keybridge_proto::{Lane, PerLane, printable};

use crate::agent::{AgentDialer, GpgAgent};
use crate::checks::Check;
use crate::config::Settings;
use crate::git::GitKeys;
use crate::gnupg::Gnupg;
use crate::keyring::{Keyring, SharedCeiling};
use crate::output::Report;
use crate::ssh_agent::{KeyList, SshDialer, SshPlaces};
use crate::{Error, Result};

/// The agents that were found, by lane.
pub(super) struct Agents {
    pub(super) gpg: Option<GpgAgent>,
    pub(super) ssh: Option<SshDialer>,
    /// What the git lane signs with.
    pub(super) git: Option<GitKeys>,
    /// The keys that the ssh-agent has.
    ssh_keys: Option<KeyList>,
}

impl Agents {
    /// Finds the agents of these lanes. A missing agent is an error if its lane was named, if a
    /// person waits and its path was named, or if no other is found. Where nobody waits (`asks` is
    /// false), keys that can't be listed aren't lent, and `status` says why, and the ceiling is never set.
    pub(super) async fn find(
        wanted: &[Lane],
        settings: &Settings,
        gnupg: &Gnupg,
        ceiling: &SharedCeiling,
        asks: bool,
        report: &Report,
    ) -> Result<Self> {
        let mut agents = Self { gpg: None, ssh: None, git: None, ssh_keys: None };
        let mut first_error = None;
        let mut gpg = None;
        for lane in wanted {
            let found = match lane {
                Lane::Gpg => find_gpg(settings, gnupg, report).await.map(|found| gpg = Some(found)),
                Lane::Ssh => agents.find_ssh(settings, gnupg, report).await,
                // It needs what the others have found.
                Lane::Git => Ok(()),
            };
            match found {
                Ok(()) => {}
                Err(error) if settings.lanes_are_named() => return Err(error),
                // A path that was named is meant; a bridge that is up can still wait for it.
                Err(error) if asks && settings.names_agent(*lane) => return Err(error),
                Err(error) => {
                    report.warn(&format!("without the {lane} lane: {error}"));
                    first_error.get_or_insert(error);
                }
            }
        }
        if let Some(dialer) = gpg {
            let keyring = choose_keys(settings, gnupg, ceiling, asks, report).await?;
            agents.gpg = Some(GpgAgent::new(dialer, keyring));
        }
        if wanted.contains(&Lane::Git) {
            match agents.find_for_git(settings, gnupg, ceiling, asks, report).await {
                Ok(keys) => agents.git = Some(keys),
                Err(error) if settings.lanes_are_named() => return Err(error),
                Err(error) => report.warn(&format!("without the git lane: {error}")),
            }
        }
        match first_error {
            Some(error) if agents.lanes().is_empty() => Err(error),
            Some(_) | None => Ok(agents),
        }
    }

    /// Checks that the ssh-agent has the keys that the settings name. Only for a person who waits: keys
    /// may come and go while the bridge is up.
    pub(super) fn check_ssh_keys(&self, settings: &Settings, report: &Report) -> Result<()> {
        let (selection, Some(keys)) = (&settings.policy.ssh_keys, &self.ssh_keys) else {
            return Ok(());
        };
        check_ssh_keys(selection, keys)?;
        if !selection.is_all() && keys.identities().is_empty() {
            report.warn(
                "your ssh-agent has no keys now; those that ssh-keys names are lent once it has them",
            );
        }
        if selection.has_comments() && settings.policy.allow_ssh_changes {
            report.warn(
                "the target can't add keys: ssh-keys selects by comment, which the target would choose",
            );
        }
        Ok(())
    }

    /// The lanes whose agents were found.
    pub(super) fn lanes(&self) -> Vec<Lane> {
        let (gpg, ssh, git) = (self.gpg.is_some(), self.ssh.is_some(), self.git.is_some());
        let found = PerLane { gpg, ssh, git };
        found.into_iter().filter_map(|(lane, is_found)| is_found.then_some(lane)).collect()
    }

    /// Lends nothing of a lane.
    pub(super) fn leave_out(&mut self, lane: Lane) {
        match lane {
            Lane::Gpg => self.gpg = None,
            Lane::Ssh => self.ssh = None,
            Lane::Git => self.git = None,
        }
    }

    /// The keys that the git lane signs with: those of the other lanes, and without them those of the agents
    /// that are there. An ssh-agent that is away is looked for at each signature, where gpg signs meanwhile, or
    /// where nobody waits.
    async fn find_for_git(
        &self,
        settings: &Settings,
        gnupg: &Gnupg,
        ceiling: &SharedCeiling,
        asks: bool,
        report: &Report,
    ) -> Result<GitKeys> {
        let lends = settings.agents_for_git();
        let mut error = None;
        let openpgp = match &self.gpg {
            Some(agent) => Some(Rc::clone(&agent.keyring)),
            None if lends.contains(&Lane::Gpg) => {
                match choose_keys(settings, gnupg, ceiling, asks, report).await {
                    Ok(keyring) => Some(Rc::new(keyring)),
                    Err(failed) if settings.options.lend.is_some() => return Err(failed),
                    Err(failed) => {
                        error = Some(failed);
                        None
                    }
                }
            }
            None => None,
        };
        let ssh = match &self.ssh {
            Some(dialer) => Some(dialer.clone()),
            None if lends.contains(&Lane::Ssh) => {
                let dialer = ssh_dialer(settings, gnupg);
                match dialer.find().await {
                    Ok(_) => Some(dialer),
                    Err(away) if openpgp.is_some() || !asks => {
                        // Its own lane has said so.
                        if !settings.lanes.contains(&Lane::Ssh) {
                            report.warn(&format!(
                                "no ssh key signs for git until there is an agent: {away}"
                            ));
                        }
                        Some(dialer)
                    }
                    Err(away) => {
                        error.get_or_insert(away);
                        None
                    }
                }
            }
            None => None,
        };
        match (openpgp, ssh, error) {
            (None, None, Some(error)) => Err(error),
            (None, None, None) => Err(Error::failed("there is no key that git could sign with")),
            (openpgp, ssh, _) => Ok(GitKeys { openpgp, ssh }),
        }
    }

    async fn find_ssh(
        &mut self,
        settings: &Settings,
        gnupg: &Gnupg,
        report: &Report,
    ) -> Result<()> {
        let dialer = ssh_dialer(settings, gnupg);
        let selection = &settings.policy.ssh_keys;
        let (_, keys) = step(report, "your ssh-agent", settings, dialer.find(), |(found, keys)| {
            format!("{found}, {}", describe(selection, keys))
        })
        .await?;
        self.ssh = Some(dialer);
        self.ssh_keys = Some(keys);
        Ok(())
    }
}

/// Dials the ssh-agent that the settings name.
pub(crate) fn ssh_dialer(settings: &Settings, gnupg: &Gnupg) -> SshDialer {
    let mut places = SshPlaces::new(Some(gnupg.clone()));
    places.setting = settings.options.ssh_socket.clone().map(Into::into);
    places.auth_sock = Some(settings.ssh_auth_sock.clone());
    let dialer = SshDialer::new(places);
    dialer.set_auth_sock(Some(settings.ssh_auth_sock.clone()));
    dialer
}

async fn find_gpg(settings: &Settings, gnupg: &Gnupg, report: &Report) -> Result<AgentDialer> {
    let find = AgentDialer::find(gnupg.clone(), settings.policy.socket);
    let describe = |dialer: &AgentDialer| dialer.path().display().to_string();
    step(report, "your gpg-agent", settings, find, describe).await
}

/// The keys of gpg-agent. A choice that matches none is an error even if there is another lane: the
/// user meant other keys. Where nobody waits, keys that can't be listed are lent later.
async fn choose_keys(
    settings: &Settings,
    gnupg: &Gnupg,
    ceiling: &SharedCeiling,
    asks: bool,
    report: &Report,
) -> Result<Keyring> {
    let open = async {
        let (gnupg, lending) = (gnupg.clone(), settings.lending.clone());
        let (keyring, choice) = if asks {
            Keyring::open(gnupg, lending, ceiling).await?
        } else {
            Keyring::open_below(gnupg, lending, ceiling).await?
        };
        let shown = choice.describe();
        Ok(((keyring, choice), shown))
    };
    let (keyring, choice) = match report.step("keys to lend", open).await {
        Ok(chosen) => chosen,
        Err(error) if !asks => {
            let lending = settings.lending.clone();
            return Ok(Keyring::unlisted(gnupg.clone(), lending, ceiling, &error));
        }
        Err(error) => return Err(error.at_check(Check::SecretKeys)),
    };
    for warning in choice.warnings() {
        report.warn(&warning);
    }
    Ok(keyring)
}

/// How many keys an agent has, and how many of them are lent.
pub(crate) fn describe(selection: &KeySelection, keys: &KeyList) -> String {
    let listed = keys.identities();
    let resolved = selection.resolved(&listed);
    let lent = listed.iter().filter(|one| resolved.lends(one.key)).count();
    match listed.len() {
        0 => "no keys".to_owned(),
        count if !selection.is_all() => format!("{lent} of {count} keys"),
        1 => "1 key".to_owned(),
        count => format!("{count} keys"),
    }
}

/// Checks that each word of a selection matches a key of the agent. An agent without keys proves
/// nothing: it may be locked, or get its keys later.
pub(crate) fn check_ssh_keys(selection: &KeySelection, keys: &KeyList) -> Result<()> {
    let listed = keys.identities();
    let unmatched = selection.unmatched(&listed);
    let Some(word) = unmatched.first().filter(|_| !listed.is_empty()) else { return Ok(()) };
    let message = format!("ssh-keys: your ssh-agent has no key {}", printable(word));
    let shown = listed.iter().map(|identity| {
        let fingerprint = Fingerprint::of(identity.key);
        let name = fingerprint.map_or_else(|| "(unreadable)".to_owned(), |key| key.to_string());
        format!("{name} {}", printable(identity.comment))
    });
    Err(Error::failed(message).listing(shown.collect(), "ssh-add -l").at_check(Check::SshAgent))
}

/// Shows a step and what it found. A step that may fail is shown only if it succeeds.
pub(super) async fn step<T>(
    report: &Report,
    doing: &str,
    settings: &Settings,
    find: impl Future<Output = Result<T>>,
    describe: impl FnOnce(&T) -> String,
) -> Result<T> {
    let told = |found: T| {
        let text = describe(&found);
        (found, text)
    };
    if settings.lanes_are_named() {
        return report.step(doing, async { find.await.map(told) }).await;
    }
    let found = find.await?;
    report.step(doing, async { Ok(told(found)) }).await
}
