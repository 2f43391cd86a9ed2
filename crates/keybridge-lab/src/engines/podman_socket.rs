//! Podman's API at a socket, as a service manager has it.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use super::Program;
use crate::{eventually, short_folder, signal};

/// A socket at which Podman answers, until this is dropped.
pub struct PodmanSocket {
    folder: TempDir,
    service: Option<Child>,
}

impl PodmanSocket {
    /// A socket in a folder of its own.
    pub fn open() -> Self {
        let folder = short_folder("kbp");
        let mut socket = Self { folder, service: None };
        socket.start_again();
        socket
    }

    /// Starts the service after it was killed.
    pub fn start_again(&mut self) {
        let mut service = Program::Podman.command(["system", "service", "--time", "0"]);
        service.arg(self.host()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.service = Some(service.spawn().unwrap());
        let path = self.path();
        eventually("Podman answers", || std::os::unix::net::UnixStream::connect(&path).is_ok());
    }

    /// Kills the service. Its socket stays, and nobody answers there.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    fn end(&mut self, with: Signal) {
        if let Some(mut service) = self.service.take() {
            signal(service.id(), with);
            let _ = service.wait();
        }
    }

    /// Where it answers, as `CONTAINER_HOST` names it.
    pub fn host(&self) -> String {
        format!("unix://{}", self.path().display())
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("sock")
    }
}

impl Drop for PodmanSocket {
    fn drop(&mut self) {
        self.end(Signal::TERM);
    }
}
