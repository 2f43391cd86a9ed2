//! The agents of this machine that a target gets.

use keybridge_proto::ssh::{Fingerprint, KeySelection};
use keybridge_proto::{Lane, printable};

use crate::agent::{AgentDialer, GpgAgent, KeyList, SshDialer, SshPlaces};
use crate::config::Settings;
use crate::gnupg::Gnupg;
use crate::keyring::Keyring;
use crate::report::Report;
use crate::{Error, Result};

/// The agents that were found, by lane.
pub(super) struct Agents {
    pub(super) gpg: Option<GpgAgent>,
    pub(super) ssh: Option<SshDialer>,
    /// The keys that the ssh-agent has.
    ssh_keys: Option<KeyList>,
}

impl Agents {
    /// Finds the agents of the lanes that are wanted. One that isn't there is an error if it was asked
    /// for by name, or if there is no other. Where nobody waits for it (`asks` is false), keys that
    /// can't be listed are none, and the bridge says why.
    pub(super) async fn find(
        wanted: &[Lane],
        settings: &Settings,
        gnupg: &Gnupg,
        asks: bool,
        report: &Report,
    ) -> Result<Self> {
        let mut agents = Self { gpg: None, ssh: None, ssh_keys: None };
        let mut first_error = None;
        let mut gpg = None;
        for lane in wanted {
            let found = match lane {
                Lane::Gpg => find_gpg(settings, gnupg, report).await.map(|found| gpg = Some(found)),
                Lane::Ssh => agents.find_ssh(settings, gnupg, report).await,
            };
            match found {
                Ok(()) => {}
                Err(error) if settings.lanes_are_named => return Err(error),
                Err(error) => {
                    report.warn(&format!("without the {lane} lane: {error}"));
                    first_error.get_or_insert(error);
                }
            }
        }
        if let Some(dialer) = gpg {
            let keyring = match choose_keys(settings, gnupg, report).await {
                Err(error) if !asks => {
                    Keyring::unlisted(gnupg.clone(), settings.lending.clone(), &error)
                }
                keyring => keyring?,
            };
            agents.gpg = Some(GpgAgent::new(dialer, keyring));
        }
        match first_error {
            Some(error) if agents.lanes().is_empty() => Err(error),
            Some(_) | None => Ok(agents),
        }
    }

    /// Whether the keys that are to be lent are there, for a person who waits for it: they may go and
    /// come while a bridge lives.
    pub(super) fn check_ssh_keys(&self, settings: &Settings, report: &Report) -> Result<()> {
        let (selection, Some(keys)) = (&settings.policy.ssh_keys, &self.ssh_keys) else {
            return Ok(());
        };
        check_ssh_keys(selection, keys)?;
        if !selection.is_all() && keys.identities().is_empty() {
            report.warn("your ssh-agent lists no keys; those of ssh-keys are lent when it does");
        }
        if selection.has_comments() && settings.policy.allow_ssh_changes {
            report.warn(
                "the target can't add keys: ssh-keys names comments, and it would choose them",
            );
        }
        Ok(())
    }

    /// The lanes that can be lent.
    pub(super) fn lanes(&self) -> Vec<Lane> {
        let gpg = self.gpg.is_some().then_some(Lane::Gpg);
        let ssh = self.ssh.is_some().then_some(Lane::Ssh);
        gpg.into_iter().chain(ssh).collect()
    }

    async fn find_ssh(
        &mut self,
        settings: &Settings,
        gnupg: &Gnupg,
        report: &Report,
    ) -> Result<()> {
        let mut places = SshPlaces::new(Some(gnupg.clone()));
        places.setting = settings.ssh_socket.clone();
        places.auth_sock = Some(settings.ssh_auth_sock.clone());
        let dialer = SshDialer::new(places);
        dialer.set_auth_sock(Some(settings.ssh_auth_sock.clone()));
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

async fn find_gpg(settings: &Settings, gnupg: &Gnupg, report: &Report) -> Result<AgentDialer> {
    let find = AgentDialer::find(gnupg.clone(), settings.policy.socket);
    let describe = |dialer: &AgentDialer| dialer.path().display().to_string();
    step(report, "your gpg-agent", settings, find, describe).await
}

/// The keys of an agent that is there. A choice that names none is an error, whatever other lanes
/// there are: the user means something else.
async fn choose_keys(settings: &Settings, gnupg: &Gnupg, report: &Report) -> Result<Keyring> {
    let open = async {
        let (keyring, choice) = Keyring::open(gnupg.clone(), settings.lending.clone()).await?;
        let shown = choice.describe();
        Ok(((keyring, choice), shown))
    };
    let (keyring, choice) = report.step("keys to lend", open).await?;
    for warning in &choice.warnings {
        report.warn(warning);
    }
    Ok(keyring)
}

/// How many keys an agent has, and how many of them are lent.
fn describe(selection: &KeySelection, keys: &KeyList) -> String {
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

/// Whether each word of a selection means a key that the agent has. An agent without keys is told
/// nothing by: it may be locked, or be given its keys when they are needed.
pub(super) fn check_ssh_keys(selection: &KeySelection, keys: &KeyList) -> Result<()> {
    let listed = keys.identities();
    let unmatched = selection.unmatched(&listed);
    let Some(word) = unmatched.first().filter(|_| !listed.is_empty()) else { return Ok(()) };
    let message = format!("ssh-keys: your ssh-agent has no key {}", printable(word));
    let shown = listed.iter().map(|identity| {
        let fingerprint = Fingerprint::of(identity.key);
        let name = fingerprint.map_or_else(|| "(unreadable)".to_owned(), |key| key.to_string());
        format!("{name} {}", printable(identity.comment))
    });
    Err(Error::failed(message).listing(shown.collect(), "ssh-add -l"))
}

/// A step that shows what it found. Where it may fail without harm, it is shown only if it doesn't.
async fn step<T>(
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
    if settings.lanes_are_named {
        return report.step(doing, async { find.await.map(told) }).await;
    }
    let found = find.await?;
    report.step(doing, async { Ok(told(found)) }).await
}
