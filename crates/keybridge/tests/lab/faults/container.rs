//! A container in which clients sign all the time, and all that an engine can do to it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;

use crate::lab::{Image, output, run, text};

use super::processes;
use super::signers::Signers;

/// A container that stays when it stops. It is removed in the end.
pub struct SigningContainer {
    pub name: String,
    pub signers: Signers,
    /// The whole id, which is another one after it was made again.
    id: Mutex<String>,
    engine: PathBuf,
    options: Vec<String>,
}

impl SigningContainer {
    /// Starts a container of an engine. Its clients wait to be told.
    pub fn start(engine: &Path, signers: Signers, options: &[&str]) -> Self {
        let container = Self {
            name: format!("kbt-{}", uuid::Uuid::new_v4().simple()),
            signers,
            id: Mutex::default(),
            engine: engine.to_owned(),
            options: options.iter().map(|&option| option.to_owned()).collect(),
        };
        container.make();
        container
    }

    /// The whole id.
    pub fn id(&self) -> String {
        self.id.lock().unwrap().clone()
    }

    /// The engine's own program.
    pub fn docker(&self, words: &[&str]) -> Command {
        let mut command = keybridge_lab::command("docker");
        command.env("DOCKER_HOST", format!("unix://{}", self.engine.display())).args(words);
        command
    }

    /// Runs a script in the container that may fail.
    pub fn sh(&self, script: &str) -> Output {
        output(&mut self.docker(&["exec", &self.name, "sh", "-c", script]))
    }

    /// Whether its first process runs, paused or not.
    pub fn is_running(&self) -> bool {
        let format = "--format={{.State.Running}}";
        text(&output(&mut self.docker(&["inspect", format, &self.id()])).stdout).trim() == "true"
    }

    /// A path of the container as this machine sees it. The engine isn't asked: it may not answer.
    pub fn path_from_outside(&self, path: &str) -> PathBuf {
        let pid = processes::first_of(&self.id()).expect("the container runs");
        PathBuf::from(format!("/proc/{pid}/root{path}"))
    }

    /// Has the engine do something to it: `kill`, `start`, `pause`, say.
    #[track_caller]
    pub fn tell(&self, verb: &str) {
        self.tell_with(verb, &[]);
    }

    /// The same with options.
    #[track_caller]
    pub fn tell_with(&self, verb: &str, options: &[&str]) {
        let id = self.id();
        let words: Vec<&str> =
            [verb].into_iter().chain(options.iter().copied()).chain([id.as_str()]).collect();
        run(&mut self.docker(&words));
    }

    /// Starts a container under the name, for the first time or after it was removed.
    pub fn make(&self) {
        let volume = self.signers.volume();
        let mut docker = self.docker(&["run", "-d", "--network", "none", "--name", &self.name]);
        docker.args(["--volume", &volume]).args(&self.options);
        let id = run(docker.arg(Image::Bookworm.name()).args(self.signers.command()));
        *self.id.lock().unwrap() = text(&id).trim().to_owned();
    }
}

impl Drop for SigningContainer {
    fn drop(&mut self) {
        // By its name: whichever container has it.
        let _ = self.docker(&["rm", "-f", "-v", &self.name]).output();
    }
}
