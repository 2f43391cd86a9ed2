//! A link that works, and its helper.

use std::path::Path;
use std::time::Duration;

use keybridge_proto::PerLane;
use keybridge_proto::gate::Caller;
use keybridge_proto::report::{KeyChanges, Ready};
use keybridge_proto::ssh::KeySelection;
use tokio::sync::Mutex;

use super::helper_log::HelperLog;
use super::{agents, export, remove};
use crate::bridge::{self, Bridge, BridgeEnd, LaneStats, LinkPath};
use crate::gnupg::Gnupg;
use crate::keyring::{self, Keyring, Lending};
use crate::keys::{self, Form, KeyFilter, PublicKeys};
use crate::target::{Installed, Remaining, Target};
use crate::{Error, Result};

/// A bridge that works, and the helper at its far end.
pub struct LiveBridge {
    pub(super) bridge: Bridge,
    pub(super) helper: Mutex<Remaining>,
    pub(super) log: HelperLog,
    pub(super) target: Target,
    /// The helper's program; none with a version 1 server.
    pub(super) installed: Option<Installed>,
}

impl LiveBridge {
    /// What the helper has set up.
    pub fn ready(&self) -> &Ready {
        self.bridge.ready()
    }

    /// What the keys that were sent have changed in the target.
    pub fn keys(&self) -> Option<KeyChanges> {
        self.ready().keys
    }

    /// Waits until the link has ended by itself, and tells why.
    pub fn ended(&self) -> impl Future<Output = BridgeEnd> + use<> {
        self.bridge.ended()
    }

    /// `SSH_AUTH_SOCK` of this machine's user has this value now.
    pub fn set_auth_sock(&self, path: &Path) {
        self.bridge.set_auth_sock(path);
    }

    /// Lends these keys of the ssh-agent from now on, if it has them.
    pub async fn set_ssh_keys(&self, keys: KeySelection) -> Result<()> {
        // An agent that is away is searched again when a client connects.
        if let Some(dialer) = self.bridge.ssh_dialer()
            && let Ok((_, listed)) = dialer.find().await
        {
            agents::check_ssh_keys(&keys, &listed)?;
        }
        self.bridge.set_ssh_keys(keys);
        Ok(())
    }

    /// Asks the helper whether the link lives; it ends soon if it doesn't.
    pub fn check_link(&self) {
        self.bridge.check_link();
    }

    /// How long a question and its answer take over the link; `None` if it doesn't answer in time.
    pub async fn round_trip(&self, limit: Duration) -> Option<Duration> {
        tokio::time::timeout(limit, self.bridge.round_trip()).await.ok().flatten()
    }

    /// The target is paused: its link isn't pinged.
    pub fn pause(&self) {
        self.bridge.pause();
    }

    /// The target runs again.
    pub fn resume(&self) {
        self.bridge.resume();
    }

    /// Which way the bytes take now; none if there is no choice.
    pub fn path(&self) -> Option<LinkPath> {
        let has_choice = self.target.is_container() || self.target.is_local();
        has_choice.then(|| self.bridge.path())
    }

    /// Lends other keys of the gpg lane from now on. Returns warnings for the user.
    pub async fn lend(&self, lending: Lending) -> Result<Vec<String>> {
        match self.bridge.keyring() {
            Some(keyring) => keyring.lend(lending).await,
            None => Ok(Vec::new()),
        }
    }

    /// Lends what was lent before, of both agents, also where it isn't there any more.
    pub async fn lend_again(&self, lending: Lending, ssh_keys: KeySelection) {
        self.bridge.set_ssh_keys(ssh_keys);
        if let Some(keyring) = self.bridge.keyring() {
            keyring.lend_again(lending).await;
        }
    }

    /// What is lent of the gpg lane's keys, if there is such a lane.
    pub fn lent_keys(&self) -> Option<keyring::Summary> {
        self.bridge.keyring().map(Keyring::summary)
    }

    /// What the bridge has carried.
    pub fn stats(&self) -> PerLane<LaneStats> {
        self.bridge.stats()
    }

    /// Who the connected clients are; see [`Bridge::callers`].
    pub fn callers(&self, limit: usize) -> PerLane<Vec<Caller>> {
        self.bridge.callers(limit)
    }

    /// Sends the public keys again, those of the settings or some of them. Gives back what they changed,
    /// and warnings.
    pub async fn sync(
        &self,
        gnupg: &Gnupg,
        named: Option<String>,
    ) -> Result<(KeyChanges, Vec<String>)> {
        let keys = match (named, self.bridge.keyring()) {
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

    /// Waits until the helper has undone its changes and ended, but not for ever: it may hang. Gives back
    /// its exit code.
    pub async fn helper_ended(&self) -> Option<i32> {
        let mut helper = self.helper.lock().await;
        let ended = tokio::time::timeout(bridge::STOP_TIME, helper.wait()).await;
        ended.ok().and_then(Result::ok).flatten()
    }

    /// Removes the helper's program, if it was installed for this bridge.
    pub async fn remove_helper(&self) -> Result<()> {
        match &self.installed {
            Some(installed) if installed.is_new => remove(&self.target, installed).await,
            Some(_) | None => Ok(()),
        }
    }

    /// Ends the bridge, and has everything undone in the target.
    pub async fn stop(&self) -> Result<()> {
        let stopped = self.bridge.stop().await;
        let status = self.helper_ended().await;
        stopped?;
        match status {
            // The exit code of a version 1 server means nothing to us.
            _ if self.installed.is_none() => Ok(()),
            Some(0) => Ok(()),
            Some(_) | None => {
                Err(self.log.explain(Error::failed("the helper ended with an error")))
            }
        }
    }
}
