//! The one place that runs a program of GnuPG on the host: no shell, and bounds on time and output.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use keybridge_proto::assuan::unescape;
use keybridge_proto::printable;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use crate::{Error, ErrorKind, Result};

/// Listing and launching take well under a second; a home on a slow disk gets some patience.
const TIME: Duration = Duration::from_secs(30);

/// What gpgconf prints is some lines.
const GPGCONF_OUTPUT: usize = 64 * 1024;

/// What is kept of a program's messages, for an error.
const MESSAGES: usize = 4 * 1024;

/// GnuPG on the host: its programs, and the home they work on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gnupg {
    /// The home, if it isn't the one that GnuPG finds by itself.
    pub home: Option<PathBuf>,
    /// The program `gpgconf`, by path or by name.
    pub gpgconf: PathBuf,
    /// The program `gpg`, by path or by name.
    pub gpg: PathBuf,
}

/// Where GnuPG keeps what a bridge needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dirs {
    /// The home.
    pub home: PathBuf,
    /// The agent's main socket.
    pub agent_socket: PathBuf,
    /// The agent's restricted socket.
    pub extra_socket: PathBuf,
}

/// What a program did.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: Vec<u8>,
    /// The beginning of its messages.
    pub(crate) messages: Vec<u8>,
}

impl Gnupg {
    /// The programs that are found by their names.
    pub fn new(home: Option<PathBuf>) -> Self {
        Self { home, gpgconf: "gpgconf".into(), gpg: "gpg".into() }
    }

    /// Where the home and the sockets are.
    pub async fn dirs(&self) -> Result<Dirs> {
        let output = self.gpgconf(["--list-dirs"]).await?;
        parse_dirs(&output.stdout)
    }

    /// Starts the agent if it isn't running.
    pub async fn launch_agent(&self) -> Result<()> {
        self.gpgconf(["--launch", "gpg-agent"]).await.map(drop)
    }

    async fn gpgconf<const N: usize>(&self, arguments: [&str; N]) -> Result<Output> {
        let output = self.run(&self.gpgconf, arguments.map(OsStr::new), GPGCONF_OUTPUT).await?;
        if output.status.success() { Ok(output) } else { Err(output.error("gpgconf")) }
    }

    /// Runs gpg, which has nobody to ask. Its failure is for the caller to judge.
    pub(crate) async fn gpg(&self, arguments: &[OsString], limit: usize) -> Result<Output> {
        let fixed = ["--batch", "--no-tty", "--no-auto-check-trustdb"].map(OsString::from);
        self.run(&self.gpg, fixed.iter().chain(arguments), limit).await
    }

    async fn run(
        &self,
        program: &Path,
        arguments: impl IntoIterator<Item = impl AsRef<OsStr>>,
        limit: usize,
    ) -> Result<Output> {
        let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(home) = &self.home {
            command.env("GNUPGHOME", home);
        }
        let mut child = command.spawn().map_err(|error| not_started(program, &error))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let work = async {
            let (stdout, messages) = tokio::try_join!(
                // More than the bound is an error, so the program needs not be read to its end.
                async { read(stdout, limit).await },
                async { read_beginning(stderr, MESSAGES).await },
            )?;
            let status = child.wait().await?;
            Ok(Output { status, stdout, messages })
        };
        match tokio::time::timeout(TIME, work).await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(ReadError::Io(error))) => Err(Error::failed(format!("running {name}: {error}"))),
            Ok(Err(ReadError::TooMuch)) => Err(Error::failed(format!(
                "expected at most {limit} bytes of output from {name}, got more"
            ))),
            Err(_) => Err(Error::failed(format!(
                "expected {name} to end within {} s, but it goes on",
                TIME.as_secs()
            ))),
        }
    }
}

impl Output {
    /// The error of a program that failed, in its own words.
    pub(crate) fn error(&self, name: &str) -> Error {
        let text = String::from_utf8_lossy(&self.messages);
        // The last line is the one that says why.
        let last = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it says nothing");
        Error::failed(format!("{name} failed ({}): {}", self.status, printable(last)))
    }
}

fn not_started(program: &Path, error: &io::Error) -> Error {
    let text = format!("{} can't be started: {error}", program.display());
    match error.kind() {
        io::ErrorKind::NotFound => Error::new(ErrorKind::NoAgent, text)
            .hint("install GnuPG 2.1 or later (the package is called gnupg, or gpg)")
            .hint("make sure that gpg and gpgconf are in a folder that PATH names"),
        _ => Error::new(ErrorKind::NoAgent, text),
    }
}

enum ReadError {
    Io(io::Error),
    TooMuch,
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// All of the output, which may not be over `limit`.
async fn read(from: Option<impl AsyncRead + Unpin>, limit: usize) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let Some(from) = from else { return Ok(bytes) };
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    from.take(bound).read_to_end(&mut bytes).await?;
    if bytes.len() > limit { Err(ReadError::TooMuch) } else { Ok(bytes) }
}

/// The first bytes of the output; the rest is read and dropped, so that the program can go on.
async fn read_beginning(
    from: Option<impl AsyncRead + Unpin>,
    keep: usize,
) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let Some(mut from) = from else { return Ok(bytes) };
    (&mut from).take(u64::try_from(keep).unwrap_or(u64::MAX)).read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(bytes)
}

/// Reads `NAME:VALUE` lines, the values percent-escaped. On Windows they end in CRLF.
fn parse_dirs(output: &[u8]) -> Result<Dirs> {
    let value = |name: &str| {
        output
            .split(|&byte| byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b":"))
            .and_then(|value| path(unescape(value).ok()?))
            .filter(|path| !path.as_os_str().is_empty())
            .ok_or_else(|| {
                Error::new(ErrorKind::NoAgent, format!("gpgconf names no {name}"))
                    .hint("run `gpgconf --list-dirs`; GnuPG 2.1 or later is needed")
            })
    };
    Ok(Dirs {
        home: value("homedir")?,
        agent_socket: value("agent-socket")?,
        extra_socket: value("agent-extra-socket")?,
    })
}

#[cfg(unix)]
#[expect(clippy::unnecessary_wraps, reason = "elsewhere a path has to be text")]
fn path(bytes: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    Some(OsString::from_vec(bytes).into())
}

#[cfg(not(unix))]
fn path(bytes: Vec<u8>) -> Option<PathBuf> {
    String::from_utf8(bytes).ok().map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirs_are_unescaped_and_lines_may_end_in_crlf() {
        let output = b"sysconfdir:/etc\r\nhomedir:/h/a%3ab%25\r\nagent-socket:/r/S\r\n\
            agent-extra-socket:/r/S.extra\r\n";
        let dirs = parse_dirs(output).unwrap();
        assert_eq!(dirs.home, Path::new("/h/a:b%"));
        assert_eq!(dirs.agent_socket, Path::new("/r/S"));
        assert_eq!(dirs.extra_socket, Path::new("/r/S.extra"));
    }

    #[test]
    fn a_gpgconf_without_an_extra_socket_is_named() {
        let error = parse_dirs(b"homedir:/h\nagent-socket:/r/S\n").unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoAgent);
        assert!(error.message.contains("agent-extra-socket"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_program_is_an_error_with_hints() {
        let gnupg = Gnupg { gpgconf: "/nonexistent/gpgconf".into(), ..Gnupg::new(None) };
        let error = gnupg.dirs().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoAgent);
        assert!(error.hints.iter().any(|hint| hint.contains("install GnuPG")), "{error:?}");
    }

    #[tokio::test]
    async fn output_over_the_bound_is_an_error() {
        let gnupg = Gnupg { gpgconf: "/bin/cat".into(), ..Gnupg::new(None) };
        let error = gnupg.run(&gnupg.gpgconf, ["/dev/zero"], 1000).await.unwrap_err();
        assert!(error.message.contains("at most 1000 bytes"), "{error}");
    }
}
