//! A Podman service that we start for ourselves, and that ends with us.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use keybridge_link::LocalStream;
use keybridge_proto::{last_line, printable};
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::engine::ANSWER_TIME;
use crate::engine::EngineKind;
use crate::engine::error::how_to_start;
use crate::engine::private_folder::PrivateFolder;
use crate::platform::{lead_group, terminate};
use crate::{Error, ErrorKind, Result};

/// How often we check whether a service has started.
const POLL: Duration = Duration::from_millis(10);

/// A service whose socket is in a folder that only this user can enter.
#[derive(Debug)]
pub(crate) struct PrivateService {
    folder: PrivateFolder,
    running: Mutex<Running>,
}

/// Ended when it is dropped.
#[derive(Debug)]
struct Running(Child);

impl PrivateService {
    /// Starts a service, and waits until it answers.
    pub(crate) async fn start() -> Result<Self> {
        let folder = PrivateFolder::make();
        let folder =
            folder.map_err(|error| failed(&format!("can't create its folder: {error}")))?;
        let running = Mutex::new(Running::start(folder.path()).await?);
        Ok(Self { folder, running })
    }

    /// Its address.
    pub(crate) fn host(&self) -> String {
        format!("unix://{}", socket(self.folder.path()).display())
    }

    /// Starts it again if it has ended.
    pub(crate) async fn keep_running(&self) -> Result<()> {
        let mut running = self.running.lock().await;
        if let Ok(None) = running.0.try_wait() {
            return Ok(());
        }
        info!("starting Podman's service again, which has ended");
        *running = Running::start(self.folder.path()).await?;
        Ok(())
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("sock")
}

impl Running {
    async fn start(folder: &Path) -> Result<Self> {
        let stderr = folder.join("stderr");
        let log = File::create(&stderr).map_err(|error| failed(&error.to_string()))?;
        // A service that was killed leaves its socket, which looks as if the new one answered.
        let _ = std::fs::remove_file(socket(folder));
        // The kernel ends it with us, even if we are killed. Its own idle timeout wouldn't, since commands
        // that it runs outlive us.
        let mut command = Command::new("setpriv");
        // Ctrl-C is for us alone.
        lead_group(&mut command);
        let child = command
            .args(["--pdeathsig", "TERM", "podman"])
            // Its errors are in its answers too.
            .args(["--log-level", "fatal", "system", "service", "--time", "0"])
            .arg(format!("unix://{}", socket(folder).display()))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => {
                    failed("the program setpriv is missing").hint("install util-linux")
                }
                _ => failed(&format!("setpriv: {error}")),
            })?;
        let mut running = Self(child);
        running.answers(folder).await.map_err(|why| {
            let said = std::fs::read(&stderr).unwrap_or_default();
            let last = last_line(&said);
            let between = if last.is_empty() { "" } else { ": " };
            failed(&format!("{why}{between}{}", printable(last)))
                .hint("check what `podman info` prints")
        })?;
        Ok(running)
    }

    /// Waits until it answers; or tells why it doesn't.
    async fn answers(&mut self, folder: &Path) -> Result<(), String> {
        let start = Instant::now();
        while LocalStream::connect(socket(folder)).await.is_err() {
            if let Ok(Some(status)) = self.0.try_wait() {
                return Err(format!("it ended at once, {status}"));
            }
            if start.elapsed() > ANSWER_TIME {
                return Err(format!("no answer within {} s", ANSWER_TIME.as_secs()));
            }
            sleep(POLL).await;
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Not killed: as a normal user Podman is two processes, one of which ends the other.
        terminate(&mut self.0);
    }
}

fn failed(why: &str) -> Error {
    Error::new(ErrorKind::NoTarget, format!("can't start a Podman service: {why}"))
        .hint(how_to_start(EngineKind::Podman))
}
