//! Containers of the real engines, and bridges to them that run in the background.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use rustix::process::Signal;
use serde_json::Value;

use super::{
    Lab, Program, eventually, feed, is_alive, output, repository, run, run_with, signal, text,
};

/// What a container is made from. `scripts/lab` makes the images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// Debian 12 with gpg 2.2.40 and git.
    Bookworm,
    /// Debian 13 with gpg 2.4.7 and git.
    Trixie,
    /// A static busybox, and nothing else.
    Bare,
    /// A program that sleeps, and nothing else.
    NoShell,
}

impl Image {
    /// The name by which the engine knows it.
    pub fn name(self) -> &'static str {
        let name = match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::Bare => "bare",
            Self::NoShell => "noshell",
        };
        Program::Docker.fact(name)
    }
}

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

/// A container that runs, without a network. It is removed in the end.
pub struct Container {
    pub name: String,
    pub id: String,
    pub engine: Program,
}

impl Container {
    /// Starts a container of Docker's with a name of its own.
    pub fn start(image: Image, options: &[&str]) -> Self {
        Self::start_in(Program::Docker, image, options)
    }

    /// Starts a container of an engine with a name of its own.
    pub fn start_in(engine: Program, image: Image, options: &[&str]) -> Self {
        let name = format!("kbt-{}", uuid::Uuid::new_v4().simple());
        Self::start_named(engine, name, image, options)
    }

    /// Starts a container of an engine with this name.
    pub fn start_named(engine: Program, name: String, image: Image, options: &[&str]) -> Self {
        Self::start_from(engine, name, image.name(), options)
    }

    /// Starts a container of an engine with this name, from an image that the engine knows by another.
    pub fn start_from(engine: Program, name: String, image: &str, options: &[&str]) -> Self {
        let mut run_it =
            engine.command(["run", "-d", "--rm", "--network", "none", "--name", &name]);
        // The first process of a container passes over the usual signal, for ten seconds.
        run_it.arg("--stop-timeout=0");
        let id = run(run_it.args(options).args([image, "sleep", "infinity"]));
        Self { name, id: text(&id).trim().to_owned(), engine }
    }

    /// The address that names its engine too.
    pub fn address(&self) -> String {
        format!("{}://{}", self.engine.name(), self.name)
    }

    /// A command in the container, as its default user or another one.
    pub fn command<A: AsRef<OsStr>>(
        &self,
        user: Option<&str>,
        words: impl IntoIterator<Item = A>,
    ) -> Command {
        let mut command = self.engine.command(["exec", "-i"]);
        command.args(user.into_iter().flat_map(|user| ["--user", user]));
        command.arg(&self.name).args(words);
        command
    }

    /// Runs a script, which has to succeed.
    #[track_caller]
    pub fn sh(&self, user: Option<&str>, script: &str) -> String {
        text(&run(&mut self.command(user, ["sh", "-ec", script])))
    }

    /// Runs a script with input, which has to succeed.
    pub fn sh_with(&self, user: Option<&str>, script: &str, input: &[u8]) -> Vec<u8> {
        run_with(&mut self.command(user, ["sh", "-ec", script]), input)
    }

    /// Runs a script that may fail.
    pub fn try_sh(&self, user: Option<&str>, script: &str) -> Output {
        output(&mut self.command(user, ["sh", "-c", script]))
    }

    /// Puts a program into the container.
    pub fn put_program(&self, path: &str, content: &[u8]) {
        let script = format!("cat >{path}; chmod 755 {path}");
        run_with(&mut self.command(Some("0"), ["sh", "-ec", &script]), content);
    }

    /// Every path of the container, those on temporary file systems too.
    pub fn listing(&self) -> BTreeSet<String> {
        let script = "find / -path /proc -prune -o -path /sys -prune -o -print";
        let found = text(&run(&mut self.command(Some("0"), ["sh", "-c", script])));
        found.lines().map(str::to_owned).collect()
    }

    /// Nothing came and nothing went since then, but for an empty cache folder, which any program
    /// makes.
    #[track_caller]
    pub fn assert_unchanged(&self, before: &BTreeSet<String>) {
        let now = self.listing();
        let new = now.difference(before).filter(|path| !path.ends_with("/.cache"));
        let new: Vec<_> = new.collect();
        let gone: Vec<_> = before.difference(&now).collect();
        assert!(new.is_empty() && gone.is_empty(), "left behind: {new:?}, gone: {gone:?}");
    }

    /// The processes of the container that were started by this name. What has ended and was not
    /// waited for has none: nobody waits for orphans there.
    pub fn processes(&self, program: &str) -> Vec<String> {
        let script = "for p in /proc/[0-9]*; do
            echo \"${p#/proc/} $(tr '\\0' ' ' <$p/cmdline)\"
        done 2>/dev/null";
        let found = self.sh(Some("0"), script);
        let is_wanted = |line: &&str| {
            line.split(' ').nth(1).is_some_and(|word| {
                word.rsplit('/').next().unwrap_or_default().starts_with(program)
            })
        };
        found.lines().filter(is_wanted).map(str::to_owned).collect()
    }

    /// A path of the container as the engine's machine sees it, which is this one.
    pub fn path_from_outside(&self, path: &str) -> PathBuf {
        let pid =
            run(&mut self.engine.command(["inspect", "--format", "{{.State.Pid}}", &self.name]));
        PathBuf::from(format!("/proc/{}/root{path}", text(&pid).trim()))
    }

    /// Whether the engine knows it.
    pub fn is_there(&self) -> bool {
        output(&mut self.engine.command(["inspect", &self.id])).status.success()
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = self.engine.command(["rm", "-f", "-v", &self.id]).output();
    }
}

/// Docker's own program.
pub fn docker<'a>(words: impl IntoIterator<Item = &'a str>) -> Command {
    Program::Docker.command(words)
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
