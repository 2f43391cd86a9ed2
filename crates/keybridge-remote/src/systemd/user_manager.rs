//! The user's own systemd, which may not run: it comes with a login and goes with the last one.

use std::io;
use std::path::{Path, PathBuf};

use keybridge_link::ProgramOutput;
use keybridge_proto::{last_line, printable};
use serde::{Deserialize, Serialize};

use super::UnitName;
use crate::error::quoted;
use crate::subprocess::{command, run};

/// What a unit did before it was masked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ActiveState {
    /// It listened.
    Active,
    /// It did not.
    Inactive,
    /// There was nobody to be asked.
    Unknown,
}

/// The user's manager, asked by `systemctl --user`.
#[derive(Debug, Clone)]
pub(super) struct UserManager {
    runtime_folder: PathBuf,
}

impl UserManager {
    pub(super) fn new(runtime_folder: PathBuf) -> Self {
        Self { runtime_folder }
    }

    fn is_running(&self) -> bool {
        self.runtime_folder.join("systemd/private").exists()
    }

    /// What a unit does.
    pub(super) async fn state(&self, name: &UnitName) -> ActiveState {
        if !self.is_running() {
            return ActiveState::Unknown;
        }
        match self.systemctl(&["is-active", name.as_str()]).await {
            Ok(output) if output.status.success() => ActiveState::Active,
            // It says so with a status that tells inactive from failed.
            Ok(output) if !output.stdout.trim_ascii().is_empty() => ActiveState::Inactive,
            Ok(_) | Err(_) => ActiveState::Unknown,
        }
    }

    /// Whether a unit listens and has started nothing yet, so that the next client has it start an agent.
    pub(super) async fn is_waiting(&self, name: &UnitName) -> bool {
        self.is_running()
            && self.property("SubState", name.as_str()).await.is_ok_and(|is| is == "listening")
    }

    /// The command with which a person masks a unit, by way of the manager if it runs.
    pub(super) fn how_to_mask(&self, name: &UnitName, masks: &Path) -> String {
        if self.is_running() {
            let folder = quoted(&self.runtime_folder);
            return format!("XDG_RUNTIME_DIR={folder} systemctl --user mask --now {name}");
        }
        let (folder, link) = (quoted(masks), quoted(&name.in_folder(masks)));
        format!("mkdir -p {folder} && ln -s /dev/null {link}")
    }

    /// Has the manager see the masks, and stops the units.
    pub(super) async fn stop(&self, names: &[UnitName]) -> io::Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        self.done(&["daemon-reload"]).await?;
        let names = names.iter().map(UnitName::as_str);
        self.done(&["stop"].into_iter().chain(names).collect::<Vec<_>>()).await
    }

    /// Has the manager see that a mask is gone, and starts the unit if it was active, or would be if it
    /// had not been masked.
    pub(super) async fn restore(&self, name: &UnitName, before: ActiveState) -> io::Result<()> {
        if !self.is_running() {
            return Ok(());
        }
        self.done(&["daemon-reload"]).await?;
        let starts = match before {
            ActiveState::Active => true,
            ActiveState::Inactive => false,
            ActiveState::Unknown => {
                let output = self.systemctl(&["is-enabled", name.as_str()]).await?;
                output.stdout.trim_ascii().starts_with(b"enabled")
            }
        };
        if !starts {
            return Ok(());
        }
        let failed = self.failed_siblings(name).await?;
        let names = [name].into_iter().chain(&failed).map(UnitName::as_str);
        self.done(&["start"].into_iter().chain(names).collect::<Vec<_>>()).await
    }

    /// Other sockets of the same agent that have failed: it could not be started for their clients while
    /// this unit was masked.
    async fn failed_siblings(&self, name: &UnitName) -> io::Result<Vec<UnitName>> {
        let services = self.property("Triggers", name.as_str()).await?;
        let Some(service) = services.split_whitespace().next() else { return Ok(Vec::new()) };
        let sockets = self.property("TriggeredBy", service).await?;
        let mut failed = Vec::new();
        let sockets = sockets.split_whitespace().filter_map(|name| name.parse::<UnitName>().ok());
        for socket in sockets {
            if socket != *name && self.property("ActiveState", socket.as_str()).await? == "failed" {
                failed.push(socket);
            }
        }
        Ok(failed)
    }

    async fn property(&self, property: &str, unit: &str) -> io::Result<String> {
        let arguments = ["show", "--property", property, "--value", "--", unit];
        let output = self.systemctl(&arguments).await?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }

    async fn done(&self, arguments: &[&str]) -> io::Result<()> {
        let output = self.systemctl(arguments).await?;
        if output.status.success() {
            return Ok(());
        }
        let said = printable(last_line(&output.stderr)).to_string();
        Err(io::Error::other(format!("systemctl --user {}: {said}", arguments.join(" "))))
    }

    async fn systemctl(&self, arguments: &[&str]) -> io::Result<ProgramOutput> {
        let mut command = command(Path::new("systemctl"));
        command.args(["--user", "--no-ask-password"]).args(arguments);
        // An exec into a container and a cron job have no such variable.
        command.env("XDG_RUNTIME_DIR", &self.runtime_folder);
        run(&mut command).await
    }
}
