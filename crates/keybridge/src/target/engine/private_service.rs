//! A service of Podman's that only we know, and that ends with us.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use keybridge_proto::printable;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tracing::info;

use super::ANSWER_TIME;
use super::error::how_to_start;
use super::private_folder::PrivateFolder;
use crate::target::EngineKind;
use crate::{Error, ErrorKind, Result};

/// How often a service that is starting is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A service in a folder that nobody else can enter.
#[derive(Debug)]
pub(super) struct PrivateService {
    folder: PrivateFolder,
    running: Mutex<Running>,
}

/// Ended when it is dropped.
#[derive(Debug)]
struct Running(Child);

impl PrivateService {
    /// Starts a service, and waits until it answers.
    pub(super) async fn start() -> Result<Self> {
        let folder = PrivateFolder::make();
        let folder = folder.map_err(|error| failed(&format!("a folder for it: {error}")))?;
        let running = Mutex::new(Running::start(folder.path()).await?);
        Ok(Self { folder, running })
    }

    /// Where it answers.
    pub(super) fn host(&self) -> String {
        format!("unix://{}", socket(self.folder.path()).display())
    }

    /// Starts it again if it has ended.
    pub(super) async fn keep_running(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        if let Ok(None) = running.0.try_wait() {
            return Ok(());
        }
        info!("Podman's service has ended, and is started again");
        *running = Running::start(self.folder.path()).await?;
        Ok(())
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("sock")
}

impl Running {
    async fn start(folder: &Path) -> Result<Self> {
        let complaints = folder.join("complaints");
        let log = File::create(&complaints).map_err(|error| failed(&error.to_string()))?;
        // One that was killed has left it, and it would look as if somebody answered.
        let _ = std::fs::remove_file(socket(folder));
        // The kernel ends it with us, also if we are killed; its own idle time wouldn't, since
        // commands that it runs outlive us.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "podman"])
            // Whatever it would say while it runs, it says to whoever asks too.
            .args(["--log-level", "fatal", "system", "service", "--time", "0"])
            .arg(format!("unix://{}", socket(folder).display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // Ctrl-C is for us alone.
            .process_group(0)
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    failed("it is started by setpriv, which isn't there").hint("install util-linux")
                }
                _ => failed(&format!("setpriv: {error}")),
            })?;
        let mut running = Self(child);
        running.answers(folder).await.map_err(|why| {
            let said = std::fs::read(&complaints).unwrap_or_default();
            let said = said.trim_ascii().rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
            failed(&format!("{why}{}{}", if said.is_empty() { "" } else { ": " }, printable(said)))
                .hint("see what `podman info` says")
        })?;
        Ok(running)
    }

    /// Waits until it answers; or tells why it doesn't.
    async fn answers(&mut self, folder: &Path) -> Result<(), String> {
        let start = Instant::now();
        while UnixStream::connect(socket(folder)).await.is_err() {
            if let Ok(Some(status)) = self.0.try_wait() {
                return Err(format!("it ended at once, {status}"));
            }
            if start.elapsed() > ANSWER_TIME {
                return Err(format!("no answer within {} s", ANSWER_TIME.as_secs()));
            }
            sleep(LOOK_AGAIN).await;
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Not killed: as a normal user Podman is two processes, one of which ends the other.
        let pid = self.0.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

fn failed(why: &str) -> Error {
    Error::new(ErrorKind::NoTarget, format!("a service of Podman's for keybridge: {why}"))
        .hint(how_to_start(EngineKind::Podman))
}
