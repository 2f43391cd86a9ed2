//! A bridge: one link between one target and the host's agents.
//!
//! Everything runs on one thread, in a local runtime: one task for the link, and one for each client.
//! The helper's texts are untrusted: they are cut and made [`printable`] when they arrive.

mod admission;
mod client;
mod direct;
mod helper_state;
mod passed;
mod session;
mod stats;
mod turns;

use std::cell::Cell;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use keybridge_link::{Link, Notice, StopSignal, await_start};
use keybridge_proto::gate::{Caller, Policy};
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
use crate::{Error, ErrorKind, Result};
use admission::{Admission, SPARE_STREAMS};
pub use direct::{DirectConnection, LinkPath};
pub use helper_state::BridgeEnd;
use helper_state::HelperState;
pub use stats::LaneStats;
pub use turns::{stay_awake, woke_up};

pub use crate::platform::PassedClients;

/// The time limit for a series of keys: importing thousands takes a while.
const REPORT_TIME: Duration = Duration::from_mins(1);

/// The report on a series of keys, as an error calls it.
const REPORT: &str = "report on the keys";

/// The time limit for the helper's questions to the agents; its own limit for each is shorter.
const ANSWERS_TIME: Duration = Duration::from_mins(1);

/// The time limit for a version 1 server to become ready.
const VERSION_1_READY_TIME: Duration = Duration::from_secs(10);

/// The time limit for the helper to undo what it did.
pub const STOP_TIME: Duration = Duration::from_secs(10);

/// The settings of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The name of the target, for the gate and the log.
    pub target: String,
    /// What the target may ask for.
    pub policy: Policy,
    /// The time limits of a session.
    pub limits: Limits,
    /// How many clients can be connected at once.
    pub max_sessions: usize,
    /// The agents that the target may use.
    pub lanes: Vec<Lane>,
    /// Connects to the ssh-agent. Without it, every request on the ssh lane is refused.
    pub ssh: Option<SshDialer>,
}

impl Settings {
    /// The defaults for a target: the gpg lane, on the restricted socket.
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

/// A bridge that is up. Dropping it ends the link and every session; the helper notices the end of its
/// input.
#[derive(Debug)]
pub struct Bridge {
    version: Version,
    link: Link,
    admission: Rc<Admission>,
    helper: watch::Receiver<HelperState>,
    ready: Ready,
    /// How many series of keys were sent. Locked while one is being sent.
    series: Mutex<u64>,
    stopping: Rc<Cell<bool>>,
    /// Whether the helper passes its clients.
    is_passing: Rc<Cell<bool>>,
    task: JoinHandle<()>,
}

impl Bridge {
    /// Sets the link up with a helper that was started with `cookie`; returns when it is ready. Must be
    /// called in a runtime that can spawn local tasks.
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
            .map_err(|error| Error::failed("the helper didn't start").caused_by(error))?;
        let mut bridge =
            Self::new(Version::Two, first, reader, writer, settings, gpg_agent.into())?;
        bridge.wait_for("greeting", REPORT_TIME, |helper| helper.greeted).await?;
        bridge.ready = bridge.send(keys).await?;
        Ok(bridge)
    }

    /// Sets the link up with a version 1 server; returns when it is ready. Such a server can't report
    /// what it has set up, so the caller passes that as `ready`.
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
            Error::failed("can't send the public keys")
                .caused_by(error)
                .hint("choose fewer with --keys: a version 1 server accepts 1 MiB of them")
        })?;
        bridge.wait_for("READY", VERSION_1_READY_TIME, |helper| helper.reports > 0).await?;
        bridge.ready = ready;
        Ok(bridge)
    }

    /// Starts the task of the link. `first` was read already.
    fn new(
        version: Version,
        first: Vec<u8>,
        reader: impl AsyncRead + Unpin + 'static,
        writer: impl AsyncWrite + Unpin + 'static,
        settings: Settings,
        gpg_agent: Option<GpgAgent>,
    ) -> Result<Self> {
        let mut config = Config::new(End::Host, version, &settings.lanes);
        // The helper has a cap of its own. A few clients past ours get a refusal with a reason.
        config.max_streams =
            settings.max_sessions.max(DEFAULT_MAX_STREAMS).saturating_add(SPARE_STREAMS);
        config.program = env!("CARGO_PKG_VERSION").to_owned();
        let link =
            Link::new(config).map_err(|error| Error::from_source(ErrorKind::Failed, error))?;
        let admission = Rc::new(Admission::new(settings, gpg_agent));
        let stopping = Rc::new(Cell::new(false));
        let (state, helper) = watch::channel(HelperState::default());
        let task = tokio::task::spawn_local({
            let (link, admission) = (link.clone(), Rc::clone(&admission));
            let stopping = Rc::clone(&stopping);
            let ending = Ending(admission.ending().clone());
            async move {
                // Also when the task is aborted.
                let _ending = ending;
                let end = link
                    .run(&first, reader, writer, |notice| note(&state, &admission, notice))
                    .await;
                state.send_modify(|helper| helper.ended(&end, stopping.get()));
            }
        });
        let (ready, series) = (Ready::default(), Mutex::new(0));
        let is_passing = Rc::default();
        Ok(Self { version, link, admission, helper, ready, series, stopping, is_passing, task })
    }

    /// What the helper set up, from its first report.
    pub const fn ready(&self) -> &Ready {
        &self.ready
    }

    /// The agents' answers, for a helper that was started to ask them.
    pub async fn answers(&self) -> Result<Vec<ProbeResult>> {
        let helper =
            self.wait_for("answers of the agents", ANSWERS_TIME, |now| now.answers.is_some());
        Ok(helper.await?.answers.unwrap_or_default())
    }

    /// Sends keys again; returns what they changed in the target.
    pub async fn sync(&self, keys: &PublicKeys) -> Result<KeyChanges> {
        match self.version {
            Version::One => {
                let message = "a version 1 server accepts public keys only when it starts";
                return Err(Error::failed(message).hint("run keybridge down, then up again"));
            }
            Version::Two => {}
        }
        Ok(self.send(keys).await?.keys.unwrap_or_default())
    }

    /// Asks the helper whether the link lives; it ends soon if it doesn't.
    pub fn check_link(&self) {
        self.link.ping_now();
    }

    /// How long a question and its answer take over the link; `None` if it ends meanwhile. A version 1
    /// server never answers.
    pub async fn round_trip(&self) -> Option<Duration> {
        self.link.round_trip().await
    }

    /// The target is paused: it isn't pinged until [`Self::resume`].
    pub fn pause(&self) {
        self.link.pause_liveness();
    }

    /// The target runs again.
    pub fn resume(&self) {
        self.link.resume_liveness();
    }

    /// Sets the user's `SSH_AUTH_SOCK` for later connections.
    pub fn set_auth_sock(&self, path: &Path) {
        self.admission.set_auth_sock(path);
    }

    /// The keys of the gpg lane, if the bridge has one.
    pub fn keyring(&self) -> Option<&Keyring> {
        self.admission.keyring()
    }

    /// Sets which keys of the ssh-agent later clients may use. Connected clients keep theirs.
    pub fn set_ssh_keys(&self, keys: KeySelection) {
        self.admission.set_ssh_keys(keys);
    }

    /// Connects to the ssh-agent, if the ssh lane has one.
    pub fn ssh_dialer(&self) -> Option<&SshDialer> {
        self.admission.settings().ssh.as_ref()
    }

    /// What the bridge has carried.
    pub fn stats(&self) -> PerLane<LaneStats> {
        self.admission.stats()
    }

    /// Who the connected clients are, the newest of each lane first, as far as they are known and at most
    /// so many of each lane.
    pub fn callers(&self, limit: usize) -> PerLane<Vec<Caller>> {
        self.admission.callers(limit)
    }

    /// Tells the helper to undo what it did, and waits for its end.
    pub async fn stop(&self) -> Result<()> {
        self.stopping.set(true);
        if self.version == Version::One {
            // Version 1 has no STOP: the end of its input is all that it understands.
            self.task.abort();
            return Ok(());
        }
        self.admission.ending().set();
        // If the link is dead, `ended` returns at once.
        let _ = self.link.with_mux(keybridge_proto::mux::Endpoint::stop);
        match tokio::time::timeout(STOP_TIME, self.ended()).await {
            Ok(BridgeEnd::Stopped) => Ok(()),
            Ok(end @ (BridgeEnd::Closed | BridgeEnd::Broken(_))) => {
                Err(Error::failed(format!("while the bridge was stopping, {end}")))
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
                .hint("the next `keybridge up` or `down` undoes what it did there"))
            }
        }
    }

    /// Waits for the end of the link; returns why it ended. A failure that the helper reports counts as
    /// the end.
    pub fn ended(&self) -> impl Future<Output = BridgeEnd> + use<> {
        let mut helper = self.helper.clone();
        async move {
            let is_over = |now: &HelperState| now.end.is_some() || now.failure.is_some();
            match helper.wait_for(is_over).await.as_deref() {
                Ok(HelperState { end: Some(end), .. }) => end.clone(),
                Ok(HelperState { failure: Some(error), .. }) => BridgeEnd::Failed(error.clone()),
                // The task was aborted before it could note the end.
                Ok(_) | Err(_) => BridgeEnd::Stopped,
            }
        }
    }

    /// Sends a series of keys and waits for the helper's report on it.
    async fn send(&self, keys: &PublicKeys) -> Result<Ready> {
        let head = KeysHeader { ownertrust: keys.ownertrust_size()? }.encode();
        let mut series = self.series.lock().await;
        // An earlier series that timed out has to be reported first.
        let before = *series;
        self.wait_for(REPORT, REPORT_TIME, |helper| helper.reports >= before).await?;
        *series += 1;
        let stream = self.link.keys();
        let writing = async {
            for part in [&head, &keys.ownertrust, &keys.export] {
                if !stream.write_all(part).await {
                    // The link is over, which `wait_for` below returns.
                    std::future::pending::<()>().await;
                }
            }
        };
        tokio::select! {
            () = writing => {}
            failed = self.wait_for("credit for the keys", REPORT_TIME, |_| false) => {
                return failed.map(|helper| helper.ready);
            }
        }
        self.link
            .with_mux(keybridge_proto::mux::Endpoint::end_keys)
            .map_err(|error| Error::from_source(ErrorKind::Failed, error))?;
        let helper = self.wait_for(REPORT, REPORT_TIME, |helper| helper.reports > before).await?;
        Ok(helper.ready)
    }

    /// Waits until the helper has sent what is awaited. Fails if the helper does, and after `limit`.
    async fn wait_for(
        &self,
        what: &str,
        limit: Duration,
        mut is_there: impl FnMut(&HelperState) -> bool,
    ) -> Result<HelperState> {
        let mut helper = self.helper.clone();
        let waiting =
            helper.wait_for(|now| is_there(now) || now.failure.is_some() || now.end.is_some());
        match tokio::time::timeout(limit, waiting).await {
            Ok(Ok(now)) if is_there(&now) => Ok(now.clone()),
            Ok(Ok(now)) => Err(now.error()),
            Ok(Err(_)) => Err(BridgeEnd::Stopped.into()),
            Err(_) => Err(Error::failed(format!(
                "the helper in {} sent no {what} within {} s",
                printable(&self.admission.settings().target),
                limit.as_secs()
            ))),
        }
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Ends the clients that were passed when it is dropped: their sessions end with the link.
struct Ending(StopSignal);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Handles what the helper sends outside of its streams.
fn note(state: &watch::Sender<HelperState>, admission: &Admission, notice: Notice) {
    match notice {
        Notice::Opened(stream, lane) => admission.opened(stream, lane),
        Notice::Hello(hello) => {
            tracing::info!(program = %printable(&hello.program), "the helper's HELLO came");
            state.send_modify(|helper| helper.greeted = true);
        }
        Notice::Ready(payload) => state.send_modify(|helper| helper.report(&payload)),
        Notice::Error(payload) => state.send_modify(|helper| helper.fail(&payload)),
        Notice::Pong(number) => tracing::trace!(number, "pong"),
        Notice::Direct(payload) => state.send_modify(|helper| helper.offer(&payload)),
        // The mux delivers these only to a helper.
        Notice::KeysEnd | Notice::Stop => {}
    }
}
