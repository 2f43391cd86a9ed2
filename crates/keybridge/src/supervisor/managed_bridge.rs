//! How one bridge is: told by its life, read by those who ask.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::SystemTime;

use keybridge_proto::Lane;
use keybridge_proto::report::{KeyChanges, Ready};
use keybridge_proto::ssh::KeySelection;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use super::life::ATTEMPT_TIME;
use super::status::{BridgeState, BridgeStatus, LaneStatus, Lanes, utc};
use crate::bridge::Stats;
use crate::config::{self, Settings};
use crate::gnupg::Gnupg;
use crate::keyring::{Keyring, Lending};
use crate::setup::LiveBridge;
use crate::{Error, Result};

/// One bridge, over all of its links. Shared by its life and by whoever asks about it.
pub(super) struct ManagedBridge {
    target: String,
    since: SystemTime,
    settings: RefCell<Settings>,
    now: RefCell<Now>,
    /// What the helper said last about itself.
    ready: RefCell<Option<Ready>>,
    /// What earlier links have carried.
    carried: Cell<Stats>,
    links: Cell<u32>,
    /// How many times a link was made, or could not be.
    attempts: watch::Sender<u64>,
    stopping: watch::Sender<bool>,
    /// Told to a bridge that waits before it tries again.
    hurry: Notify,
    /// Told when the settings want another link.
    relink: Notify,
}

/// Where the bridge stands, with what belongs to that.
enum Now {
    Starting,
    Ready(Rc<LiveBridge>),
    /// The target is paused, and its link with it.
    Paused(Rc<LiveBridge>),
    Waiting(String),
    /// The last attempt failed; there will be another one.
    Failed(Error),
}

impl ManagedBridge {
    pub(super) fn new(target: String, settings: Settings) -> Self {
        Self {
            target,
            since: SystemTime::now(),
            settings: RefCell::new(settings),
            now: RefCell::new(Now::Starting),
            ready: RefCell::default(),
            carried: Cell::default(),
            links: Cell::new(0),
            attempts: watch::channel(0).0,
            stopping: watch::channel(false).0,
            hurry: Notify::new(),
            relink: Notify::new(),
        }
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings.borrow().clone()
    }

    /// Whether a link that was made with these settings has those of now. `SSH_AUTH_SOCK` is set on
    /// every link anew.
    pub(super) fn are_current(&self, used: &Settings) -> bool {
        let now = self.settings.borrow();
        Settings { ssh_auth_sock: now.ssh_auth_sock.clone(), ..used.clone() } == *now
    }

    /// Has the link made again.
    pub(super) fn wants_another_link(&self) {
        self.relink.notify_one();
    }

    /// A link works.
    pub(super) fn linked(&self, live: &Rc<LiveBridge>) {
        self.links.set(self.links.get().saturating_add(1));
        self.ready.replace(Some(live.ready().clone()));
        live.set_auth_sock(&self.settings.borrow().ssh_auth_sock);
        *self.now.borrow_mut() = Now::Ready(Rc::clone(live));
        self.attempted();
    }

    /// Whether there ever was a link.
    pub(super) fn was_linked(&self) -> bool {
        self.links.get() > 0
    }

    /// The target is paused.
    pub(super) fn paused(&self) {
        if let Some(live) = self.live() {
            *self.now.borrow_mut() = Now::Paused(live);
        }
    }

    /// The target goes on.
    pub(super) fn resumed(&self) {
        if let Some(live) = self.live() {
            *self.now.borrow_mut() = Now::Ready(live);
        }
    }

    /// There is no link, for a reason that is expected to go away.
    pub(super) fn waits(&self, reason: impl Into<String>) {
        self.unlinked();
        *self.now.borrow_mut() = Now::Waiting(reason.into());
    }

    /// There is no link, and an attempt to make one has failed.
    pub(super) fn failed(&self, error: Error) {
        self.unlinked();
        *self.now.borrow_mut() = Now::Failed(error);
        self.attempted();
    }

    /// Keeps the count of a link that is no more.
    fn unlinked(&self) {
        if let Some(live) = self.live() {
            self.carried.set(self.carried.get() + live.stats().closed());
        }
    }

    fn attempted(&self) {
        self.attempts.send_modify(|attempts| *attempts += 1);
    }

    /// The link, if there is one.
    pub(super) fn live(&self) -> Option<Rc<LiveBridge>> {
        match &*self.now.borrow() {
            Now::Ready(live) | Now::Paused(live) => Some(Rc::clone(live)),
            Now::Starting | Now::Waiting(_) | Now::Failed(_) => None,
        }
    }

    pub(super) fn status(&self) -> BridgeStatus {
        let now = self.now.borrow();
        let mut carried = self.carried.get();
        if let Now::Ready(live) | Now::Paused(live) = &*now {
            carried = carried + live.stats();
        }
        let ready = self.ready.borrow();
        let lane = |lane, socket: fn(&Ready) -> Option<&String>| {
            let socket = ready.as_ref().and_then(socket)?;
            Some(LaneStatus::new(socket, carried.lane(lane)))
        };
        let summary = self.live().and_then(|live| live.lent_keys());
        let gpg = lane(Lane::Gpg, |ready| ready.gpg_socket.as_ref());
        let lanes = Lanes {
            gpg: gpg.map(|gpg| match summary {
                Some(summary) => gpg.lending(summary),
                None => gpg,
            }),
            ssh: lane(Lane::Ssh, |ready| ready.ssh_socket.as_ref()),
        };
        let status = BridgeStatus {
            target: self.target.clone(),
            state: now.state(),
            reason: now.reason(),
            pid: std::process::id(),
            since: utc(self.since),
            age: self.since.elapsed().map_or(0, |age| age.as_secs()),
            user: ready.as_ref().map(|ready| ready.user.clone()).unwrap_or_default(),
            lanes,
            lending: self.settings.borrow().lending.clone(),
            path: self.live().and_then(|live| live.path()),
            reconnects: self.links.get().saturating_sub(1),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..BridgeStatus::default()
        };
        match &*now {
            Now::Failed(error) => status.failed(error),
            Now::Starting | Now::Ready(_) | Now::Paused(_) | Now::Waiting(_) => status,
        }
    }

    /// Takes over which keys the last `up` named; all of it, or nothing if some of it is wrong.
    pub(super) async fn lend(&self, ssh_keys: Option<Vec<String>>, said: Lending) -> Result<()> {
        let before = self.settings.borrow().lending.clone();
        self.set_lending(said).await?;
        if let Err(error) = self.set_ssh_keys(ssh_keys).await {
            // What was lent a moment ago is still there.
            let _ = self.apply_lending(before).await;
            return Err(error);
        }
        Ok(())
    }

    /// Takes over which keys of the ssh-agent the last `up` named, if it did.
    async fn set_ssh_keys(&self, said: Option<Vec<String>>) -> Result<()> {
        let Some(words) = said else { return Ok(()) };
        let keys = config::ssh_keys(Some(&words))?;
        // Set first, so that a link that is made meanwhile has them.
        let before = self.replace_ssh_keys(keys.clone());
        let Some(live) = self.live() else { return Ok(()) };
        live.set_ssh_keys(keys).await.inspect_err(|_| drop(self.replace_ssh_keys(before)))
    }

    fn replace_ssh_keys(&self, keys: KeySelection) -> KeySelection {
        std::mem::replace(&mut self.settings.borrow_mut().policy.ssh_keys, keys)
    }

    /// Takes over which keys of gpg-agent the last `up` named. Nothing changes if it names none that
    /// are there.
    async fn set_lending(&self, said: Lending) -> Result<()> {
        if said == Lending::default() {
            return Ok(());
        }
        let lending = said.or(&self.settings.borrow().lending);
        self.apply_lending(lending).await
    }

    async fn apply_lending(&self, lending: Lending) -> Result<()> {
        // Set first, so that a link that is made meanwhile has them.
        let before = std::mem::replace(&mut self.settings.borrow_mut().lending, lending.clone());
        let live = if let Some(live) = self.live() {
            live.lend(lending).await
        } else {
            let gnupg_home = self.settings.borrow().gnupg_home.clone();
            Keyring::open(Gnupg::new(Some(gnupg_home)), lending).await.map(drop)
        };
        live.inspect_err(|_| self.settings.borrow_mut().lending = before)
    }

    /// Takes over what the last `up` was called with, has a bridge that waits try again at once, and
    /// tells how that went.
    pub(super) async fn up(
        &self,
        gnupg_home: PathBuf,
        ssh_auth_sock: PathBuf,
        git: bool,
    ) -> BridgeStatus {
        let mut attempts = self.attempts.subscribe();
        let before = *attempts.borrow_and_update();
        let needs_link = {
            let mut settings = self.settings.borrow_mut();
            let is_other = settings.gnupg_home != gnupg_home || (git && !settings.git);
            settings.gnupg_home = gnupg_home;
            settings.ssh_auth_sock = ssh_auth_sock;
            settings.git |= git;
            is_other
        };
        if let Some(live) = self.live() {
            live.set_auth_sock(&self.settings.borrow().ssh_auth_sock);
            if needs_link {
                self.waits("other settings are to be used");
                self.relink.notify_one();
            }
        }
        if self.live().is_none() {
            self.hurry.notify_one();
            // A target that is away can take any time.
            let tried = attempts.wait_for(|attempts| *attempts > before);
            let _ = timeout(ATTEMPT_TIME, tried).await;
        }
        self.status()
    }

    /// Sends the public keys again, those of the settings or these; tells what they changed, and what
    /// was asked for and isn't there.
    pub(super) async fn sync(&self, keys: Option<String>) -> Result<(KeyChanges, Vec<String>)> {
        let Some(live) = self.live() else {
            return Err(self.status().error());
        };
        let gnupg_home = self.settings.borrow().gnupg_home.clone();
        live.sync(gnupg_home, keys).await
    }

    /// Has the bridge end.
    pub(super) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits until the bridge is to end.
    pub(super) async fn is_stopped(&self) {
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Waits until somebody wants another attempt now.
    pub(super) async fn is_hurried(&self) {
        self.hurry.notified().await;
    }

    /// Waits until the settings want another link.
    pub(super) async fn is_relinked(&self) {
        self.relink.notified().await;
    }
}

impl Now {
    fn state(&self) -> BridgeState {
        match self {
            Self::Starting => BridgeState::Starting,
            Self::Ready(_) => BridgeState::Ready,
            Self::Paused(_) | Self::Waiting(_) => BridgeState::Waiting,
            Self::Failed(_) => BridgeState::Failed,
        }
    }

    fn reason(&self) -> Option<String> {
        match self {
            Self::Starting | Self::Ready(_) | Self::Failed(_) => None,
            Self::Paused(_) => Some("the container is paused".to_owned()),
            Self::Waiting(reason) => Some(reason.clone()),
        }
    }
}
