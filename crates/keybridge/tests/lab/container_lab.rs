//! Bridges to containers of the real engines, that run in the background.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use rustix::process::Signal;
use serde_json::Value;

use super::{Container, Image, Lab, Program, feed, is_alive, repository, run, signal, text};

/// A helper that needs no library of the target. The one that is built for the tests needs glibc.
pub fn static_helper() -> &'static Path {
    static HELPER: OnceLock<PathBuf> = OnceLock::new();
    HELPER.get_or_init(|| {
        if let Some(dist) = std::env::var_os("KEYBRIDGE_DIST") {
            return PathBuf::from(dist).join("keybridge-remote");
        }
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static");
        let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // No deadline: the first run of all builds it.
        let built = Command::new(cargo)
            .current_dir(repository())
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .args(["build", "--locked", "--quiet", "-p", "keybridge-remote", "--target", &triple])
            .arg("--target-dir")
            .arg(&folder)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(built.status.success(), "building a static helper:\n{}", text(&built.stderr));
        folder.join(triple).join("debug/keybridge-remote")
    })
}

/// A host with keys, a container, and whatever bridges are made between the two.
pub struct ContainerLab {
    // Before the lab: a container that goes away ends what is left of its bridge.
    pub container: Container,
    pub lab: Lab,
}

/// Most tests are about containers of Docker's.
pub type Docker = ContainerLab;

impl ContainerLab {
    /// A fresh container of Docker's, and a host whose primary key only certifies.
    pub fn new(image: Image, options: &[&str]) -> Self {
        Self::new_in(Program::Docker, image, options)
    }

    /// A fresh container of an engine, and a host whose primary key only certifies.
    pub fn new_in(engine: Program, image: Image, options: &[&str]) -> Self {
        let lab = Lab::empty();
        lab.host.make_certify_only_key();
        Self { container: Container::start_in(engine, image, options), lab }
    }

    /// `keybridge` with a folder of its own for its bridges.
    pub fn keybridge<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.lab.keybridge();
        command.env("KEYBRIDGE_STATE", self.lab.at("state"));
        command.envs(self.container.engine.environment());
        if let Some(engine) = std::env::var_os("DOCKER_HOST") {
            command.env("DOCKER_HOST", engine);
        }
        command.args(words);
        command
    }

    /// `keybridge up` for the container.
    pub fn up_command(&self, options: &[&str]) -> Command {
        let mut command = self.keybridge(["up", &self.container.name]);
        command.args(options);
        command
    }

    /// Bridges the container, which has to work; gives back what was shown.
    #[track_caller]
    pub fn up(&self, options: &[&str]) -> String {
        text(&run(&mut self.up_command(options)))
    }

    /// Ends the container's bridge, which has to work.
    #[track_caller]
    pub fn down(&self) -> String {
        text(&run(&mut self.keybridge(["down", &self.container.name])))
    }

    /// The bridges that `status --json` tells of.
    #[track_caller]
    pub fn bridges(&self) -> Vec<Value> {
        let status = run(&mut self.keybridge(["status", "--json"]));
        let status: Value = serde_json::from_slice(&status).unwrap();
        status["bridges"].as_array().unwrap().clone()
    }

    /// What the bridge has logged.
    pub fn log(&self) -> String {
        text(&run(&mut self.keybridge(["logs", &self.container.name])))
    }

    /// Helpers that run in the container.
    pub fn helpers(&self) -> Vec<String> {
        self.container.processes("keybridge-remote")
    }

    /// Whether gpg signs in the container.
    pub fn signs(&self, user: Option<&str>) -> Output {
        feed(&mut self.container.command(user, ["gpg", "--batch", "--clear-sign"]), b"words\n")
    }
}

impl Drop for ContainerLab {
    fn drop(&mut self) {
        // What a test that failed has left.
        let Ok(status) = self.keybridge(["status", "--json"]).output() else { return };
        let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        let pids = status["bridges"].as_array().into_iter().flatten();
        let pids: Vec<_> = pids.filter_map(|bridge| bridge["pid"].as_u64()).collect();
        if pids.is_empty() {
            return;
        }
        let _ = self.keybridge(["down", "--all"]).output();
        for pid in pids.into_iter().filter_map(|pid| u32::try_from(pid).ok()) {
            if is_alive(pid) {
                signal(pid, Signal::KILL);
            }
        }
    }
}
