//! A link that works, and its helper.

use std::path::Path;
use std::time::Duration;

use keybridge_proto::gate::KeyGrip;
use keybridge_proto::report::{KeyChanges, ProbeResult, Ready};
use keybridge_proto::ssh::KeySelection;
use keybridge_proto::{Lane, PerLane, printable};
use tokio::sync::Mutex;

use super::helper_log::HelperLog;
use super::{agents, export, remove};
use crate::bridge::{self, Bridge, BridgeEnd, LaneStats};
use crate::gnupg::Gnupg;
use crate::keyring::{self, Keyring, Lending};
use crate::keys::{self, Form, KeyFilter, PublicKeys};
use crate::output::Report;
use crate::target::{Installed, Remaining, Target};
use crate::{Error, Result};

/// A link that works, and the helper at its far end.
pub(crate) struct Link {
    pub(super) bridge: Bridge,
    pub(super) helper: Mutex<Remaining>,
    pub(super) log: HelperLog,
    pub(super) target: Target,
    /// The helper's program; none with a version 1 server.
    pub(super) installed: Option<Installed>,
}

impl Link {
    /// What the helper has set up.
    pub(crate) fn ready(&self) -> &Ready {
        self.bridge.ready()
    }

    /// What the keys that were sent have changed in the target.
    pub(crate) fn keys(&self) -> Option<KeyChanges> {
        self.ready().keys
    }

    /// Waits until the link has ended by itself, and tells why.
    pub(crate) fn ended(&self) -> impl Future<Output = BridgeEnd> + use<> {
        self.bridge.ended()
    }

    /// `SSH_AUTH_SOCK` of the host's user has this value now.
    pub(crate) fn set_auth_sock(&self, path: &Path) {
        self.bridge.set_auth_sock(path);
    }

    /// Whether it lends the keys of this lane's agent.
    pub(crate) fn lends(&self, lane: Lane) -> bool {
        match lane {
            Lane::Gpg => self.bridge.has_gpg_agent(),
            Lane::Ssh => self.bridge.has_ssh_agent(),
            Lane::Git => self.bridge.git_keys().is_some(),
        }
    }

    /// The agents whose keys the git lane signs with.
    pub(crate) fn agents_of_git(&self) -> Vec<Lane> {
        let Some(keys) = self.bridge.git_keys() else { return Vec::new() };
        let gpg = keys.openpgp.is_some().then_some(Lane::Gpg);
        gpg.into_iter().chain(keys.ssh.is_some().then_some(Lane::Ssh)).collect()
    }

    /// Whether an ssh-agent answers at a path, and not this bridge.
    pub(crate) async fn has_ssh_agent_at(&self, path: &Path) -> Option<bool> {
        match self.bridge.ssh_dialer() {
            Some(dialer) => Some(dialer.answers_at(path).await),
            None => None,
        }
    }

    /// These keys of the ssh-agent as it has them now. Those that it hasn't are an error.
    pub(crate) async fn find_ssh_keys(&self, keys: &KeySelection) -> Result<KeySelection> {
        // An agent that is away is searched again when a client connects.
        if let Some(dialer) = self.bridge.ssh_dialer()
            && let Ok((_, listed)) = dialer.find().await
        {
            agents::check_ssh_keys(keys, &listed)?;
            // Those who are connected don't compare the comments themselves.
            return Ok(keys.resolved(&listed.identities()));
        }
        Ok(keys.clone())
    }

    /// Lends these keys of the ssh-agent from now on.
    pub(crate) fn set_ssh_keys(&self, keys: KeySelection) {
        self.bridge.set_ssh_keys(keys);
    }

    /// Asks the helper whether the link lives; it ends soon if it doesn't.
    pub(crate) fn check_link(&self) {
        self.bridge.check_link();
    }

    /// How long a question and its answer take over the link; `None` if it doesn't answer in time.
    pub(crate) async fn round_trip(&self, limit: Duration) -> Option<Duration> {
        tokio::time::timeout(limit, self.bridge.round_trip()).await.ok().flatten()
    }

    /// The target is paused: its link isn't pinged.
    pub(crate) fn pause(&self) {
        self.bridge.pause();
    }

    /// The target runs again.
    pub(crate) fn resume(&self) {
        self.bridge.resume();
    }

    /// Lends other keys of the gpg lane from now on; for a person who runs `up` it `raises` the ceiling.
    /// Returns warnings for the user.
    pub(crate) async fn lend(&self, lending: Lending, raises: bool) -> Result<Vec<String>> {
        match self.bridge.keyring() {
            Some(keyring) => keyring.lend(lending, raises).await,
            None => Ok(Vec::new()),
        }
    }

    /// Reads the keys of the gpg lane again if they have changed, but starts no agent.
    pub(crate) async fn refresh_keys(&self) {
        if let Some(keyring) = self.bridge.keyring() {
            keyring.refresh().await;
        }
    }

    /// What is lent of the gpg lane's keys, if there is such a lane.
    pub(crate) fn lent_keys(&self) -> Option<keyring::Summary> {
        self.bridge.keyring().map(Keyring::summary)
    }

    /// A key of gpg-agent's as its user knows it, if it is lent.
    pub(crate) fn key_name(&self, key: KeyGrip) -> Option<String> {
        let of_git = || self.bridge.git_keys()?.openpgp.as_deref();
        self.bridge.keyring().or_else(of_git)?.name_of(key)
    }

    /// What the bridge has carried.
    pub(crate) fn stats(&self) -> PerLane<LaneStats> {
        self.bridge.stats()
    }

    /// Sends the public keys again, those of the settings or some of them. Gives back what they changed,
    /// and warnings.
    pub(crate) async fn sync(
        &self,
        gnupg: &Gnupg,
        named: Option<String>,
    ) -> Result<(KeyChanges, Vec<String>)> {
        // Only gpg in the target has a use for them.
        let keyring = self.bridge.keyring().filter(|_| self.lends(Lane::Gpg));
        let keys = match (named, keyring) {
            (Some(named), Some(keyring)) => {
                let Ok(filter) = named.parse::<KeyFilter>();
                let allowed = keyring.public_keys().await;
                keys::export_allowed(gnupg, &filter, &allowed, Form::Binary).await?
            }
            (None, Some(keyring)) => export(gnupg, keyring).await?.0,
            (Some(_) | None, None) => PublicKeys::default(),
        };
        let changes = self.bridge.sync(&keys).await?;
        Ok((changes, keys.warnings))
    }

    /// Checks the whole chain: the helper asks the agents through the sockets in the target. So `up` reports
    /// success only after an agent has answered. Describes what they answered. Where lanes weren't named, the
    /// ssh-agent need not answer if gpg-agent does.
    pub(super) async fn check_chain(
        &self,
        lanes_are_named: bool,
        report: &Report,
    ) -> Result<String> {
        if self.is_version_1() {
            return self.check_version_1().await;
        }
        let asked = {
            let sockets = &self.ready().sockets;
            Lane::AGENTS.iter().filter(|lane| sockets[**lane].is_some()).count()
        };
        let (mut answers, mut heard) = (Vec::new(), 0);
        for ProbeResult { lane, outcome } in self.bridge.answers().await? {
            heard += 1;
            match (lane, outcome) {
                (Lane::Gpg, Ok(version)) => {
                    answers.push(format!("gpg-agent {} answers", printable(&version)));
                }
                // Nothing is signed only to see whether that works.
                (Lane::Git, Ok(_)) => {}
                (Lane::Ssh, Ok(keys)) => answers.push(match keys.as_str() {
                    "0" => "ssh-agent without keys answers".to_owned(),
                    "1" => "ssh-agent with 1 key answers".to_owned(),
                    keys => format!("ssh-agent with {} keys answers", printable(keys)),
                }),
                (Lane::Ssh, Err(why)) if !lanes_are_named && !answers.is_empty() => {
                    report.warn(&format!("the ssh lane: {why}"));
                }
                (Lane::Gpg | Lane::Ssh | Lane::Git, Err(why)) => return Err(Error::failed(why)),
            }
        }
        if heard < asked {
            return Err(Error::failed("the helper didn't report whether the agents answer"));
        }
        Ok(answers.join(", "))
    }

    /// Waits until the helper has undone its changes and ended, but not for ever: it may hang. Gives back
    /// its exit code.
    pub(crate) async fn helper_ended(&self) -> Option<i32> {
        let mut helper = self.helper.lock().await;
        let ended = tokio::time::timeout(bridge::STOP_TIME, helper.wait()).await;
        ended.ok().and_then(Result::ok).flatten()
    }

    /// Removes the helper's program, if it was installed for this bridge.
    pub(crate) async fn remove_helper(&self) -> Result<()> {
        match &self.installed {
            Some(installed) if installed.is_new => remove(&self.target, installed).await,
            Some(_) | None => Ok(()),
        }
    }

    /// Whether a version 1 server is at the far end, which alone knows what it has done there.
    pub(crate) const fn is_version_1(&self) -> bool {
        self.installed.is_none()
    }

    /// Ends the link, and has everything undone in the target.
    pub(crate) async fn stop(&self) -> Result<()> {
        let stopped = self.bridge.stop().await;
        let status = self.helper_ended().await;
        stopped?;
        match status {
            // The exit code of a version 1 server means nothing to us.
            _ if self.is_version_1() => Ok(()),
            Some(0) => Ok(()),
            Some(_) | None => {
                Err(self.log.explain(Error::failed("the helper ended with an error")))
            }
        }
    }
}
