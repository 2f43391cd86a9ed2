//! A bridge: one link between one target and the host's agents.
//!
//! Everything runs on one thread, in a local runtime: one task for the link, and one for each client.
//! The helper's texts are untrusted: they are cut and made [`printable`] when they arrive.

mod admission;
mod helper_state;
mod session;
mod stats;

use std::cell::Cell;
use std::future::Future;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use keybridge_link::{Link, LinkEnd, Notice, StopSignal, await_start};
use keybridge_proto::gate::Policy;
use keybridge_proto::mux::{Config, Cookie, DEFAULT_MAX_STREAMS, End, LinkError, Version};
use keybridge_proto::report::{KeyChanges, KeysHeader, ProbeResult, Ready};
use keybridge_proto::session::{Limits, Operations};
use keybridge_proto::ssh::KeySelection;
use keybridge_proto::{Lane, PerLane, printable};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;

use crate::agent::GpgAgent;
use crate::git::GitKeys;
use crate::keyring::Keyring;
use crate::keys::PublicKeys;
use crate::ssh_agent::SshDialer;
use crate::{Error, ErrorKind, Result};
use admission::{Admission, SPARE_STREAMS};
pub use helper_state::BridgeEnd;
use helper_state::HelperState;
pub use stats::LaneStats;

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
    /// The name of the target, for errors and before its own words.
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
    /// What the git lane signs with. Without it, every request on that lane is refused.
    pub git: Option<GitKeys>,
    /// Its private-key operations, also those of earlier links.
    pub operations: Operations,
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
            git: None,
            operations: Operations::default(),
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
    /// Closes the helper's input.
    hang_up: StopSignal,
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
        let config = Config::new(End::Host, Version::Two, &settings.lanes);
        let mut bridge = Self::new(config, first, reader, writer, settings, gpg_agent.into())
            .map_err(|error| Error::from_source(ErrorKind::Failed, error))?;
        bridge.wait_for("greeting", REPORT_TIME, |helper| helper.greeted).await?;
        let mut ready = bridge.send(keys).await?;
        for lane in Lane::ALL {
            if !bridge.admission.settings().lanes.contains(&lane) {
                ready.sockets[lane] = None;
            }
        }
        bridge.admission.serve_only(ready.sockets.as_ref().map(|_, socket| socket.is_some()));
        bridge.ready = ready;
        Ok(bridge)
    }

    /// Sets the link up with a version 1 server; returns when it is ready. Such a server can't report
    /// what it has set up, so the caller passes that as `ready`. The export is sent if the gpg lane is lent;
    /// an empty one is refused, since a server replaces the target's keys by it.
    pub async fn start_version_1(
        reader: impl AsyncRead + Unpin + 'static,
        writer: impl AsyncWrite + Unpin + 'static,
        settings: Settings,
        gpg_agent: impl Into<Option<GpgAgent>>,
        export: &[u8],
        ready: Ready,
    ) -> Result<Self> {
        let sends_keys = settings.lanes.contains(&Lane::Gpg);
        if sends_keys && export.is_empty() {
            return Err(no_keys_for_version_1());
        }
        let mut config = Config::new(End::Host, Version::One, &settings.lanes);
        config.version_1_keys = sends_keys.then(|| export.to_vec());
        let mut bridge = Self::new(config, Vec::new(), reader, writer, settings, gpg_agent.into())
            .map_err(|error| {
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
        mut config: Config,
        first: Vec<u8>,
        mut reader: impl AsyncRead + Unpin + 'static,
        mut writer: impl AsyncWrite + Unpin + 'static,
        settings: Settings,
        gpg_agent: Option<GpgAgent>,
    ) -> Result<Self, LinkError> {
        let version = config.version;
        // The helper has a cap of its own. A few clients past ours get a refusal with a reason.
        config.max_streams =
            settings.max_sessions.max(DEFAULT_MAX_STREAMS).saturating_add(SPARE_STREAMS);
        let link = Link::new(config)?;
        let (stopping, hang_up) = (Rc::new(Cell::new(false)), StopSignal::default());
        let (state, helper) = watch::channel(HelperState::of(&settings.target));
        let admission = Rc::new(Admission::new(settings, gpg_agent));
        let task = tokio::task::spawn_local({
            let (link, admission) = (link.clone(), Rc::clone(&admission));
            let (stopping, hang_up) = (Rc::clone(&stopping), hang_up.clone());
            async move {
                let on_notice = |notice| note(version, &state, &admission, notice);
                let running = link.run(&first, &mut reader, &mut writer, on_notice);
                let end = match hang_up.unless_set(running).await {
                    Some(end) => end,
                    None => hang_up_and_drain(reader, writer).await,
                };
                state.send_modify(|helper| helper.ended(&end, stopping.get()));
            }
        });
        let (ready, series) = (Ready::default(), Mutex::new(0));
        Ok(Self { version, link, admission, helper, ready, series, stopping, hang_up, task })
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
    pub(crate) fn check_link(&self) {
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

    /// Whether it has the gpg lane.
    pub(crate) fn has_gpg_agent(&self) -> bool {
        self.admission.has_gpg_agent()
    }

    /// The keys of gpg-agent, if a lane lends them.
    pub fn keyring(&self) -> Option<&Keyring> {
        self.admission.keyring()
    }

    /// Sets which keys of the ssh-agent clients may use, also those that are connected.
    pub fn set_ssh_keys(&self, keys: KeySelection) {
        self.admission.set_ssh_keys(keys);
    }

    /// Whether it has the ssh lane.
    pub(crate) fn has_ssh_agent(&self) -> bool {
        self.admission.settings().ssh.is_some()
    }

    /// Connects to the ssh-agent, if a lane lends its keys.
    pub(crate) fn ssh_dialer(&self) -> Option<&SshDialer> {
        self.admission.ssh_dialer()
    }

    /// What the git lane signs with, if there is one.
    pub(crate) fn git_keys(&self) -> Option<&GitKeys> {
        self.admission.settings().git.as_ref()
    }

    /// What the bridge has carried.
    pub fn stats(&self) -> PerLane<LaneStats> {
        self.admission.stats()
    }

    /// Tells the helper to undo what it did, and waits for its end.
    pub async fn stop(&self) -> Result<()> {
        self.stopping.set(true);
        match self.version {
            // It has no STOP: the end of its input is all that it understands.
            Version::One => self.hang_up.set(),
            // If the link is dead, `ended` returns at once.
            Version::Two => drop(self.link.with_mux(keybridge_proto::mux::Endpoint::stop)),
        }
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

/// Closes the input of a helper, and reads its output to the end: it may write while it undoes what it did.
async fn hang_up_and_drain(
    mut reader: impl AsyncRead + Unpin,
    mut writer: impl AsyncWrite + Unpin,
) -> LinkEnd {
    // Dropped too: a pipe is closed by that alone.
    let _ = writer.shutdown().await;
    drop(writer);
    match tokio::io::copy(&mut reader, &mut tokio::io::sink()).await {
        Ok(_) => LinkEnd::Eof,
        Err(error) => error.into(),
    }
}

/// The error where a version 1 server would get no keys.
pub(crate) fn no_keys_for_version_1() -> Error {
    Error::failed(
        "there are no public keys to send, and a version 1 server would leave the target none",
    )
    .hint("choose some with --keys, or lend the ssh-agent alone: --lanes ssh")
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Handles what the helper sends outside of its streams.
fn note(
    version: Version,
    state: &watch::Sender<HelperState>,
    admission: &Admission,
    notice: Notice,
) {
    match notice {
        Notice::Opened(stream, lane) => admission.opened(stream, lane),
        Notice::Hello(hello) => {
            state.send_modify(|helper| helper.greet(&hello.program));
        }
        Notice::Ready(payload) => state.send_modify(|helper| helper.report(version, &payload)),
        Notice::Error(payload) => state.send_modify(|helper| helper.fail(&payload)),
        // The mux delivers these only to a helper.
        Notice::KeysEnd | Notice::Stop => {}
    }
}
