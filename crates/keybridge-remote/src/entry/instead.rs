//! The program that would have run without the entry.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use keybridge_proto::git::Format;

use super::request::Request;
use super::{STOP, failed, say};
use crate::subprocess::places_on_path;

/// Says in the environment how many entries have run a program in their place, one from within the other.
const MARK: &str = "KEYBRIDGE_ENTRY";

/// How many may. The first one runs what git's settings name, the second what is on the `PATH`: if that is an
/// entry again, so is the next.
const MOST_ENTRIES: u32 = 2;

/// As shells have it for a program that isn't there.
const NOT_FOUND: u8 = 127;

const FAILURE: u8 = 1;

/// Why there is nothing to run.
#[derive(Debug, Clone, Copy)]
enum NoProgram {
    NotFound,
    RunsEntry,
}

/// What to run in the place of the host.
pub(super) struct Instead<'a> {
    pub(super) format: Format,
    pub(super) entry: &'a Path,
    pub(super) arguments: &'a [OsString],
}

impl Instead<'_> {
    /// Becomes the program. Returns if that fails. Why the host doesn't sign is said where nothing else can.
    pub(super) fn run(&self, why: Option<&str>) -> ExitCode {
        match self.command() {
            Ok(mut command) => self.not_started(&command.exec()),
            Err(reason) => self.cannot_run(reason, why),
        }
    }

    /// Runs the program, which gets what was read of standard input. Why the host doesn't sign is said if it
    /// doesn't either.
    pub(super) fn run_with(&self, request: &Request, why: Option<&str>) -> ExitCode {
        let mut command = match self.command() {
            Ok(command) => command,
            Err(reason) => return self.cannot_run(reason, why),
        };
        if request.from_stdin {
            command.stdin(Stdio::piped());
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return self.not_started(&error),
        };
        if let Some(mut stdin) = child.stdin.take() {
            // One that doesn't read it says why. More is left of an object that is too long to be sent.
            let _ = stdin
                .write_all(&request.to_send.object)
                .and_then(|()| io::copy(&mut io::stdin().lock(), &mut stdin).map(drop));
        }
        match child.wait() {
            Ok(status) => {
                if let Some(why) = why.filter(|_| !status.success()) {
                    say(&format!("{why}; {STOP}"));
                }
                let code = status.code().or(status.signal().map(|signal| 128 + signal));
                ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
            }
            Err(error) => failed(&format!("can't wait for the program: {error}")),
        }
    }

    fn command(&self) -> Result<Command, NoProgram> {
        let entries = std::env::var(MARK).map_or(0, |text| text.parse().unwrap_or(MOST_ENTRIES));
        if entries >= MOST_ENTRIES {
            return Err(NoProgram::RunsEntry);
        }
        let set = if entries == 0 { self.setting() } else { None };
        let program = match set {
            Some(set) if set.as_bytes().contains(&b'/') => PathBuf::from(set),
            Some(name) => self.on_path(&name)?,
            None => self.on_path(OsStr::new(self.usual_name()))?,
        };
        let mut command = Command::new(program);
        command.args(self.arguments).env(MARK, (entries + 1).to_string());
        Ok(command)
    }

    const fn usual_name(&self) -> &'static str {
        match self.format {
            Format::Openpgp => "gpg",
            Format::Ssh => "ssh-keygen",
        }
    }

    /// The last value that git's settings have beside ours.
    fn setting(&self) -> Option<OsString> {
        let names = match self.format {
            Format::Openpgp => r"^gpg\.(openpgp\.)?program$",
            Format::Ssh => r"^gpg\.ssh\.program$",
        };
        let mut git = Command::new("git");
        git.args(["config", "-z", "--type=path", "--get-regexp", names]);
        let output = git.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        let mut values = output.stdout.split(|&byte| byte == 0).filter_map(|entry| {
            let line_end = entry.iter().position(|&byte| byte == b'\n')?;
            entry.get(line_end + 1..)
        });
        let other = values.rfind(|value| !value.is_empty() && !self.is_entry(value))?;
        Some(OsStr::from_bytes(other).to_owned())
    }

    /// Where `PATH` leads to, past ourselves.
    fn on_path(&self, name: &OsStr) -> Result<PathBuf, NoProgram> {
        let mut places = places_on_path(name);
        places.find(|place| !self.is_entry(place.as_os_str().as_bytes())).ok_or(NoProgram::NotFound)
    }

    /// Whether a path is this entry, or another name of the helper.
    fn is_entry(&self, path: &[u8]) -> bool {
        let path = Path::new(OsStr::from_bytes(path));
        let own = std::env::current_exe().ok();
        path == self.entry || own.is_some() && std::fs::canonicalize(path).ok() == own
    }

    fn cannot_run(&self, reason: NoProgram, why: Option<&str>) -> ExitCode {
        let name = self.usual_name();
        let (what, code) = match reason {
            NoProgram::NotFound => (format!("there is no {name} in this target"), NOT_FOUND),
            NoProgram::RunsEntry => {
                (format!("{name} in this target only runs keybridge again"), FAILURE)
            }
        };
        say(&why.map_or(what.clone(), |why| format!("{why}, and {what}; {STOP}")));
        ExitCode::from(code)
    }

    fn not_started(&self, error: &io::Error) -> ExitCode {
        failed(&format!("can't start {}: {error}", self.usual_name()))
    }
}
