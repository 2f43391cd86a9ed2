//! The one place that runs a program of GnuPG on the host.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keybridge_proto::assuan::unescape;
use keybridge_proto::os_string;
use tokio::process::Command;

use crate::checks::Check;
use crate::platform::{System, clean_command, native_path, program};
use crate::program::{self, Output, RunError};
use crate::{Error, ErrorKind, Result};

/// Listing and launching take well under a second; a home on a slow disk gets some patience.
const TIME: Duration = Duration::from_secs(30);

/// gpgconf prints a few lines.
const GPGCONF_OUTPUT: usize = 64 * 1024;

/// GnuPG on the host: its programs, and the home they work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gnupg {
    /// The home, if it isn't the one that GnuPG finds by itself.
    pub home: Option<PathBuf>,
    /// The program `gpgconf`, by path or by name.
    pub gpgconf: PathBuf,
    /// The program `gpg`, by path or by name.
    pub gpg: PathBuf,
    /// The program `gpgsm`, by path or by name. Not everybody has it.
    pub gpgsm: PathBuf,
}

/// Where GnuPG keeps what a bridge needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dirs {
    /// The home.
    pub home: PathBuf,
    /// The agent's main socket.
    pub agent_socket: PathBuf,
    /// The agent's restricted socket.
    pub extra_socket: PathBuf,
    /// Where the agent speaks ssh-agent's protocol, if it is told to.
    pub ssh_socket: Option<PathBuf>,
}

impl Gnupg {
    /// The programs that `PATH` leads to, or else those in the usual folders.
    pub fn new(home: Option<PathBuf>) -> Self {
        Self::in_folder(home, None)
    }

    /// The programs in a folder, if one is named.
    pub(crate) fn in_folder(home: Option<PathBuf>, folder: Option<&Path>) -> Self {
        let [gpgconf, gpg, gpgsm] = ["gpgconf", "gpg", "gpgsm"].map(|name| match folder {
            Some(folder) => folder.join(System::here().program_file(name)),
            None => program(name),
        });
        Self { home, gpgconf, gpg, gpgsm }
    }

    /// Where the home and the sockets are.
    pub(crate) async fn dirs(&self) -> Result<Dirs> {
        let output = self.gpgconf(["--list-dirs"]).await?;
        parse_dirs(&output.stdout, |path| native_path(&self.gpgconf, path))
    }

    /// Starts the agent if it isn't running.
    pub(crate) async fn launch_agent(&self) -> Result<()> {
        self.gpgconf(["--launch", "gpg-agent"]).await.map(drop)
    }

    /// Whether the agent is told to be an ssh-agent too. It listens for ssh also where it isn't.
    pub(crate) async fn is_ssh_agent(&self) -> Result<bool> {
        let output = self.gpgconf(["--list-options", "gpg-agent"]).await?;
        Ok(is_set(&output.stdout, b"enable-ssh-support"))
    }

    async fn gpgconf<const N: usize>(&self, arguments: [&str; N]) -> Result<Output> {
        let output = self.run(&self.gpgconf, arguments.map(OsStr::new), GPGCONF_OUTPUT).await?;
        if output.status.success() { Ok(output) } else { Err(output.error("gpgconf")) }
    }

    /// Runs gpg without any dialog. The caller judges its exit status.
    pub(crate) async fn gpg(&self, arguments: &[OsString], limit: usize) -> Result<Output> {
        let fixed = ["--batch", "--no-tty", "--no-auto-check-trustdb"].map(OsString::from);
        self.run(&self.gpg, fixed.iter().chain(arguments), limit).await
    }

    /// Runs gpgsm without any dialog or network access: even a listing would ask about an unknown root
    /// certificate. None if it isn't installed.
    pub(crate) async fn gpgsm(
        &self,
        arguments: &[OsString],
        limit: usize,
    ) -> Result<Option<Output>> {
        let fixed = ["--batch", "--no-tty", "--disable-dirmngr", "--pinentry-mode=cancel"]
            .map(OsString::from);
        match self.try_run(&self.gpgsm, fixed.iter().chain(arguments), limit).await {
            Ok(output) => Ok(Some(output)),
            Err(RunError::NotStarted(error)) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(RunError::NotStarted(error)) => Err(not_started(&self.gpgsm, &error)),
            Err(RunError::Failed(error)) => Err(error),
        }
    }

    /// gpg in an environment that has nothing but what tells it its home.
    pub(crate) fn clean_gpg(&self) -> Command {
        let mut command = clean_command(&self.gpg);
        command.args(["--batch", "--no-tty", "--no-auto-check-trustdb"]);
        if let Some(home) = &self.home {
            command.env("GNUPGHOME", home);
        }
        command
    }

    async fn run(
        &self,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        limit: usize,
    ) -> Result<Output> {
        self.try_run(program, arguments, limit).await.map_err(|error| match error {
            RunError::NotStarted(error) => not_started(program, &error),
            RunError::Failed(error) => error,
        })
    }

    async fn try_run(
        &self,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        limit: usize,
    ) -> Result<Output, RunError> {
        let mut command = Command::new(program);
        command.args(arguments);
        if let Some(home) = &self.home {
            command.env("GNUPGHOME", home);
        }
        program::run(command, limit, TIME).await
    }
}

fn not_started(program: &Path, error: &io::Error) -> Error {
    let failed = |kind| {
        let text = format!("{} can't be started: {error}", program.display());
        Error::new(kind, text).at_check(Check::HostGpg)
    };
    match error.kind() {
        io::ErrorKind::NotFound => failed(ErrorKind::ProgramMissing)
            .hint(System::here().install_gnupg)
            .hint("make sure that gpg and gpgconf are in a folder that PATH names"),
        _ => failed(ErrorKind::NoAgent),
    }
}

/// Whether a list of options has a value for one: the tenth field.
fn is_set(output: &[u8], option: &[u8]) -> bool {
    output.split(|&byte| byte == b'\n').any(|line| {
        let mut fields = line.trim_ascii_end().split(|&byte| byte == b':');
        fields.next() == Some(option) && fields.nth(8).is_some_and(|value| !value.is_empty())
    })
}

/// Reads `NAME:VALUE` lines, the values percent-escaped. On Windows they end in CRLF.
fn parse_dirs(output: &[u8], native: impl Fn(PathBuf) -> PathBuf) -> Result<Dirs> {
    let find = |name: &str| {
        output
            .split(|&byte| byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b":"))
            .and_then(|value| Some(PathBuf::from(os_string(unescape(value).ok()?))))
            .filter(|path| !path.as_os_str().is_empty())
            .map(&native)
    };
    let value = |name: &str| {
        find(name).ok_or_else(|| {
            Error::new(ErrorKind::NoAgent, format!("gpgconf names no {name}"))
                .hint("run `gpgconf --list-dirs`; GnuPG 2.1 or later is needed")
        })
    };
    Ok(Dirs {
        home: value("homedir")?,
        agent_socket: value("agent-socket")?,
        extra_socket: value("agent-extra-socket")?,
        ssh_socket: find("agent-ssh-socket"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirs_are_unescaped_and_lines_may_end_in_crlf() {
        let output = b"sysconfdir:/etc\r\nhomedir:/h/a%3ab%25\r\nagent-socket:/r/S\r\n\
            agent-extra-socket:/r/S.extra\r\nagent-ssh-socket:/r/S.ssh\r\n";
        let dirs = parse_dirs(output, |path| path).unwrap();
        assert_eq!(dirs.home, Path::new("/h/a:b%"));
        assert_eq!(dirs.agent_socket, Path::new("/r/S"));
        assert_eq!(dirs.extra_socket, Path::new("/r/S.extra"));
        assert_eq!(dirs.ssh_socket.unwrap(), Path::new("/r/S.ssh"));
    }

    #[test]
    fn a_gpgconf_without_an_extra_socket_is_named() {
        let error = parse_dirs(b"homedir:/h\nagent-socket:/r/S\n", |path| path).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoAgent);
        assert!(error.message.contains("agent-extra-socket"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_program_is_an_error_with_hints() {
        let gnupg = Gnupg { gpgconf: "/nonexistent/gpgconf".into(), ..Gnupg::new(None) };
        let error = gnupg.dirs().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::ProgramMissing);
        assert!(
            error.hints.iter().any(|hint| hint.to_string().contains("install GnuPG")),
            "{error:?}"
        );
    }
}
