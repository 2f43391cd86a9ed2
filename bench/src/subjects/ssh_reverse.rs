//! `ssh -R`: a socket of a host that sshd forwards to one at home.

use std::path::Path;

use crate::error::Result;
use crate::lab::{HOST, Lab, Running, SshHost};

/// Forwards a path of the host to a socket.
pub(crate) fn forward(lab: &Lab, host: &SshHost, path: &str, socket: &Path) -> Result<Running> {
    let forward = format!("{path}:{}", socket.display());
    let running = Running::start(host.ssh(lab).args(["-N", "-R", &forward, HOST]))?;
    host.container.sh(&format!("until test -S {path}; do sleep 0.1; done"))?;
    Ok(running)
}
