//! A bridge: one link between one target and the host's agents.
//!
//! All of it runs on one thread, in a `LocalSet`: the link is one task, and each client another.
//! What the helper says is untrusted: whoever shows its texts does so with [`printable`].

mod admission;
mod progress;
mod session;
mod stats;

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use keybridge_link::{Link, Notice, await_start};
use keybridge_proto::gate::Policy;
use keybridge_proto::mux::{Config, Cookie, DEFAULT_MAX_STREAMS, End, Version};
use keybridge_proto::report::{KeyChanges, KeysHead, Ready};
use keybridge_proto::session::Limits;
use keybridge_proto::{Lane, printable};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use crate::agent::{AgentDialer, SshDialer};
use crate::keys::PublicKeys;
use crate::{Error, Result};
use admission::{Admission, SPARE_STREAMS};
pub use progress::BridgeEnd;
use progress::Progress;
pub use stats::{LaneStats, Stats};

/// How long the helper may take for a series of keys: an import of thousands takes a while.
const REPORT_TIME: Duration = Duration::from_mins(1);

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
        dialer: AgentDialer,
        keys: &PublicKeys,
    ) -> Result<Self> {
        let first = await_start(&mut reader, cookie)
            .await
            .map_err(|error| Error::failed(format!("the helper didn't start: {error}")))?;
        let mut config = Config::new(End::Host, Version::Two, &settings.lanes);
        // The helper counts by its own cap, and a few past ours are told why they are refused.
        config.max_streams =
            settings.max_sessions.max(DEFAULT_MAX_STREAMS).saturating_add(SPARE_STREAMS);
        config.program = env!("CARGO_PKG_VERSION").to_owned();
        let link = Link::new(config).map_err(|error| Error::failed(error.to_string()))?;
        let admission = Rc::new(Admission::new(settings, dialer));
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
        let series = Mutex::new(0);
        let ready = Ready::default();
        let mut bridge = Self { link, admission, progress, ready, series, stopping, task };
        bridge.heard("its greeting", |progress| progress.greeted).await?;
        bridge.ready = bridge.send(keys).await?;
        Ok(bridge)
    }

    /// What the helper has set up, as it said first.
    pub const fn ready(&self) -> &Ready {
        &self.ready
    }

    /// Sends keys again and tells what they changed in the target.
    pub async fn sync(&self, keys: &PublicKeys) -> Result<KeyChanges> {
        Ok(self.send(keys).await?.keys.unwrap_or_default())
    }

    /// What the bridge has carried.
    pub fn stats(&self) -> Stats {
        self.admission.stats()
    }

    /// Has the helper undo what it did, and waits for its end.
    pub async fn stop(&self) -> Result<()> {
        self.stopping.set(true);
        // A link that is dead has ended, and that is waited for below.
        let _ = self.link.with_mux(keybridge_proto::mux::Link::stop);
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

    /// Waits for the end of the link, and tells why it ended.
    pub fn ended(&self) -> impl Future<Output = BridgeEnd> + use<> {
        let mut progress = self.progress.clone();
        async move {
            let ended = progress.wait_for(|progress| progress.end.is_some()).await;
            // The task was aborted before it could tell.
            ended.ok().and_then(|progress| progress.end.clone()).unwrap_or(BridgeEnd::Stopped)
        }
    }

    /// Sends a series of keys and waits for the report about it.
    async fn send(&self, keys: &PublicKeys) -> Result<Ready> {
        let head = KeysHead { ownertrust: keys.ownertrust_size()? }.encode();
        let mut series = self.series.lock().await;
        // A series that was given up on has to be reported before the next one.
        let before = *series;
        self.heard("its report", |progress| progress.reports >= before).await?;
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
            failed = self.heard("its taking the keys", |_| false) => return failed.map(|_| Ready::default()),
        }
        self.link
            .with_mux(keybridge_proto::mux::Link::end_keys)
            .map_err(|error| Error::failed(error.to_string()))?;
        let progress = self.heard("its report", |progress| progress.reports > before).await?;
        Ok(progress.ready.clone())
    }

    /// Waits until the helper has said something, but no longer than until it fails.
    async fn heard(
        &self,
        what: &str,
        mut is_it: impl FnMut(&Progress) -> bool,
    ) -> Result<Progress> {
        let mut progress = self.progress.clone();
        let heard =
            progress.wait_for(|now| is_it(now) || now.failure.is_some() || now.end.is_some());
        match tokio::time::timeout(REPORT_TIME, heard).await {
            Ok(Ok(now)) if is_it(&now) => Ok(now.clone()),
            Ok(Ok(now)) => Err(now.error()),
            Ok(Err(_)) => Err(Error::failed("the bridge was ended")),
            Err(_) => Err(Error::failed(format!(
                "expected {what} from the helper within {} s, got none",
                REPORT_TIME.as_secs()
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
        // The mux lets these come to a helper alone.
        Notice::KeysEnd | Notice::Stop => {}
    }
}
