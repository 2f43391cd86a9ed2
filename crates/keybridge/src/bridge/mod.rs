//! A bridge: one link between one target and the host's agents.
//!
//! All of it runs on one thread, in a `LocalSet`: the link is one task, and each client another.
//! What the helper says is untrusted: its texts are cut and made [`printable`] when they arrive.

mod admission;
mod direct;
mod progress;
mod session;
mod stats;

use std::cell::Cell;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use keybridge_link::{Link, Notice, await_start};
use keybridge_proto::gate::Policy;
use keybridge_proto::mux::{Config, Cookie, DEFAULT_MAX_STREAMS, End, StreamId, Version};
use keybridge_proto::report::{KeyChanges, KeysHeader, ProbeResult, Ready};
use keybridge_proto::session::Limits;
use keybridge_proto::ssh::KeySelection;
use keybridge_proto::{Lane, PerLane, printable};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use crate::agent::{GpgAgent, SshDialer};
use crate::keyring::Keyring;
use crate::keys::PublicKeys;
use crate::{Error, Result};
use admission::{Admission, SPARE_STREAMS};
pub use direct::LinkPath;
pub use progress::BridgeEnd;
use progress::Progress;
pub use stats::LaneStats;

/// How long the helper may take for a series of keys: an import of thousands takes a while.
const REPORT_TIME: Duration = Duration::from_mins(1);

/// How long the helper may take to ask the agents; its own patience with each is shorter.
const ANSWERS_TIME: Duration = Duration::from_mins(1);

/// How long a server of version 1 may take to be ready.
const VERSION_1_READY_TIME: Duration = Duration::from_secs(10);

/// How long the helper may take to undo what it did.
pub const STOP_TIME: Duration = Duration::from_secs(10);

/// How a bridge is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of the target, for the gate and the log.
    pub target: String,
    /// What the target may ask.
    pub policy: Policy,
    /// How long a session waits.
    pub limits: Limits,
    /// How many clients can be connected at once.
    pub max_sessions: usize,
    /// Which agents the target gets.
    pub lanes: Vec<Lane>,
    /// Dials the agent of the ssh lane. Without it, whatever is asked there is refused.
    pub ssh: Option<SshDialer>,
}

impl Settings {
    /// The defaults for a target: its gpg lane, over the restricted socket.
    pub fn new(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            policy: Policy::default(),
            limits: Limits::default(),
            max_sessions: DEFAULT_MAX_STREAMS,
            lanes: vec![Lane::Gpg],
            ssh: None,
        }
    }
}

/// A bridge that is up. Dropping it ends the link and every session, without a word to the helper:
/// the end of its input tells it.
#[derive(Debug)]
pub struct Bridge {
    version: Version,
    link: Link,
    admission: Rc<Admission>,
    progress: watch::Receiver<Progress>,
    ready: Ready,
    /// How many series of keys were begun; one at a time.
    series: Mutex<u64>,
    stopping: Rc<Cell<bool>>,
    task: JoinHandle<()>,
}

impl Bridge {
    /// Talks to a helper that was started with `cookie`, until it is ready. To be called in a
    /// `LocalSet`.
    pub async fn start(
        mut reader: impl AsyncRead + Unpin + 'static,
        writer: impl AsyncWrite + Unpin + 'static,
        cookie: &Cookie,
        settings: Settings,
        gpg_agent: impl Into<Option<GpgAgent>>,
        keys: &PublicKeys,
    ) -> Result<Self> {
        let first = await_start(&mut reader, cookie)
            .await
            .map_err(|error| Error::failed(format!("the helper didn't start: {error}")))?;
        let mut bridge =
            Self::new(Version::Two, first, reader, writer, settings, gpg_agent.into())?;
        bridge.heard("its greeting", REPORT_TIME, |progress| progress.greeted).await?;
        bridge.ready = bridge.send(keys).await?;
        Ok(bridge)
    }

    /// Talks to a server of version 1, until it is ready. It can't say what it has set up: that is
    /// `ready`, as it was told.
    pub async fn start_version_1(
        reader: impl AsyncRead + Unpin + 'static,
        writer: impl AsyncWrite + Unpin + 'static,
        settings: Settings,
        gpg_agent: impl Into<Option<GpgAgent>>,
        export: &[u8],
        ready: Ready,
    ) -> Result<Self> {
        let mut bridge =
            Self::new(Version::One, Vec::new(), reader, writer, settings, gpg_agent.into())?;
        let send = |mux: &mut keybridge_proto::mux::Endpoint| {
            mux.write(StreamId::KEYS, export)?;
            mux.end_keys()
        };
        bridge.link.with_mux(send).map_err(|error| {
            Error::failed(format!("sending the public keys: {error}"))
                .hint("choose fewer with --keys: a server of version 1 takes 1 MiB of them")
        })?;
        bridge.heard("READY", VERSION_1_READY_TIME, |progress| progress.reports > 0).await?;
        bridge.ready = ready;
        Ok(bridge)
    }

    /// Begins to move the bytes of a link. `first` came before the rest.
    fn new(
        version: Version,
        first: Vec<u8>,
        reader: impl AsyncRead + Unpin + 'static,
        writer: impl AsyncWrite + Unpin + 'static,
        settings: Settings,
        gpg_agent: Option<GpgAgent>,
    ) -> Result<Self> {
        let mut config = Config::new(End::Host, version, &settings.lanes);
        // The helper counts by its own cap, and a few past ours are told why they are refused.
        config.max_streams =
            settings.max_sessions.max(DEFAULT_MAX_STREAMS).saturating_add(SPARE_STREAMS);
        config.program = env!("CARGO_PKG_VERSION").to_owned();
        let link = Link::new(config).map_err(|error| Error::failed(error.to_string()))?;
        let admission = Rc::new(Admission::new(settings, gpg_agent));
        let stopping = Rc::new(Cell::new(false));
        let (told, progress) = watch::channel(Progress::default());
        let task = tokio::task::spawn_local({
            let (link, admission) = (link.clone(), Rc::clone(&admission));
            let stopping = Rc::clone(&stopping);
            async move {
                let end = link
                    .run(&first, reader, writer, |notice| note(&told, &admission, notice))
                    .await;
                told.send_modify(|progress| progress.ended(&end, stopping.get()));
            }
        });
        let (ready, series) = (Ready::default(), Mutex::new(0));
        Ok(Self { version, link, admission, progress, ready, series, stopping, task })
    }

    /// What the helper has set up, as it said first.
    pub const fn ready(&self) -> &Ready {
        &self.ready
    }

    /// What the agents said to a helper that was told to ask them, when it is ready.
    pub async fn answers(&self) -> Result<Vec<ProbeResult>> {
        let heard = self.heard("answers of the agents", ANSWERS_TIME, |now| now.answers.is_some());
        Ok(heard.await?.answers.unwrap_or_default())
    }

    /// Sends keys again and tells what they changed in the target.
    pub async fn sync(&self, keys: &PublicKeys) -> Result<KeyChanges> {
        match self.version {
            Version::One => {
                let message = "a server of version 1 takes public keys only when it starts";
                return Err(Error::failed(message).hint("keybridge down, then up again"));
            }
            Version::Two => {}
        }
        Ok(self.send(keys).await?.keys.unwrap_or_default())
    }

    /// The target sleeps, and is not asked if it lives.
    pub fn pause(&self) {
        self.link.pause_liveness();
    }

    /// The target goes on.
    pub fn resume(&self) {
        self.link.resume_liveness();
    }

    /// `SSH_AUTH_SOCK` of this machine's user has this value now.
    pub fn set_auth_sock(&self, path: &Path) {
        self.admission.set_auth_sock(path);
    }

    /// The keys of the gpg lane, if the bridge has one.
    pub fn keyring(&self) -> Option<&Keyring> {
        self.admission.keyring()
    }

    /// Which keys of the ssh-agent are lent to the clients to come. Those that are there keep theirs.
    pub fn set_ssh_keys(&self, keys: KeySelection) {
        self.admission.set_ssh_keys(keys);
    }

    /// What dials the agent of the ssh lane, if that is lent.
    pub fn ssh_dialer(&self) -> Option<&SshDialer> {
        self.admission.settings().ssh.as_ref()
    }

    /// What the bridge has carried.
    pub fn stats(&self) -> PerLane<LaneStats> {
        self.admission.stats()
    }

    /// Has the helper undo what it did, and waits for its end.
    pub async fn stop(&self) -> Result<()> {
        self.stopping.set(true);
        if self.version == Version::One {
            // It can't be told anything but the end of its input.
            self.task.abort();
            return Ok(());
        }
        // A link that is dead has ended, and that is waited for below.
        let _ = self.link.with_mux(keybridge_proto::mux::Endpoint::stop);
        match tokio::time::timeout(STOP_TIME, self.ended()).await {
            Ok(BridgeEnd::Stopped) => Ok(()),
            Ok(end @ (BridgeEnd::Closed | BridgeEnd::Broken(_))) => {
                Err(Error::failed(format!("while the bridge was being ended, {end}")))
            }
            Ok(BridgeEnd::Failed(error)) => Err(error),
            Err(_) => {
                self.task.abort();
                let target = &self.admission.settings().target;
                Err(Error::failed(format!(
                    "the helper in {} didn't end within {} s",
                    printable(target),
                    STOP_TIME.as_secs()
                ))
                .hint("what it did there is undone by the next `keybridge up` and `down`"))
            }
        }
    }

    /// Waits for the end of the link, and tells why it ended. A helper that says why it can't go on is
    /// as good as gone.
    pub fn ended(&self) -> impl Future<Output = BridgeEnd> + use<> {
        let mut progress = self.progress.clone();
        async move {
            let is_over = |now: &Progress| now.end.is_some() || now.failure.is_some();
            match progress.wait_for(is_over).await.as_deref() {
                Ok(Progress { end: Some(end), .. }) => end.clone(),
                Ok(Progress { failure: Some(error), .. }) => BridgeEnd::Failed(error.clone()),
                // The task was aborted before it could tell.
                Ok(_) | Err(_) => BridgeEnd::Stopped,
            }
        }
    }

    /// Sends a series of keys and waits for the report about it.
    async fn send(&self, keys: &PublicKeys) -> Result<Ready> {
        let head = KeysHeader { ownertrust: keys.ownertrust_size()? }.encode();
        let mut series = self.series.lock().await;
        // A series that was given up on has to be reported before the next one.
        let before = *series;
        self.heard("its report", REPORT_TIME, |progress| progress.reports >= before).await?;
        *series += 1;
        let stream = self.link.keys();
        let writing = async {
            for part in [&head, &keys.ownertrust, &keys.export] {
                if !stream.write_all(part).await {
                    // The end of the link is told below.
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = writing => {}
            failed = self.heard("its taking the keys", REPORT_TIME, |_| false) => return failed.map(|_| Ready::default()),
        }
        self.link
            .with_mux(keybridge_proto::mux::Endpoint::end_keys)
            .map_err(|error| Error::failed(error.to_string()))?;
        let progress =
            self.heard("its report", REPORT_TIME, |progress| progress.reports > before).await?;
        Ok(progress.ready.clone())
    }

    /// Waits until the helper has said something, but no longer than until it fails.
    async fn heard(
        &self,
        what: &str,
        within: Duration,
        mut is_it: impl FnMut(&Progress) -> bool,
    ) -> Result<Progress> {
        let mut progress = self.progress.clone();
        let heard =
            progress.wait_for(|now| is_it(now) || now.failure.is_some() || now.end.is_some());
        match tokio::time::timeout(within, heard).await {
            Ok(Ok(now)) if is_it(&now) => Ok(now.clone()),
            Ok(Ok(now)) => Err(now.error()),
            Ok(Err(_)) => Err(Error::failed("the bridge was ended")),
            Err(_) => Err(Error::failed(format!(
                "expected {what} from the helper within {} s, got none",
                within.as_secs()
            ))),
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Deals with what the helper says beside its streams.
fn note(told: &watch::Sender<Progress>, admission: &Admission, notice: Notice) {
    match notice {
        Notice::Opened(stream, lane) => admission.opened(stream, lane),
        Notice::Hello(hello) => {
            tracing::info!(program = %printable(&hello.program), "the helper greets");
            told.send_modify(|progress| progress.greeted = true);
        }
        Notice::Ready(payload) => told.send_modify(|progress| progress.report(&payload)),
        Notice::Error(payload) => told.send_modify(|progress| progress.fail(&payload)),
        Notice::Pong(number) => tracing::trace!(number, "pong"),
        Notice::Direct(payload) => told.send_modify(|progress| progress.offer(&payload)),
        // The mux lets these come to a helper alone.
        Notice::KeysEnd | Notice::Stop => {}
    }
}
