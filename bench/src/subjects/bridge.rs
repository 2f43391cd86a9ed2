//! keybridge itself.

use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::error::{Context, Error, Result};
use crate::lab::{Agents, Lab, Target, output};

/// Has git sign and nothing else.
pub(crate) const ONLY_GIT: [&str; 3] = ["--lanes", "git", "--git"];

/// A bridge in the background, as people have it. It is taken down in the end.
pub(crate) struct Bridge {
    /// What `up` said about it.
    status: Value,
    /// The processes of both programs, the host's first.
    pub(crate) pids: [u32; 2],
    down: Command,
}

impl Bridge {
    pub(crate) fn start(
        lab: &Lab,
        agents: &Agents,
        target: &Target,
        options: &[&str],
    ) -> Result<Self> {
        let address = target.address();
        let mut down = target.keybridge(lab, agents);
        down.args(["down", &address]);
        let mut up = target.keybridge(lab, agents);
        up.args(["up", &address, "--json"]).args(options);
        let status = only_bridge(&output(&mut up)?)?;
        let host = status.get("pid").and_then(Value::as_u64).and_then(|pid| pid.try_into().ok());
        let host = host.ok_or_else(|| Error::new(format!("no process: {status}")))?;
        Ok(Self { status, pids: [host, target.helper_of(host)?], down })
    }

    /// The socket of gpg in the target.
    pub(crate) fn socket(&self) -> Result<PathBuf> {
        let socket = self.status.pointer("/lanes/gpg/socket").and_then(Value::as_str);
        let socket = socket.ok_or_else(|| Error::new(format!("no gpg lane: {}", self.status)))?;
        Ok(socket.into())
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Err(error) = output(&mut self.down) {
            eprintln!("{error}");
        }
    }
}

/// The bridge in what `--json` prints.
fn only_bridge(said: &str) -> Result<Value> {
    let said: Value = serde_json::from_str(said).while_doing("keybridge --json")?;
    let bridge = said.get("bridges").and_then(|bridges| bridges.get(0)).cloned();
    bridge.ok_or_else(|| Error::new(format!("no bridge: {said}")))
}
