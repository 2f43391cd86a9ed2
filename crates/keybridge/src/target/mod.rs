//! Targets: containers, hosts and the like that a bridge leads to. Each can run a command with standard
//! streams; the rest is built on that.

mod address;
mod command;
mod contact;
mod contact_shell;
mod editor;
mod local;
mod presence;
mod process;
mod says;
mod ssh;
mod typed;

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

pub use address::TargetAddress;
pub use command::CommandTarget;
pub(crate) use command::Questions;
pub(crate) use command::transport;
pub(crate) use contact::{Contact, Installed, Reached};
pub use editor::EditorTarget;
pub(crate) use editor::{Ended, Exit, HelperRunner, RunningHelper};
pub use presence::{Following, Presence};
pub(crate) use process::CommandError;
pub use process::{Process, Remaining};
pub(crate) use says::{mark_if_words, says};
pub use ssh::SshAddress;
pub(crate) use typed::RunAs;

use crate::config::LaneScope;
use crate::container::ContainerTarget;
use crate::engine::{Engine, EngineKind};
use crate::platform::System;
use crate::shell_quote::quoted;
use crate::{Error, ErrorKind, Result};

/// A command for a target. It isn't passed to a shell, unless it names one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetCommand {
    /// The program and its arguments.
    pub words: Vec<OsString>,
    /// Variables to add to its environment.
    pub env: Vec<(OsString, OsString)>,
    /// Whether it keeps running when its [`Process`] is dropped. In a container it always does.
    pub outlives_us: bool,
}

impl TargetCommand {
    /// A command with these arguments.
    pub fn new<W: Into<OsString>>(words: impl IntoIterator<Item = W>) -> Self {
        let words = words.into_iter().map(Into::into).collect();
        Self { words, env: Vec::new(), outlives_us: false }
    }

    /// The variables, as `NAME=VALUE`.
    pub(crate) fn env_pairs(&self) -> impl Iterator<Item = OsString> {
        self.env.iter().map(|(name, value)| {
            let mut pair = name.clone();
            pair.push("=");
            pair.push(value);
            pair
        })
    }

    /// The command with its variables, run by `env`.
    fn with_env(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.env_pairs().collect();
        if !words.is_empty() {
            words.insert(0, "env".into());
        }
        words.extend(self.words.iter().cloned());
        words
    }

    /// Sets a variable in its environment.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }
}

/// Something that a bridge can lead to.
#[derive(Debug, Clone)]
pub enum Target {
    /// A second GnuPG home on the host, or its sandboxes.
    Local(local::LocalTarget),
    /// A container.
    Container(ContainerTarget),
    /// The remote of an editor's window.
    Editor(EditorTarget),
    /// Reached by a command of the host.
    Command(CommandTarget),
}

impl Target {
    /// Finds the target with this address, for a user there or its default one. It has to be running.
    pub async fn find(address: &TargetAddress, user: Option<&str>) -> Result<Self> {
        match Place::of(address).await? {
            Place::Local(home) => local(home, user, System::here()),
            Place::Editor(authority) => Err(EditorTarget::only_in_editor(authority)),
            Place::Engine(engine, name) => engine.find_running(name, user).await,
            Place::Command(target) => command(target, user),
        }
    }

    /// Finds the target with this address, running or not, and its presence.
    pub async fn find_any(address: &TargetAddress, user: Option<&str>) -> Result<(Self, Presence)> {
        match Place::of(address).await? {
            Place::Local(home) => Ok((local(home, user, System::here())?, Presence::Running)),
            Place::Editor(authority) => {
                let target = Self::Editor(EditorTarget::unreachable(authority));
                Ok((target, Presence::Unreachable(EditorTarget::only_in_editor(authority))))
            }
            Place::Engine(engine, name) => engine.find(name, user).await,
            Place::Command(target) => Ok((command(target, user)?, Presence::Running)),
        }
    }

    /// The same target, for another user there than its default one.
    pub(crate) fn for_user(self, user: Option<&str>) -> Result<Self> {
        match (self, user) {
            (target, None) => Ok(target),
            (Self::Local(target), user) => local(target.home(), user, System::here()),
            (Self::Container(target), Some(user)) => Ok(Self::Container(target.for_user(user))),
            (Self::Command(target), Some(user)) => target.for_user(user).map(Self::Command),
            (Self::Editor(_), Some(_)) => {
                let message = "an editor's remote has no other user than the editor's own";
                Err(Error::new(ErrorKind::Usage, message).hint("leave --user out"))
            }
        }
    }

    /// Follows the target's presence, from a task of this thread. The presence is known when this returns.
    pub async fn follow(&self) -> Following {
        match self {
            Self::Local(_) | Self::Editor(_) => Following::constant(Presence::Running),
            Self::Command(target) => target.follow(),
            Self::Container(target) => target.follow().await,
        }
    }

    /// Identifies the target, whatever name it was found by.
    pub fn key(&self) -> String {
        match self {
            Self::Local(target) => target.key(),
            Self::Editor(target) => target.address().to_string(),
            Self::Command(target) => target.address().to_string(),
            Self::Container(target) => target.id().to_owned(),
        }
    }

    /// Its usual address, whatever name it was found by: for a container, its name.
    pub fn address(&self) -> TargetAddress {
        match self {
            Self::Local(target) => target.address(),
            Self::Editor(target) => target.address(),
            Self::Command(target) => target.address(),
            Self::Container(target) => target.address(),
        }
    }

    /// Details of the target, for the output of `up`.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Local(_) | Self::Editor(_) | Self::Command(_) => String::new(),
            Self::Container(target) => target.describe(),
        }
    }

    /// Runs a command there, as the target's user.
    pub async fn run(&self, command: &TargetCommand) -> Result<Process> {
        match self {
            Self::Local(target) => target.run(command),
            Self::Editor(target) => target.run(command),
            Self::Command(_) => Box::pin(contact::run_in_shell(self, command)).await,
            // Boxed, like all requests to an engine, to keep the futures of bridges small.
            Self::Container(target) => Box::pin(target.run(command)).await,
        }
    }

    /// A program of the host that runs a command there with our own standard streams; `None` if the
    /// streams have to be relayed.
    pub(crate) fn in_the_foreground(
        &self,
        command: &TargetCommand,
        terminal: bool,
    ) -> Result<Option<std::process::Command>> {
        match self {
            Self::Local(target) => target.in_the_foreground(command).map(Some),
            Self::Editor(target) => Err(target.no_commands()),
            Self::Container(target) => Ok(Some(target.in_the_foreground(command, terminal))),
            Self::Command(target) => Ok(target.in_the_foreground(command, terminal)),
        }
    }

    /// The same target, whose logins use the ssh-agent at this path; that of this process if it is empty.
    #[must_use]
    pub(crate) fn with_auth_sock(self, path: &Path) -> Self {
        match self {
            Self::Command(target) => Self::Command(target.with_auth_sock(path)),
            other @ (Self::Local(_) | Self::Container(_) | Self::Editor(_)) => other,
        }
    }

    /// The same target, whose logins ask a person, or nobody.
    #[must_use]
    pub(crate) fn asking(self, questions: Questions) -> Self {
        match self {
            Self::Command(target) => Self::Command(target.asking(questions)),
            other @ (Self::Local(_) | Self::Container(_) | Self::Editor(_)) => other,
        }
    }

    /// A shell there, which reads commands from its standard input.
    async fn shell(&self, outlives_us: bool) -> Result<Process> {
        match self {
            Self::Command(target) => target.shell(outlives_us).await,
            Self::Local(_) | Self::Container(_) | Self::Editor(_) => {
                let shell = TargetCommand { outlives_us, ..TargetCommand::new(["sh"]) };
                self.run(&shell).await
            }
        }
    }

    /// The longest pause between attempts to make a link again. Without an engine that reports events, only
    /// attempts show that a target is back: a network that is back is used within ten seconds, and TCP alone
    /// may take four to find it.
    pub(crate) const fn longest_pause(&self) -> Duration {
        match self {
            Self::Command(_) => Duration::from_secs(2),
            Self::Local(_) | Self::Container(_) | Self::Editor(_) => Duration::from_secs(30),
        }
    }

    /// How long a shell there may take to answer.
    fn answer_time(&self) -> Duration {
        match self {
            Self::Command(target) => target.answer_time(),
            Self::Local(_) | Self::Container(_) | Self::Editor(_) => Duration::from_secs(30),
        }
    }

    /// Whether a login asks a person right now, who may take any time.
    fn is_asking(&self) -> bool {
        match self {
            Self::Command(target) => target.is_asking(),
            Self::Local(_) | Self::Container(_) | Self::Editor(_) => false,
        }
    }

    /// The same target by another way, after a login was refused.
    fn by_shared_connection(&self) -> Option<Self> {
        match self {
            Self::Command(target) => target.by_shared_connection().map(Self::Command),
            Self::Local(_) | Self::Container(_) | Self::Editor(_) => None,
        }
    }

    /// Which lanes it can have.
    pub(crate) fn lane_scope(&self) -> LaneScope {
        self.address().lane_scope()
    }

    /// Whether it is on the host: its sockets are paths here.
    pub(crate) const fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }

    /// The engine's program and the target's name, as words of a shell command.
    pub(crate) fn engine_program(&self) -> Option<(&'static str, String)> {
        match self {
            Self::Container(target) => {
                Some((target.engine_kind().program(), quoted(target.name())))
            }
            Self::Local(_) | Self::Editor(_) | Self::Command(_) => None,
        }
    }

    /// Whether an engine runs it.
    pub(crate) const fn is_container(&self) -> bool {
        matches!(self, Self::Container(_))
    }

    /// Whether the other side has the helper already, as an editor's extension does.
    const fn has_helper(&self) -> bool {
        matches!(self, Self::Editor(_))
    }

    /// Explains why a shell there ended at once, with this exit code and this standard error.
    fn explain_shell(&self, code: Option<i32>, said: &str) -> Error {
        match self {
            Self::Local(_) | Self::Editor(_) => {
                let last = said.lines().last().unwrap_or_default();
                Error::failed(says(&self.address().name(), last))
            }
            Self::Container(target) => target.explain_shell(code, said),
            Self::Command(target) => target.explain_shell(code, said),
        }
    }

    /// The processor of a target without a shell.
    async fn processor(&self) -> Result<String> {
        match self {
            Self::Local(_) => Ok(std::env::consts::ARCH.to_owned()),
            Self::Editor(target) => Err(target.no_commands()),
            Self::Command(target) => Err(target.no_engine()),
            Self::Container(target) => target.processor().await,
        }
    }

    /// Says which processors don't fit, if the target's programs can't be run.
    async fn name_processors(&self, error: Error) -> Error {
        match self {
            Self::Container(target) => target.name_processors(error).await,
            Self::Local(_) | Self::Editor(_) | Self::Command(_) => error,
        }
    }

    /// Copies a program into a target without a shell.
    async fn put(&self, name: &str, program: &[u8]) -> Result<String> {
        match self {
            Self::Local(_) => Err(Error::failed("the host has no shell")),
            Self::Editor(target) => Err(target.no_commands()),
            Self::Command(target) => Err(target.no_engine()),
            Self::Container(target) => Box::pin(target.put(name, program)).await,
        }
    }

    /// Runs a command without input there to its end and returns its output, at most 64 KiB.
    pub async fn output(&self, command: &TargetCommand) -> Result<String> {
        let output = Box::pin(self.run(command).await?.output()).await;
        output.map_err(|error| match self {
            Self::Local(_) | Self::Editor(_) | Self::Command(_) => {
                error.named(&self.address().name())
            }
            Self::Container(target) => target.explain_output(error),
        })
    }
}

fn local(home: Option<&Path>, user: Option<&str>, system: &System) -> Result<Target> {
    if !system.is_linux {
        let message = "the helper runs on Linux alone, and so not on the host";
        return Err(Error::new(ErrorKind::Usage, message)
            .hint("bridge a container, an SSH host or the remote of an editor"));
    }
    if user.is_some() {
        let message = "a local target has no other user than you";
        return Err(Error::new(ErrorKind::Usage, message).hint("leave --user out"));
    }
    Ok(Target::Local(local::LocalTarget::new(home)))
}

/// A target that is reached by a command.
fn command(target: CommandTarget, user: Option<&str>) -> Result<Target> {
    match user {
        Some(user) => target.for_user(user).map(Target::Command),
        None => Ok(Target::Command(target)),
    }
}

/// Where a target is.
enum Place<'a> {
    /// With another GnuPG home, or none.
    Local(Option<&'a Path>),
    /// In an editor's window, by its authority.
    Editor(&'a str),
    /// In an engine, by a name.
    Engine(Engine, &'a str),
    /// Reached by a command.
    Command(CommandTarget),
}

impl<'a> Place<'a> {
    async fn of(address: &'a TargetAddress) -> Result<Self> {
        let (engine, name) = match address {
            TargetAddress::Local(home) => return Ok(Self::Local(Some(home))),
            TargetAddress::Here => return Ok(Self::Local(None)),
            TargetAddress::Editor(authority) => return Ok(Self::Editor(authority)),
            TargetAddress::Ssh(address) => return Ok(Self::Command(CommandTarget::ssh(address))),
            TargetAddress::Wsl(distro) => return Ok(Self::Command(CommandTarget::wsl(distro))),
            TargetAddress::Exec(words) => return Ok(Self::Command(CommandTarget::exec(words))),
            TargetAddress::Container(name) => (Box::pin(Engine::that_has(name)).await?, name),
            TargetAddress::Docker(name) => (Engine::of_kind(EngineKind::Docker).await?, name),
            TargetAddress::Podman(name) => (Engine::of_kind(EngineKind::Podman).await?, name),
        };
        Ok(Self::Engine(engine, name))
    }
}

/// Random bytes from the kernel.
pub(crate) fn random_bytes<const SIZE: usize>() -> Result<[u8; SIZE]> {
    keybridge_link::random()
        .map_err(|error| Error::failed("can't get random bytes").caused_by(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_home_on_the_same_machine_needs_linux() {
        let home = Path::new("/home");
        assert!(local(Some(home), None, System::of("linux")).is_ok());
        let error = local(Some(home), None, System::of("macos")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Usage);
        assert!(error.message.contains("runs on Linux alone"), "{error}");
    }
}
