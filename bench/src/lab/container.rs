//! A container to measure in.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Lab, output};
use crate::error::{Context, Result};

/// The label by which whoever ends a run finds what it has left.
const LABEL: &str = "keybridge-bench";

/// A container that runs, without a network. It is removed in the end.
pub(crate) struct Container {
    pub(crate) name: String,
    lab: Lab,
}

impl Container {
    /// Starts one. It sees the lab's folder and another one, each under its own path.
    pub(crate) fn start(lab: &Lab, name: &str, mounted: Option<&Path>) -> Result<Self> {
        let folder = lab.folder.display().to_string();
        let run = folder.rsplit('/').next().unwrap_or_default();
        let name = format!("{run}-{name}");
        let mut docker = lab.command("docker");
        docker.args(["run", "-d", "--rm", "--init", "--network", "none", "--name", &name]);
        docker.args(["--label", &format!("{LABEL}={run}")]);
        let mounted = mounted.filter(|path| !path.starts_with(&lab.folder));
        for path in mounted.into_iter().chain([lab.folder.as_path()]) {
            docker.args(["-v", &format!("{0}:{0}", path.display())]);
        }
        output(docker.args([&lab.image, "sleep", "infinity"]))?;
        Ok(Self { name, lab: lab.clone() })
    }

    /// A command in it, whose standard input and output are ours.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = A>) -> Command {
        let mut docker = self.lab.command("docker");
        docker.args(["exec", "-i", &self.name]).args(words);
        docker
    }

    /// Runs a script in it, which has to end well.
    pub(crate) fn sh(&self, script: &str) -> Result<String> {
        output(self.command(["sh", "-ec", script]).stdin(Stdio::null()))
    }

    /// The process of this machine that is its first one.
    pub(crate) fn pid(&self) -> Result<u32> {
        let mut docker = self.lab.command("docker");
        let pid = output(docker.args(["inspect", "-f", "{{.State.Pid}}", &self.name]))?;
        pid.trim().parse().while_doing("the process of a container")
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.lab.command("docker").args(["rm", "-f", "-v", &self.name]).output();
    }
}
