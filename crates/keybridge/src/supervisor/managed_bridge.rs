//! The state of one bridge: written by its lifecycle, read by the control socket.

use std::cell::{Cell, OnceCell, RefCell};
use std::convert::Infallible;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use keybridge_proto::PerLane;
use keybridge_proto::permission::KeyName;
use keybridge_proto::report::{KeyChanges, Ready, User};
use keybridge_proto::session::Operations;
use tokio::sync::{Mutex, Notify, watch};
use tokio::time::timeout;

use super::control::Synced;
use super::narrowed::Narrowed;
use super::state::StateFolder;
use super::status::{BridgeState, BridgeStatus, LaneStatus, WaitingOperation, utc};
use crate::asking::Asking;
use crate::bridge::LaneStats;
use crate::config::Settings;
use crate::keyring::SharedCeiling;
use crate::known_hosts::KnownLogins;
use crate::output::{Event, Report};
use crate::record::BridgeRecorder;
use crate::setup::Link;
use crate::target::{Questions, Target};
use crate::{Error, Result};

/// How long reading the keys may take for a status.
const READING_TIME: Duration = Duration::from_secs(1);

/// One bridge, over all of its links. Shared by its lifecycle and the control socket.
pub(crate) struct ManagedBridge {
    target: Target,
    /// Whether it is in the process of its `up`, and ends with it.
    in_foreground: bool,
    since: SystemTime,
    settings: RefCell<Settings>,
    /// Where the settings are kept, once it is known.
    folder: OnceCell<StateFolder>,
    /// The logins that the settings allow. None is until they were looked up.
    logins: RefCell<KnownLogins>,
    phase: RefCell<Phase>,
    /// The last READY of a helper.
    ready: RefCell<Option<Ready>>,
    /// What earlier links have carried.
    carried: Cell<PerLane<LaneStats>>,
    links: Cell<u32>,
    /// How many attempts to make a link have ended, well or not.
    pub(super) attempts: watch::Sender<u64>,
    /// What the last attempt warned of.
    warnings: Rc<RefCell<Vec<String>>>,
    stopping: watch::Sender<bool>,
    /// The private-key operations of all links.
    operations: Operations,
    /// Who writes them down, once it is known where.
    recorder: OnceCell<Rc<BridgeRecorder>>,
    /// What a person is asked about them.
    asking: Rc<Asking>,
    /// What all links may lend at most.
    ceiling: SharedCeiling,
    /// Who answers what the login of the next link asks.
    questions: RefCell<Questions>,
    /// A paused target runs again.
    running: Notify,
    /// Ends a pause between two attempts.
    retry: Notify,
    /// Requests a new link, since the settings have changed.
    relink: Notify,
    /// Held while the settings are changed.
    pub(super) take_over: Mutex<()>,
}

/// The phases of a bridge; `life.rs` has the diagram.
enum Phase {
    Starting,
    Ready(Rc<Link>),
    /// The target is paused, and its link with it.
    Paused(Rc<Link>),
    Waiting(String),
    /// The last attempt failed; there will be another one.
    Failed(Error),
}

impl ManagedBridge {
    pub(crate) fn new(target: Target, settings: Settings, ceiling: SharedCeiling) -> Self {
        let operations = Operations::default();
        operations.set_rules(settings.rules(&[]));
        let asking = Asking::new(&operations, settings.ask_by.clone());
        Self {
            target,
            in_foreground: false,
            since: SystemTime::now(),
            settings: RefCell::new(settings),
            folder: OnceCell::new(),
            logins: RefCell::default(),
            phase: RefCell::new(Phase::Starting),
            ready: RefCell::default(),
            carried: Cell::default(),
            links: Cell::new(0),
            attempts: watch::channel(0).0,
            warnings: Rc::default(),
            stopping: watch::channel(false).0,
            operations,
            recorder: OnceCell::new(),
            asking,
            ceiling,
            questions: RefCell::new(Questions::NotAsked),
            running: Notify::new(),
            retry: Notify::new(),
            relink: Notify::new(),
            take_over: Mutex::new(()),
        }
    }

    /// The same bridge, in the process of its `up`.
    pub(super) fn in_foreground(self) -> Self {
        Self { in_foreground: true, ..self }
    }

    /// Whether it ends with the process of its `up`, and with it all that it did.
    pub(super) const fn is_in_foreground(&self) -> bool {
        self.in_foreground
    }

    pub(super) const fn operations(&self) -> &Operations {
        &self.operations
    }

    pub(super) const fn ceiling(&self) -> &SharedCeiling {
        &self.ceiling
    }

    pub(super) const fn target(&self) -> &Target {
        &self.target
    }

    /// The target's address, as people write it.
    pub(super) fn address(&self) -> String {
        self.target.address().to_string()
    }

    pub(super) fn settings(&self) -> Settings {
        self.settings.borrow().clone()
    }

    /// Keeps the settings and the ceiling in a folder, now and whenever an `up` has changed them.
    pub(super) fn keep_settings_in(&self, folder: &StateFolder) -> Result<()> {
        self.folder.get_or_init(|| folder.clone());
        self.ceiling.keep_in(folder.ceiling())?;
        self.keep_settings()
    }

    /// Keeps the settings.
    pub(super) fn keep_settings(&self) -> Result<()> {
        let settings = self.settings.borrow().as_invocation();
        self.folder.get().map_or(Ok(()), |folder| folder.keep_settings(&settings))
    }

    /// Has its operations recorded, for the target that this folder identifies.
    pub(super) fn record_for(&self, folder: &StateFolder) {
        let mode = self.settings.borrow().record;
        let recorder = self
            .recorder
            .get_or_init(|| Rc::new(BridgeRecorder::new(self.address(), folder.id(), mode)));
        self.operations.record_with(Rc::clone(recorder) as Rc<_>);
    }

    /// Records what was put off. The bridge has ended.
    pub(super) fn end_record(&self) {
        if let Some(recorder) = self.recorder.get() {
            recorder.end();
        }
    }

    /// Sets other settings, with the logins that they allow.
    pub(super) fn set_settings(&self, settings: Settings, logins: KnownLogins) {
        if let Some(recorder) = self.recorder.get() {
            recorder.set_mode(settings.record);
        }
        self.operations.set_rules(settings.rules(&logins.rules));
        self.asking.set_ways(settings.ask_by.clone());
        self.logins.replace(logins);
        self.settings.replace(settings);
    }

    /// Looks the hosts of the allowed logins up again.
    pub(super) async fn refresh_logins(&self) {
        let settings = self.settings();
        let logins = KnownLogins::find(settings.narrowing.logins.as_deref()).await;
        // Another `up` has looked up those of its own settings meanwhile.
        if *self.settings.borrow() == settings {
            self.set_settings(settings, logins);
        }
    }

    /// What a person is asked.
    pub(super) fn asking(&self) -> &Asking {
        &self.asking
    }

    /// Asks a person what has to be asked, as long as it is polled.
    pub(super) async fn ask_questions(&self) -> Infallible {
        let address = self.target.address();
        let gnupg = || self.settings.borrow().gnupg();
        self.asking.run(&address, gnupg, |key| self.key_name(key)).await
    }

    /// A key as its user knows it.
    pub(super) fn key_name(&self, key: KeyName) -> String {
        let name = match (key, self.link()) {
            (KeyName::Grip(grip), Some(link)) => link.key_name(grip),
            (KeyName::Print(_), _) | (KeyName::Grip(_), None) => None,
        };
        name.unwrap_or_else(|| key.to_string())
    }

    /// The user in the target, as the helper has said.
    pub(super) fn user(&self) -> Option<User> {
        self.ready.borrow().as_ref()?.user.clone()
    }

    /// Whether it is for this user, by name or by number.
    pub(super) fn is_for_user(&self, user: &str) -> bool {
        match self.user() {
            Some(User { name, uid }) => name.as_deref() == Some(user) || user.parse() == Ok(uid),
            None => self.settings.borrow().options.user.as_deref() == Some(user),
        }
    }

    /// Sets who answers what the login of the next link asks.
    pub(super) fn set_questions(&self, questions: Questions) {
        self.questions.replace(questions);
    }

    /// The target for the next link, and who answers what its login asks: that of the link after it asks nobody.
    pub(super) fn target_for_link(&self) -> (Target, Questions) {
        let questions = self.questions.replace(Questions::NotAsked);
        // That of the last `up`: the one that this process began with may have ended.
        let auth_sock = &self.settings.borrow().ssh_auth_sock;
        let target = self.target.clone().asking(questions.clone()).with_auth_sock(auth_sock);
        (target, questions)
    }

    /// A report for an attempt in the background: it only collects the warnings.
    pub(super) fn attempt_report(&self) -> Report {
        self.warnings.borrow_mut().clear();
        let warnings = Rc::clone(&self.warnings);
        Report::to(move |event| {
            if let Event::Warning { text } = event {
                warnings.borrow_mut().push(text.clone());
            }
        })
    }

    /// What the last attempt has warned of.
    pub(super) fn attempt_warnings(&self) -> Vec<String> {
        self.warnings.borrow().clone()
    }

    /// Whether these are the current settings. `SSH_AUTH_SOCK` doesn't count: it is set on every link.
    pub(super) fn are_current(&self, used: &Settings) -> bool {
        let now = self.settings.borrow();
        Settings { ssh_auth_sock: now.ssh_auth_sock.clone(), ..used.clone() } == *now
    }

    /// Requests a new link.
    pub(super) fn request_link(&self) {
        self.relink.notify_one();
    }

    /// Notes that a link works.
    pub(super) fn set_linked(&self, link: &Rc<Link>) {
        self.links.set(self.links.get().saturating_add(1));
        self.ready.replace(Some(link.ready().clone()));
        link.set_auth_sock(&self.settings.borrow().ssh_auth_sock);
        *self.phase.borrow_mut() = Phase::Ready(Rc::clone(link));
        // Logged first, so that it is in the log when the new state is seen.
        tracing::info!("ready");
    }

    /// Whether there ever was a link.
    pub(super) fn was_linked(&self) -> bool {
        self.links.get() > 0
    }

    /// Notes that the target is paused.
    pub(super) fn set_paused(&self) {
        if let Some(link) = self.link() {
            *self.phase.borrow_mut() = Phase::Paused(link);
        }
    }

    /// Notes that the target runs again.
    pub(super) fn set_running(&self) {
        if let Some(link) = self.link() {
            *self.phase.borrow_mut() = Phase::Ready(link);
        }
        self.running.notify_waiters();
    }

    /// Waits until a target that is paused runs again.
    pub(super) async fn until_running(&self) {
        let is_paused = matches!(&*self.phase.borrow(), Phase::Paused(_));
        if is_paused {
            self.running.notified().await;
        }
    }

    /// Notes that there is no link, and that the reason is expected to go away.
    pub(super) fn set_waiting(&self, reason: impl Into<String>) {
        self.add_carried();
        *self.phase.borrow_mut() = Phase::Waiting(reason.into());
    }

    /// Notes that there is no link, and that an attempt to make one has found that the target is away.
    pub(super) fn set_away(&self, error: &Error) {
        self.set_waiting(error.to_string());
        self.end_attempt();
    }

    /// Notes that there is no link, and that an attempt to make one has failed.
    pub(super) fn set_failed(&self, error: Error) {
        self.add_carried();
        *self.phase.borrow_mut() = Phase::Failed(error);
        self.end_attempt();
    }

    /// Adds what a link that has ended carried.
    fn add_carried(&self) {
        if let Some(link) = self.link() {
            let carried = link.stats().map(|_, stats| stats.closed());
            self.carried.set(added(self.carried.get(), carried));
        }
    }

    /// Tells those who wait that an attempt to make a link has ended.
    pub(super) fn end_attempt(&self) {
        self.attempts.send_modify(|attempts| *attempts += 1);
    }

    /// The link, if there is one.
    pub(super) fn link(&self) -> Option<Rc<Link>> {
        match &*self.phase.borrow() {
            Phase::Ready(link) | Phase::Paused(link) => Some(Rc::clone(link)),
            Phase::Starting | Phase::Waiting(_) | Phase::Failed(_) => None,
        }
    }

    /// The status, with the keys as they are now if they can be read in time.
    pub(crate) async fn status_now(&self) -> BridgeStatus {
        if let Some(link) = self.link() {
            let _ = timeout(READING_TIME, link.refresh_keys()).await;
        }
        self.status()
    }

    pub(crate) fn status(&self) -> BridgeStatus {
        let phase = self.phase.borrow();
        let link = self.link();
        let carried = match &link {
            Some(link) => added(self.carried.get(), link.stats()),
            None => self.carried.get(),
        };
        let ready = self.ready.borrow();
        let mut lanes = PerLane::from_fn(|lane| {
            let socket = ready.as_ref()?.sockets[lane].as_ref()?;
            Some(LaneStatus::new(socket, carried[lane]))
        });
        if let Some(summary) = link.as_ref().and_then(|link| link.lent_keys()) {
            let lane = if lanes.gpg.is_some() { &mut lanes.gpg } else { &mut lanes.git };
            *lane = lane.take().map(|lane| lane.lending(summary));
        }
        let status = BridgeStatus {
            target: self.address(),
            state: phase.state(),
            reason: phase.reason(),
            pid: std::process::id(),
            since: utc(self.since),
            age: self.since.elapsed().map_or(0, |age| age.as_secs()),
            user: ready.as_ref().and_then(|ready| ready.user.clone()),
            lanes,
            lending: self.settings.borrow().lending.clone(),
            ssh_keys: self.ssh_keys(),
            narrowed: Narrowed::new(&self.settings.borrow().narrowing, &self.logins.borrow()),
            git_agents: link.as_ref().map(|link| link.agents_of_git()).unwrap_or_default(),
            record_problem: self.recorder.get().and_then(|recorder| recorder.problem()),
            waiting: WaitingOperation::among(self.operations.pending(), Instant::now()),
            reconnects: self.links.get().saturating_sub(1),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            ..BridgeStatus::default()
        };
        match &*phase {
            Phase::Failed(error) => status.failed(error),
            Phase::Starting | Phase::Ready(_) | Phase::Paused(_) | Phase::Waiting(_) => status,
        }
    }

    /// The words that choose keys of the ssh-agent, if not all are lent.
    fn ssh_keys(&self) -> Option<Vec<String>> {
        let settings = self.settings.borrow();
        settings.options.ssh_keys.clone().filter(|_| !settings.policy.ssh_keys.is_all())
    }

    /// Sends the public keys again, those of the settings or these.
    pub(crate) async fn sync(&self, keys: Option<String>) -> Result<Synced> {
        let Some(link) = self.link() else {
            return Err(self.status().error());
        };
        let gnupg = self.settings.borrow().gnupg();
        let (changes, warnings) = link.sync(&gnupg, keys).await?;
        let KeyChanges { new, updated, unchanged, .. } = changes;
        Ok(Synced { new, updated, unchanged, warnings })
    }

    /// Ends the bridge.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits until the bridge has to end.
    pub(super) async fn until_stopped(&self) {
        let _ = self.stopping.subscribe().wait_for(|stopping| *stopping).await;
    }

    /// Ends a pause between two attempts.
    pub(super) fn retry_now(&self) {
        self.retry.notify_one();
    }

    /// Waits for [`Self::retry_now`].
    pub(super) async fn retry_requested(&self) {
        self.retry.notified().await;
    }

    /// Waits for [`Self::request_link`].
    pub(super) async fn link_requested(&self) {
        self.relink.notified().await;
    }
}

impl Phase {
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

/// The sum for earlier links and this one.
fn added(earlier: PerLane<LaneStats>, more: PerLane<LaneStats>) -> PerLane<LaneStats> {
    earlier.map(|lane, stats| stats + more[lane])
}
