//! Targets that a command of the host leads to: `ssh://`, `wsl://` and `exec:`. The command runs the
//! shell whose name is appended to it, with our pipes as its standard streams.
//!
//! A link ends with the command's standard output: its standard error may stay open, held by the master
//! of a shared ssh connection. A link that is made again never asks anything.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use keybridge_proto::printable;
use tokio::process::Command;

use super::{
    Following, Presence, Process, SshAddress, TargetAddress, TargetCommand, presence, says, ssh,
};
use crate::askpass;
use crate::platform::{System, find_program, lead_group};
use crate::program::{self, RunError};
use crate::{Error, ErrorKind, Result};

/// A target that a command leads to.
#[derive(Debug, Clone)]
pub struct CommandTarget {
    way: Way,
    questions: Questions,
    connection: Connection,
    /// The ssh-agent that logins use, if it is another one than that of this process.
    auth_sock: Option<PathBuf>,
}

/// Which command leads to a target.
#[derive(Debug, Clone)]
enum Way {
    Ssh(SshAddress),
    Wsl { distro: String, user: Option<String> },
    Exec(Vec<String>),
}

/// Who answers what a login asks: for a password, or whether a host is the right one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Questions {
    /// A person, who is asked through this socket.
    AskedAt(PathBuf),
    /// Nobody: a login that asks is refused.
    NotAsked,
}

/// Which connection of ssh's is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connection {
    /// A new one: the one that the user's configuration shares may have died in silence.
    Own,
    /// As the user's configuration says.
    AsConfigured,
}

/// How long a shell may take to answer, with the login before that.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// How long a shell may take over a connection that may have died in silence.
const SHARED_ANSWER_TIME: Duration = Duration::from_secs(10);

impl CommandTarget {
    pub(super) fn ssh(address: &SshAddress) -> Self {
        Self::new(Way::Ssh(address.clone()))
    }

    pub(super) fn wsl(distro: &str) -> Self {
        Self::new(Way::Wsl { distro: distro.to_owned(), user: None })
    }

    pub(super) fn exec(words: &[String]) -> Self {
        Self::new(Way::Exec(words.to_vec()))
    }

    fn new(way: Way) -> Self {
        Self { way, questions: Questions::NotAsked, connection: Connection::Own, auth_sock: None }
    }

    pub(super) fn for_user(self, user: &str) -> Result<Self> {
        let way = match self.way {
            Way::Ssh(address) => Way::Ssh(address.for_user(user)?),
            Way::Wsl { distro, .. } => Way::Wsl { distro, user: Some(user.to_owned()) },
            Way::Exec(_) => {
                let message = "the user of an exec: target is the one that its command works as";
                return Err(Error::new(ErrorKind::Usage, message)
                    .hint("leave --user out, and name the user in the command"));
            }
        };
        Ok(Self { way, ..self })
    }

    /// The same target, whose logins may ask.
    pub(super) fn asking(self, questions: Questions) -> Self {
        let connection = match questions {
            Questions::AskedAt(_) => Connection::AsConfigured,
            Questions::NotAsked => Connection::Own,
        };
        Self { questions, connection, ..self }
    }

    /// The same target, whose logins use this ssh-agent.
    pub(super) fn with_auth_sock(self, path: &Path) -> Self {
        let is_set = !path.as_os_str().is_empty();
        Self { auth_sock: is_set.then(|| path.to_owned()), ..self }
    }

    /// The same target by a connection that may need no login, after one was refused.
    pub(super) fn by_shared_connection(&self) -> Option<Self> {
        let may_share = matches!(self.way, Way::Ssh(_)) && self.connection == Connection::Own;
        may_share.then(|| Self { connection: Connection::AsConfigured, ..self.clone() })
    }

    /// Whether a person is being asked right now.
    pub(super) fn is_asking(&self) -> bool {
        self.questions.are_open()
    }

    pub(super) fn answer_time(&self) -> Duration {
        match (&self.questions, self.connection) {
            (Questions::NotAsked, Connection::AsConfigured) => SHARED_ANSWER_TIME,
            (Questions::AskedAt(_), _) | (_, Connection::Own) => ANSWER_TIME,
        }
    }

    /// Follows what is known of the way there.
    pub(super) fn follow(&self) -> Following {
        match self.way {
            Way::Ssh(_) | Way::Exec(_) => presence::follow_network(),
            Way::Wsl { .. } => Following::constant(Presence::Running),
        }
    }

    pub(super) fn address(&self) -> TargetAddress {
        match &self.way {
            Way::Ssh(address) => TargetAddress::Ssh(address.clone()),
            Way::Wsl { distro, .. } => TargetAddress::Wsl(distro.clone()),
            Way::Exec(words) => TargetAddress::Exec(words.clone()),
        }
    }

    /// The words before a command that a person types.
    pub(super) fn leading_words(&self) -> Vec<String> {
        match &self.way {
            Way::Ssh(address) => {
                std::iter::once("ssh".to_owned()).chain(address.arguments()).collect()
            }
            Way::Wsl { distro, user } => {
                let words = wsl(distro, user.as_deref()).into_std();
                let words = std::iter::once(words.get_program()).chain(words.get_args());
                words.map(|word| word.to_string_lossy().into_owned()).collect()
            }
            Way::Exec(words) => words.clone(),
        }
    }

    /// Whether ssh leads there.
    pub(super) const fn is_ssh(&self) -> bool {
        matches!(self.way, Way::Ssh(_))
    }

    /// What only an engine can do.
    pub(super) fn no_engine(&self) -> Error {
        Error::new(ErrorKind::NoShell, format!("{} has no shell", self.address()))
    }

    /// Starts a shell there.
    pub(super) async fn shell(&self, outlives_us: bool) -> Result<Process> {
        let mut command = match &self.way {
            Way::Ssh(address) => ssh::shell(address, &self.questions, self.connection).await?,
            Way::Wsl { distro, user } => wsl(distro, user.as_deref()),
            Way::Exec(words) => exec(words)?,
        };
        // These are only the way there, and hang on a link that is dead. What an exec: command becomes
        // may be the helper itself.
        let ends_with_us = !outlives_us || !matches!(self.way, Way::Exec(_));
        self.questions.set(&mut command)?;
        command.envs(self.auth_sock.iter().map(|path| ("SSH_AUTH_SOCK", path)));
        // Ctrl-C is for us alone: the helper is told to stop over the link.
        lead_group(&mut command);
        let child = command
            .arg("sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| {
                let program = command.as_std().get_program().to_string_lossy();
                not_started(&program, &error).context(self.address())
            })?;
        Process::of_child(child, ends_with_us)
    }

    /// What it means that a shell has ended before it answered.
    pub(super) fn explain_shell(&self, code: Option<i32>, said: &str) -> Error {
        let last = said.lines().last().unwrap_or_default();
        let said_last = says(&self.address().name(), last);
        match (&self.way, code) {
            (Way::Ssh(address), Some(ssh::FAILED)) => ssh::explain(address, said, &self.questions),
            (_, Some(126 | 127)) => {
                let message =
                    format!("{}: no shell can be started there: {said_last}", self.address());
                Error::new(ErrorKind::NoShell, message)
                    .hint("keybridge needs the program sh there, and a user who may run it")
            }
            (_, code) => {
                let code = code.map_or("a signal".to_owned(), |code| format!("exit status {code}"));
                let why = if last.is_empty() { String::new() } else { format!(": {said_last}") };
                let message = format!(
                    "{}: the command ended before its shell answered ({code}){why}",
                    self.address()
                );
                let error = Error::new(ErrorKind::NoTarget, message);
                match &self.way {
                    Way::Exec(_) if last.to_ascii_lowercase().contains("not a tty") => {
                        error.hint("leave out the option for a terminal (-t)")
                    }
                    Way::Exec(words) => {
                        let command = shell_words::join(words);
                        error.hint(format!("see if `{command} sh` gives you a shell there"))
                    }
                    Way::Ssh(_) | Way::Wsl { .. } => error,
                }
            }
        }
    }

    /// The program that runs a command there with our own standard streams; none if it takes our pipes.
    pub(super) fn in_the_foreground(
        &self,
        command: &TargetCommand,
        terminal: bool,
    ) -> Option<std::process::Command> {
        match &self.way {
            Way::Ssh(address) => Some(ssh::in_the_foreground(address, command, terminal)),
            Way::Wsl { distro, user } => {
                let mut program = wsl(distro, user.as_deref()).into_std();
                program.args(command.with_env());
                Some(program)
            }
            Way::Exec(_) => None,
        }
    }
}

impl Questions {
    /// Has logins ask through the socket, or not at all.
    fn set(&self, command: &mut Command) -> Result<()> {
        match self {
            Self::AskedAt(socket) => {
                let program = std::env::current_exe().map_err(|error| {
                    Error::from_source(ErrorKind::Failed, error).context("finding this program")
                })?;
                command.env("SSH_ASKPASS", program).env("SSH_ASKPASS_REQUIRE", "force");
                command.env(askpass::SOCKET_VARIABLE, socket);
            }
            // A jump host's ssh doesn't know of BatchMode, and would ask.
            Self::NotAsked => {
                command.env_remove("SSH_ASKPASS").env("SSH_ASKPASS_REQUIRE", "never");
            }
        }
        Ok(())
    }

    /// Whether a person is being asked right now, who may take any time.
    pub(super) fn are_open(&self) -> bool {
        match self {
            Self::AskedAt(socket) => askpass::is_asking(socket),
            Self::NotAsked => false,
        }
    }

    /// Whether a person can be asked.
    pub(crate) const fn are_asked(&self) -> bool {
        matches!(self, Self::AskedAt(_))
    }
}

fn wsl(distro: &str, user: Option<&str>) -> Command {
    let mut command = Command::new("wsl.exe");
    command.args(["-d", distro]).args(user.iter().flat_map(|user| ["-u", user])).arg("--exec");
    command
}

fn exec(words: &[String]) -> Result<Command> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(Error::new(ErrorKind::Usage, "exec: needs a command"));
    };
    let mut command = Command::new(Path::new(program));
    command.args(arguments);
    Ok(command)
}

/// The error for a program that leads to a target and can't be started.
fn not_started(program: &str, error: &io::Error) -> Error {
    let message = format!("{} can't be started: {error}", printable(program));
    let failed = Error::new(ErrorKind::NoTarget, message);
    match (program, error.kind()) {
        ("ssh", io::ErrorKind::NotFound) => failed.hint(System::here().install_ssh),
        ("wsl.exe", io::ErrorKind::NotFound) => {
            failed.hint("wsl:// targets are for a keybridge that runs in Windows or in WSL")
        }
        _ => failed.hint("see if the program is there, and in PATH"),
    }
}

/// How long the program may take to print its version.
const VERSION_TIME: Duration = Duration::from_secs(3);

/// A version is short.
const VERSION_LIMIT: usize = 64 * 1024;

/// The program of the host that leads to a target, with its version where it tells one. `None` if none does.
pub(crate) async fn transport(address: &TargetAddress) -> Option<Result<String>> {
    match address {
        TargetAddress::Ssh(_) => Some(ssh_version().await),
        TargetAddress::Wsl(_) => Some(find("wsl.exe")),
        TargetAddress::Exec(words) => words.first().map(|program| find(program)),
        TargetAddress::Here
        | TargetAddress::Local(_)
        | TargetAddress::Container(_)
        | TargetAddress::Docker(_)
        | TargetAddress::Podman(_)
        | TargetAddress::Editor(_) => None,
    }
}

async fn ssh_version() -> Result<String> {
    let mut ssh = Command::new("ssh");
    ssh.arg("-V");
    match program::run(ssh, VERSION_LIMIT, VERSION_TIME).await {
        // It prints its version as an error.
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.messages);
            let first = text.lines().next().unwrap_or_default();
            Ok(printable(first.split(',').next().unwrap_or_default()).to_string())
        }
        Err(RunError::NotStarted(error)) => Err(not_started("ssh", &error)),
        Err(RunError::Failed(error)) => Err(error),
    }
}

/// Looks for a program without running it.
fn find(program: &str) -> Result<String> {
    let path = Path::new(program);
    let is_path = path.components().nth(1).is_some() && path.is_file();
    if is_path || find_program(program).is_some() {
        Ok(printable(program).to_string())
    } else {
        Err(not_started(program, &io::ErrorKind::NotFound.into()))
    }
}
