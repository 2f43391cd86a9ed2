//! An engine of a test's own, which can be stopped and killed: the shared one is in use.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use super::{Image, docker};
use crate::{eventually, need_root, output, run, run_with, short_folder, signal, text};

/// A Docker engine with folders of its own, and nothing in it.
pub struct Engine {
    folder: TempDir,
    daemon: Option<Child>,
    options: Vec<String>,
}

impl Engine {
    /// An engine that answers.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// One with more options.
    pub fn start_with(options: &[&str]) -> Self {
        need_root();
        let folder = short_folder("kbe");
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut engine = Self { folder, daemon: None, options };
        engine.start_again();
        engine
    }

    /// Starts it after it was stopped or killed, and waits until it answers.
    pub fn start_again(&mut self) {
        assert!(self.daemon.is_none(), "the engine runs");
        // One that was killed leaves its containerd for a moment, and pid files that keep it from
        // starting while nobody has waited for those processes.
        eventually("the last containerd has ended", || self.processes("containerd ").is_empty());
        let at = |name: &str| self.folder.path().join(name);
        for pid_file in ["pid", "exec/containerd/containerd.pid"] {
            let _ = std::fs::remove_file(at(pid_file));
        }
        let log = File::options().create(true).append(true).open(at("log")).unwrap();
        let daemon = crate::command("dockerd")
            .args(["--bridge=none", "--iptables=false", "--ip6tables=false", "--host"])
            .arg(self.host())
            .arg("--data-root")
            .arg(at("data"))
            .arg("--exec-root")
            .arg(at("exec"))
            .arg("--pidfile")
            .arg(at("pid"))
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("dockerd: {error}"));
        self.daemon = Some(daemon);
        eventually("the engine answers", || {
            let ended = self.daemon.as_mut().unwrap().try_wait().unwrap();
            assert!(ended.is_none(), "dockerd: {ended:?}\n{}", self.last_words());
            self.docker(["version"]).output().is_ok_and(|version| version.status.success())
        });
    }

    /// Ends it, and its containers with it. Its socket is gone then.
    pub fn stop(&mut self) {
        self.end(Signal::TERM);
    }

    /// Kills it. Its containers and its socket stay, and nobody answers there.
    pub fn kill(&mut self) {
        self.end(Signal::KILL);
    }

    fn end(&mut self, with: Signal) {
        let mut daemon = self.daemon.take().expect("the engine runs");
        signal(daemon.id(), with);
        daemon.wait().unwrap();
    }

    /// The process of the engine.
    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().expect("the engine runs").id()
    }

    /// Where it answers, as `DOCKER_HOST` names it.
    pub fn host(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Where it answers.
    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        text(&std::fs::read(self.folder.path().join("log")).unwrap_or_default())
    }

    fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// The engine's own program, for this engine.
    pub fn docker<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = docker(["--host", &self.host()]);
        command.args(words);
        command
    }

    /// Starts a container, and gives back its whole id. It ends with the engine.
    #[track_caller]
    pub fn container(&self, image: Image, name: &str, options: &[&str]) -> String {
        self.load(image);
        let mut docker = self.docker(["run", "-d", "--network", "none", "--name", name]);
        // The first process of a container passes over the usual signal, for ten seconds.
        docker.arg("--stop-signal=KILL");
        let id = run(docker.args(options).args([image.name(), "sleep", "infinity"]));
        text(&id).trim().to_owned()
    }

    /// Brings an image over from the shared engine.
    pub fn load(&self, image: Image) {
        if !output(&mut self.docker(["image", "inspect", image.name()])).status.success() {
            let saved = run(&mut docker(["save", image.name()]));
            run_with(&mut self.docker(["load", "--quiet"]), &saved);
        }
    }

    /// The processes that were started by this name for this engine.
    fn processes(&self, program: &str) -> Vec<u32> {
        let folder = self.folder.path().to_str().unwrap();
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
        let is_ours = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = text(&line).replace('\0', " ");
            let name = line.split(' ').next().unwrap_or_default();
            let name = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
            format!("{name} ").starts_with(program) && line.contains(folder)
        };
        pids.filter(is_ours).collect()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            if let Ok(ids) = self.docker(["ps", "-aq"]).output() {
                let ids = text(&ids.stdout);
                let _ = self.docker(["rm", "-f", "-v"]).args(ids.lines()).output();
            }
            signal(daemon.id(), Signal::TERM);
            let _ = daemon.wait();
        }
        // What an engine that was killed has left: containers under their shims, and mounts.
        for shim in self.processes("containerd-shim") {
            let children = format!("/proc/{shim}/task/{shim}/children");
            let children = std::fs::read_to_string(children).unwrap_or_default();
            signal(shim, Signal::KILL);
            for child in children.split(' ').filter_map(|pid| pid.parse().ok()) {
                signal(child, Signal::KILL);
            }
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounts = mounts.lines().filter_map(|mount| mount.split(' ').nth(1));
        let folder = self.folder.path().to_str().unwrap_or_default();
        for mount in mounts.filter(|mount| mount.starts_with(folder)) {
            let _ = crate::command("umount").args(["--lazy", mount]).output();
        }
    }
}
