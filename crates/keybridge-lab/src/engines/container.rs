//! Containers of the real engines.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

use super::Program;
use crate::{output, run, run_with, text};

/// What a container is made from. `scripts/lab` makes the images.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image {
    /// Debian 12 with gpg 2.2.40 and git.
    Bookworm,
    /// Debian 13 with gpg 2.4.7 and git.
    Trixie,
    /// Debian 13 whose first process is systemd, with units of a user that own the agents' sockets.
    Systemd,
    /// Debian 12 with git, and with what the sandboxes of coding agents need.
    Sandbox,
    /// A static busybox, and nothing else.
    Bare,
    /// A program that sleeps, and nothing else.
    NoShell,
    /// Nothing but a shell, built for a processor that doesn't exist.
    Foreign,
    /// Nothing at all, for another processor.
    ForeignNoShell,
    /// Debian 12 for arm64, which this machine may emulate.
    Arm64,
    /// A program for arm64 that sleeps, and nothing else.
    Arm64NoShell,
}

impl Image {
    /// The name by which the engine knows it.
    pub fn name(self) -> &'static str {
        let name = match self {
            Self::Bookworm => "bookworm",
            Self::Trixie => "trixie",
            Self::Systemd => "systemd",
            Self::Sandbox => return Program::sandbox_image(),
            Self::Bare => "bare",
            Self::NoShell => "noshell",
            Self::Foreign => "foreign",
            Self::ForeignNoShell => "foreign-noshell",
            Self::Arm64 => return Program::arm64_image("arm64"),
            Self::Arm64NoShell => return Program::arm64_image("arm64-noshell"),
        };
        Program::Docker.fact(name)
    }

    /// What its containers run.
    const fn first_process(self) -> &'static [&'static str] {
        match self {
            Self::Systemd => &["/sbin/init"],
            Self::Bookworm
            | Self::Trixie
            | Self::Sandbox
            | Self::Bare
            | Self::NoShell
            | Self::Foreign
            | Self::ForeignNoShell
            | Self::Arm64
            | Self::Arm64NoShell => SLEEP,
        }
    }
}

/// Nothing happens in most containers.
const SLEEP: &[&str] = &["sleep", "infinity"];

/// A container that runs, without a network. It is removed in the end.
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its whole id.
    pub id: String,
    /// Whose it is.
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
        Self::start_with(engine, name, image.name(), options, image.first_process())
    }

    /// Starts a container of an engine with this name, from an image that the engine knows by another.
    pub fn start_from(engine: Program, name: String, image: &str, options: &[&str]) -> Self {
        Self::start_with(engine, name, image, options, SLEEP)
    }

    /// Starts a container of an engine with this name, which runs these words first.
    pub fn start_with(
        engine: Program,
        name: String,
        image: &str,
        options: &[&str],
        first_process: &[&str],
    ) -> Self {
        let mut run_it =
            engine.command(["run", "-d", "--rm", "--network", "none", "--name", &name]);
        // The first process of a container passes over the usual signal, for ten seconds.
        run_it.arg("--stop-timeout=0");
        let id = run(run_it.args(options).arg(image).args(first_process));
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

    /// What is in a container that may have no shell, as `tar` lists it with these options.
    pub fn archive_listing(&self, options: &[&str]) -> String {
        let archive = run(&mut self.engine.command(["export", &self.name]));
        text(&run_with(crate::command("tar").arg("-t").args(options), &archive))
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

    /// The processes of the container that were started by this name, by an emulator or without. What has
    /// ended and was not waited for has none: nobody waits for orphans there.
    pub fn processes(&self, program: &str) -> Vec<String> {
        let script = "for p in /proc/[0-9]*; do
            echo \"${p#/proc/} $(tr '\\0' ' ' <$p/cmdline)\"
        done 2>/dev/null";
        let found = self.sh(Some("0"), script);
        let is_wanted = |line: &&str| {
            let mut words = line.split(' ').skip(1).filter(|word| !word.contains("qemu"));
            words.next().is_some_and(|word| {
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
