//! Starts and finds the bridges of this user.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use keybridge_proto::printable;
use tokio::process::Command;
use tracing::level_filters::LevelFilter;

use super::BridgeStatus;
use super::control::{self, Synced, TakenOver};
use super::process::{BridgeProcess, ProcessGuard, ProcessMessage};
use super::state::{StateFolder, StateRoot};
use crate::config::{ConfigFile, Invocation, Options, Settings};
use crate::join::join_all;
use crate::keyring::Ceiling;
use crate::output::Report;
use crate::target::{Target, TargetAddress};
use crate::{Error, ErrorKind, Result};

/// The bridges of containers, for programs that start and stop those.
pub trait Bridges {
    /// Makes sure that a container is bridged.
    fn ensure(&self, container: &str) -> impl Future<Output = Result<()>>;
    /// Ends a container's bridge, if there is one.
    fn stop(&self, container: &str) -> impl Future<Output = Result<()>>;
    /// Ends every bridge.
    fn stop_all(&self) -> impl Future<Output = Result<()>>;
    /// Whether a container is bridged, by its whole id.
    fn is_running(&self, container: &str) -> bool;
}

/// The bridges of this user, each a process of its own.
#[derive(Debug)]
pub struct BridgeManager {
    root: StateRoot,
    /// The program that is run as `keybridge serve`.
    program: PathBuf,
    /// What the caller asks for.
    invocation: Invocation,
    config: ConfigFile,
}

/// What [`BridgeManager::up`] found or made.
#[derive(Debug)]
pub(crate) enum UpOutcome {
    /// A new bridge.
    Started(BridgeStatus),
    /// A bridge that was up before.
    AlreadyUp {
        /// How it is.
        status: BridgeStatus,
        /// The names of the settings that it has kept, though a new bridge would have others: those
        /// that the caller didn't name.
        kept: Vec<String>,
        /// The names of the settings that the caller has changed.
        changed: Vec<String>,
    },
}

impl BridgeManager {
    /// The bridges of this user; new ones get these options.
    pub fn new(options: Options) -> Result<Self> {
        let program = std::env::current_exe().map_err(|error| {
            Error::failed("can't find the path of this program").caused_by(error)
        })?;
        let config = ConfigFile::default();
        Ok(Self { root: StateRoot::open()?, program, invocation: Invocation::new(options), config })
    }

    /// Uses this configuration file for new bridges.
    #[must_use]
    pub fn with_config(self, config: ConfigFile) -> Self {
        Self { config, ..self }
    }

    /// Sends the questions of logins to this socket.
    #[must_use]
    pub(crate) fn asking_at(mut self, asker: Option<PathBuf>) -> Self {
        self.invocation.asker = asker;
        self
    }

    /// Lets bridges lend more than before, for a person who runs `up`.
    #[must_use]
    pub(crate) fn raising(mut self, raises: bool) -> Self {
        self.invocation.raises = raises;
        self
    }

    /// Makes sure that a target is bridged, with what the caller names, and shows the steps.
    pub(crate) async fn up(&self, address: &TargetAddress, report: &Report) -> Result<UpOutcome> {
        self.bring_up(address, &self.invocation, report).await
    }

    /// Makes sure that a target is bridged. A bridge that is up keeps all of its settings.
    pub(crate) async fn join(&self, address: &TargetAddress, report: &Report) -> Result<UpOutcome> {
        self.bring_up(address, &self.invocation.naming_nothing(), report).await
    }

    /// Starts a bridge with what the caller names. One that is up takes over what `names` does.
    async fn bring_up(
        &self,
        address: &TargetAddress,
        names: &Invocation,
        report: &Report,
    ) -> Result<UpOutcome> {
        let target = Target::find(address, self.user()).await?;
        let (address, folder) = (target.address(), self.root.folder(&target.key()));
        // A wrong setting is an error before anything is started.
        self.settings(&address)?;
        // A bridge that is ending still has its lock for a moment, so this may take a few turns.
        for _ in 0..MAX_TURNS {
            if folder.is_alive() {
                match self.take_over(&address, &folder, names, report).await {
                    Ok(outcome) => return Ok(outcome),
                    Err(error) if folder.is_alive() => return Err(error),
                    Err(_) => {}
                }
            }
            match self.start(&address, &folder, report).await? {
                ProcessMessage::Ready(status) => return Ok(UpOutcome::Started(status)),
                ProcessMessage::Failed(error) => return Err(error),
                ProcessMessage::Begun | ProcessMessage::Busy | ProcessMessage::Removed => {}
            }
        }
        Err(Error::failed(format!("the bridge to {address} keeps ending while it starts"))
            .hint(format!("see keybridge logs {address}")))
    }

    /// Sends the public keys to a bridged target again.
    pub(crate) async fn sync(&self, folder: &StateFolder) -> Result<Synced> {
        control::sync(folder).await
    }

    /// The status of a target's bridge. No bridge is an error.
    pub(crate) async fn status(&self, address: &TargetAddress) -> Result<BridgeStatus> {
        let folder = self.folder(address).await?;
        if let Some(status) = self.status_at(&folder).await {
            return Ok(status);
        }
        let why = folder.end_reason().map(|why| format!(": {}", printable(&why)));
        let message = format!("{address} is not bridged{}", why.unwrap_or_default());
        let error = Error::new(ErrorKind::NoTarget, message);
        let error = error.hint(format!("keybridge up {address}"));
        if folder.undo_is_due() {
            return Err(error.hint(format!("keybridge down {address} undoes what is left there")));
        }
        Err(error)
    }

    /// How long a question and its answer take over the link of a bridge; `None` if it doesn't answer.
    pub(crate) async fn round_trip(&self, folder: &StateFolder) -> Result<Option<Duration>> {
        control::round_trip(folder).await
    }

    /// The status of the bridge with this folder; `None` if it isn't up.
    pub(crate) async fn status_at(&self, folder: &StateFolder) -> Option<BridgeStatus> {
        if !folder.is_alive() {
            return None;
        }
        let status = control::status(folder).await;
        Some(status.unwrap_or_else(|error| unresponsive(folder, &error)))
    }

    /// The folder of every bridge that is up.
    pub(crate) fn alive(&self) -> impl Iterator<Item = StateFolder> {
        self.root.folders().into_iter().filter(StateFolder::is_alive)
    }

    /// Every bridge that is up, with its status.
    pub(crate) async fn all(&self) -> Vec<(StateFolder, BridgeStatus)> {
        // Side by side: one that doesn't answer must not add up with another.
        join_all(self.alive().map(async |folder| {
            let status = control::status(&folder).await;
            let status = status.unwrap_or_else(|error| unresponsive(&folder, &error));
            (folder, status)
        }))
        .await
    }

    /// The targets whose bridges were killed, and not ended by anybody since.
    pub(crate) fn killed(&self) -> impl Iterator<Item = (TargetAddress, StateFolder)> {
        self.not_undone().filter(|(_, folder)| folder.has_died())
    }

    /// The targets that have to be undone: their bridges were killed, or couldn't do it.
    pub(crate) fn not_undone(&self) -> impl Iterator<Item = (TargetAddress, StateFolder)> {
        let folders = self.root.folders().into_iter().filter(StateFolder::undo_is_due);
        let noted = |folder: StateFolder| Some((folder.target()?.parse().ok()?, folder));
        folders.filter_map(noted)
    }

    /// The folder of the bridge of a target with this key.
    pub(crate) fn folder_of(&self, key: &str) -> StateFolder {
        self.root.folder(key)
    }

    /// The folder of a target's bridge. A target that can't be found any more is looked up by the address
    /// that its bridge has noted.
    pub(crate) async fn folder(&self, address: &TargetAddress) -> Result<StateFolder> {
        match Target::find_any(address, None).await {
            Ok((target, _)) => Ok(self.root.folder(&target.key())),
            Err(error) => {
                let noted = |folder: &StateFolder| {
                    folder.target().is_some_and(|noted| address.may_mean(&noted))
                };
                let folders = self.root.folders().into_iter().filter(noted);
                folders.max_by_key(|folder| (folder.is_alive(), folder.started())).ok_or(error)
            }
        }
    }

    async fn start(
        &self,
        address: &TargetAddress,
        folder: &StateFolder,
        report: &Report,
    ) -> Result<ProcessMessage> {
        let (mut process, guard) =
            self.start_process(&mut self.serve_command(address), folder, None).await?;
        let message = process.message(report).await;
        if let Ok(Some(ProcessMessage::Ready(_))) = message {
            guard.release().await;
        } else {
            process.end(guard).await;
        }
        message.map_err(|error| Error::failed(error.to_string()))?.ok_or_else(|| {
            Error::failed(format!(
                "the process of the bridge to {address} ended before it was ready"
            ))
            .hint(format!("the end of {} says why", folder.log().display()))
        })
    }

    /// Has a bridge that is up take over what an invocation names, and waits until it works or can't.
    async fn take_over(
        &self,
        address: &TargetAddress,
        folder: &StateFolder,
        names: &Invocation,
        report: &Report,
    ) -> Result<UpOutcome> {
        let TakenOver { status, options, changed, warnings } = control::up(folder, names).await?;
        for warning in warnings {
            report.warn(&printable(&warning).to_string());
        }
        let wanted = self.config.layered(&address.to_string(), &self.invocation.options);
        Ok(UpOutcome::AlreadyUp { status, kept: wanted.differing(&options), changed })
    }

    /// The command that serves the bridge of a target.
    pub(super) fn serve_command(&self, address: &TargetAddress) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("serve").arg(address.to_string());
        command.args(["--log", &log_level()]);
        if let Some(path) = self.config.path() {
            command.arg("--config").arg(path);
        }
        command
    }

    /// Starts the process of a bridge, which lives as long as its guard.
    pub(super) async fn start_process(
        &self,
        command: &mut Command,
        folder: &StateFolder,
        ceiling: Option<Ceiling>,
    ) -> Result<(BridgeProcess, ProcessGuard)> {
        let invocation = Invocation { ceiling, ..self.invocation.clone() };
        BridgeProcess::start(command, &invocation, folder).await
    }

    /// The folders of all bridges.
    pub(super) const fn root(&self) -> &StateRoot {
        &self.root
    }

    pub(super) fn user(&self) -> Option<&str> {
        self.invocation.options.user.as_deref()
    }

    /// All settings that targets can have by now, checked.
    pub(super) fn all_settings(&self) -> Result<Vec<Settings>> {
        self.config.all_settings(&self.invocation)
    }

    /// The settings for a target, checked.
    pub(super) fn settings(&self, address: &TargetAddress) -> Result<Settings> {
        self.config.settings_for(&address.to_string(), &self.invocation)
    }
}

/// The background process logs at least at level info, whatever the terminal shows.
fn log_level() -> String {
    LevelFilter::current().max(LevelFilter::INFO).to_string()
}

/// How often a bridge may end while it is being connected to.
const MAX_TURNS: usize = 5;

impl Bridges for BridgeManager {
    async fn ensure(&self, container: &str) -> Result<()> {
        self.join(&TargetAddress::Container(container.to_owned()), &Report::silent())
            .await
            .map(|_| ())
    }

    async fn stop(&self, container: &str) -> Result<()> {
        let folder = self.root.folder(container);
        if folder.is_alive() { self.down(&folder).await.map(|_| ()) } else { Ok(()) }
    }

    async fn stop_all(&self) -> Result<()> {
        let ended = self.alive().map(async |folder| self.down(&folder).await.map(|_| ()));
        let ended = join_all(ended).await;
        ended.into_iter().collect()
    }

    fn is_running(&self, container: &str) -> bool {
        self.root.folder(container).is_alive()
    }
}

/// The status of a bridge that is up but doesn't answer.
fn unresponsive(folder: &StateFolder, error: &Error) -> BridgeStatus {
    let target = folder.target().unwrap_or_default();
    BridgeStatus { target, ..BridgeStatus::default() }.failed(error)
}
