//! Starts, finds and ends the bridges of this user.

use std::future::Future;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use keybridge_proto::printable;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tracing::level_filters::LevelFilter;

use super::control::{self, LINE_LIMIT, Reply, Request};
use super::state::{StateFolder, StateRoot};
use super::{BridgeState, BridgeStatus};
use crate::config::{ConfigFile, Options, Settings};
use crate::report::{Event, Report};
use crate::setup::BridgeSetup;
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
    /// The program whose `serve` is a bridge.
    program: PathBuf,
    options: Options,
    config: ConfigFile,
}

/// What [`BridgeManager::up`] found or made.
#[derive(Debug)]
pub struct Ensured {
    /// How the bridge is.
    pub status: BridgeStatus,
    /// Whether it was there before.
    pub was_there: bool,
}

/// What became of the changes in a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Downed {
    /// They are undone.
    Undone,
    /// They are noted, and undone when the target can be reached again, which it can't now.
    Later(String),
}

/// What a bridge tells whoever started it, a line each.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "told", rename_all = "kebab-case")]
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
pub(super) enum Told {
    /// It has begun, and nobody waits for its first link.
    Begun,
    /// It works.
    Ready(BridgeStatus),
    /// Another process has the target's lock.
    Busy,
    /// It can't be set up.
    Failed(Error),
    /// The target was removed.
    Gone,
}

impl BridgeManager {
    /// The bridges of this user; new ones get these options.
    pub fn new(options: Options) -> Result<Self> {
        let program = std::env::current_exe()
            .map_err(|error| Error::failed(format!("finding this program: {error}")))?;
        let config = ConfigFile::default();
        Ok(Self { root: StateRoot::open()?, program, options, config })
    }

    /// Has new bridges use this configuration file.
    #[must_use]
    pub fn with_config(self, config: ConfigFile) -> Self {
        Self { config, ..self }
    }

    /// Makes sure that a target is bridged, and shows the steps of it.
    pub async fn up(&self, address: &TargetAddress, report: &Report) -> Result<Ensured> {
        let target = Target::find(address, self.options.user.as_deref()).await?;
        let (address, folder) = (target.address(), self.root.folder(&target.key()));
        // A wrong word is told before anything is started.
        let settings = self.settings(&address)?;
        // A bridge that is just ending gives its lock back, so there are a few turns at most.
        for _ in 0..MOST_TURNS {
            if folder.is_alive() {
                match wait(&folder, &settings).await {
                    Ok(status) => return Ok(Ensured { status, was_there: true }),
                    Err(error) if folder.is_alive() => return Err(error),
                    Err(_) => {}
                }
            }
            match self.start(&address, &folder, report).await? {
                Told::Ready(status) => return Ok(Ensured { status, was_there: false }),
                Told::Failed(error) => return Err(error),
                Told::Begun | Told::Busy | Told::Gone => {}
            }
        }
        Err(Error::failed(format!("{address}: its bridge comes and goes"))
            .hint("keybridge logs shows what it did"))
    }

    /// Sends the public keys to a bridged target again; tells how many are new, updated, unchanged.
    pub async fn sync(&self, folder: &StateFolder) -> Result<(u32, u32, u32)> {
        match ask(folder, Request::Sync).await? {
            Reply::Synced { new, updated, unchanged } => Ok((new, updated, unchanged)),
            other @ (Reply::Status(_) | Reply::Done | Reply::Noted { .. } | Reply::Failed(_)) => {
                Err(unfit(&other))
            }
        }
    }

    /// Ends a bridge, and waits until it is gone.
    pub async fn down(&self, folder: &StateFolder) -> Result<Downed> {
        // It answers when everything is undone, and ends right after that.
        let answer = match ask(folder, Request::Stop).await {
            Ok(answer) => answer,
            Err(error) => {
                // It may be ending by itself.
                let ended = tokio::time::timeout(ENDING_TIME, folder.ended()).await;
                return match ended {
                    Ok(Ok(())) if folder.undo_is_due() => Ok(Downed::Later(error.message)),
                    Ok(Ok(())) => Ok(Downed::Undone),
                    Ok(Err(_)) | Err(_) => Err(error),
                };
            }
        };
        folder.ended().await?;
        match answer {
            Reply::Done => Ok(Downed::Undone),
            Reply::Noted { why } => Ok(Downed::Later(why)),
            other @ (Reply::Status(_) | Reply::Synced { .. } | Reply::Failed(_)) => {
                Err(unfit(&other))
            }
        }
    }

    /// Undoes what a bridge has left in its target that is no more.
    pub async fn undo(&self, address: &TargetAddress, folder: &StateFolder) -> Result<Downed> {
        let target = match Target::find(address, self.options.user.as_deref()).await {
            Ok(target) => target,
            Err(error) => return Ok(Downed::Later(error.message)),
        };
        let Some(_lock) = folder.lock()? else { return self.down(folder).await };
        let settings = self.config.settings(&target.address().to_string(), &self.options)?;
        let token = self.root.token(&target.key())?;
        BridgeSetup::new(&target, &settings).outliving(&token).undo().await?;
        folder.undone();
        folder.clear();
        Ok(Downed::Undone)
    }

    /// How the bridge of a target is, which has to be there.
    pub async fn status(&self, address: &TargetAddress) -> Result<BridgeStatus> {
        let folder = self.folder(address).await?;
        if folder.is_alive() {
            let status = status(&folder).await;
            return Ok(status.unwrap_or_else(|error| silent(&folder, &error)));
        }
        let why = folder.end().map(|why| format!(": {}", printable(&why)));
        let message = format!("{address} is not bridged{}", why.unwrap_or_default());
        Err(Error::new(ErrorKind::NoTarget, message).hint(format!("keybridge up {address}")))
    }

    /// Every bridge that lives, with how it is.
    pub async fn all(&self) -> Vec<(StateFolder, BridgeStatus)> {
        let mut all = Vec::new();
        for folder in self.root.folders().into_iter().filter(StateFolder::is_alive) {
            let status = status(&folder).await;
            let status = status.unwrap_or_else(|error| silent(&folder, &error));
            all.push((folder, status));
        }
        all
    }

    /// The folder of a target's bridge, by the words that a person uses for it: the target's own
    /// address where it can be found, else the name that the bridge noted.
    pub async fn folder(&self, address: &TargetAddress) -> Result<StateFolder> {
        match Target::find_any(address, None).await {
            Ok((target, _)) => Ok(self.root.folder(&target.key())),
            Err(error) => {
                let noted = |folder: &StateFolder| {
                    folder.target().is_some_and(|noted| address.may_mean(&noted))
                };
                self.root.folders().into_iter().find(noted).ok_or(error)
            }
        }
    }

    async fn start(
        &self,
        address: &TargetAddress,
        folder: &StateFolder,
        report: &Report,
    ) -> Result<Told> {
        let mut child = self.spawn(&mut self.serve_command(address), folder)?;
        let told = listen(&mut child, folder, report).await;
        match told {
            Ok(Told::Ready(_)) => let_go(&mut child).await,
            Ok(Told::Begun | Told::Busy | Told::Gone | Told::Failed(_)) | Err(_) => {
                end(&mut child).await;
            }
        }
        told
    }

    /// The command that is the bridge of a target.
    pub(super) fn serve_command(&self, address: &TargetAddress) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("serve").arg(address.to_string());
        command.args(self.options.to_flags()).args(["--log", &log_level()]);
        if let Some(path) = self.config.path() {
            command.arg("--config").arg(path);
        }
        command
    }

    /// Starts the process of a bridge. It ends when its standard input is closed without a word.
    pub(super) fn spawn(&self, command: &mut Command, folder: &StateFolder) -> Result<Child> {
        // Added to: it may be that of another process, which has the lock.
        let log = folder.open_log()?;
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .map_err(|error| Error::failed(format!("{}: {error}", self.program.display())))
    }

    /// The folders of all bridges.
    pub(super) const fn root(&self) -> &StateRoot {
        &self.root
    }

    /// The settings of a bridge to a target of this address, to see that they are right.
    pub(super) fn settings(&self, address: &TargetAddress) -> Result<Settings> {
        self.config.settings(&address.to_string(), &self.options)
    }
}

/// Lets a bridge that works go on by itself.
async fn let_go(child: &mut Child) {
    if let Some(mut input) = child.stdin.take() {
        // One that has ended meanwhile needs no word.
        let _ = input.write_all(b"\n").await;
    }
}

/// Ends a bridge that came to nothing, and waits until it has undone what it did.
async fn end(child: &mut Child) {
    drop(child.stdin.take());
    if tokio::time::timeout(UNDOING_TIME, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

/// A bridge notes what it does, also where a person at a terminal wants to see warnings alone.
fn log_level() -> String {
    LevelFilter::current().max(LevelFilter::INFO).to_string()
}

/// How long a bridge may take that has closed its control socket.
const ENDING_TIME: Duration = Duration::from_secs(5);

/// How long a bridge that came to nothing may take to undo what it did: its helper has ten seconds.
pub(super) const UNDOING_TIME: Duration = Duration::from_secs(20);

/// How often a bridge may be gone when it is looked for again.
const MOST_TURNS: usize = 5;

/// Shows what a starting bridge tells, until it is ready or has given up.
async fn listen(child: &mut Child, folder: &StateFolder, report: &Report) -> Result<Told> {
    let Some(stdout) = child.stdout.take() else {
        return Err(Error::failed("a bridge without an output"));
    };
    let mut lines = BufReader::new(stdout);
    let mut line = String::new();
    loop {
        line.clear();
        let read = (&mut lines).take(LINE_LIMIT).read_line(&mut line).await;
        if read.map_err(|error| Error::failed(error.to_string()))? == 0 {
            let log = folder.log();
            return Err(Error::failed("the bridge's process ended before it was ready")
                .hint(format!("see the end of {}", log.display())));
        }
        if let Ok(event) = serde_json::from_str::<Event>(&line) {
            report.show(&event);
        } else if let Ok(told) = serde_json::from_str::<Told>(&line) {
            return Ok(told);
        }
    }
}

impl Bridges for BridgeManager {
    async fn ensure(&self, container: &str) -> Result<()> {
        self.up(&TargetAddress::Container(container.to_owned()), &Report::silent())
            .await
            .map(|_| ())
    }

    async fn stop(&self, container: &str) -> Result<()> {
        let folder = self.root.folder(container);
        if folder.is_alive() { self.down(&folder).await.map(|_| ()) } else { Ok(()) }
    }

    async fn stop_all(&self) -> Result<()> {
        let mut first = keybridge_proto::session::FirstError::default();
        for folder in self.root.folders().into_iter().filter(StateFolder::is_alive) {
            first.note(self.down(&folder).await.map(|_| ()));
        }
        first.into_result()
    }

    fn is_running(&self, container: &str) -> bool {
        self.root.folder(container).is_alive()
    }
}

/// How a bridge is that lives and says nothing.
fn silent(folder: &StateFolder, error: &Error) -> BridgeStatus {
    let target = folder.target().unwrap_or_default();
    BridgeStatus { target, ..BridgeStatus::default() }.failed(error)
}

/// How a bridge is.
async fn status(folder: &StateFolder) -> Result<BridgeStatus> {
    match ask(folder, Request::Status).await? {
        Reply::Status(status) => Ok(status),
        other @ (Reply::Synced { .. } | Reply::Done | Reply::Noted { .. } | Reply::Failed(_)) => {
            Err(unfit(&other))
        }
    }
}

/// Tells a bridge what is to be lent, and waits until it works or can't.
async fn wait(folder: &StateFolder, settings: &Settings) -> Result<BridgeStatus> {
    let Settings { gnupg_home, ssh_auth_sock, git, .. } = settings.clone();
    let (ssh_keys, lending) = (settings.said_ssh_keys.clone(), settings.said_lending.clone());
    match ask(folder, Request::Up { gnupg_home, ssh_auth_sock, ssh_keys, git, lending }).await? {
        Reply::Status(status) if status.state == BridgeState::Ready => Ok(status),
        Reply::Status(status) => Err(status.error()),
        other @ (Reply::Synced { .. } | Reply::Done | Reply::Noted { .. } | Reply::Failed(_)) => {
            Err(unfit(&other))
        }
    }
}

async fn ask(folder: &StateFolder, question: Request) -> Result<Reply> {
    control::ask(&folder.control_socket(), &question).await
}

fn unfit(answer: &Reply) -> Error {
    let answer = serde_json::to_string(answer).unwrap_or_default();
    Error::failed(format!("the bridge gave an answer of another kind: {}", printable(&answer)))
        .hint("it may be of another version: keybridge down, then up")
}
