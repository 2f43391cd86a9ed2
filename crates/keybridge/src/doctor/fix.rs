//! Commands that a person can type, complete and quoted for a shell.

use std::path::Path;
use std::process::Stdio;

use serde::Serialize;
use tokio::process::Command;

use crate::gnupg::Gnupg;
use crate::platform::{Shell, System};
use crate::shell_quote::{line, quoted};
use crate::{Error, Result};

/// A command that fixes something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Fix {
    /// As it is to be typed in a shell.
    pub(crate) command: String,
    /// Whether `--fix` may run it: it changes only what is keybridge's own, or can be undone as easily.
    pub(crate) safe: bool,
    /// Whether it lends keys by the settings of now, or has the next `up` do so: they may be wider than
    /// those of a bridge that has ended. Such a command is never run unasked.
    pub(crate) lends: bool,
}

/// Set for a command that `--fix` runs: an `up` there never lends more than before.
pub(crate) const IN_A_FIX: &str = "KEYBRIDGE_IN_A_FIX";

impl Fix {
    /// A command that only a person should run.
    pub(crate) fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), safe: false, lends: false }
    }

    /// A command that `--fix` may run.
    pub(crate) fn safe(command: impl Into<String>) -> Self {
        Self { safe: true, ..Self::new(command) }
    }

    /// Runs the command as a shell would, with our own terminal. A command that names this program runs
    /// this very one.
    pub(crate) async fn run(&self, quietly: bool) -> Result<()> {
        let failed = || Error::failed(format!("`{}` failed", self.command));
        let mut shell = match System::here().shell {
            Shell::Posix => Command::new("sh"),
            Shell::PowerShell => Command::new("powershell"),
        };
        shell.args(match System::here().shell {
            Shell::Posix => &["-c"][..],
            Shell::PowerShell => &["-NoProfile", "-Command"],
        });
        shell.arg(&self.command).stdin(Stdio::inherit()).kill_on_drop(true);
        shell.env(IN_A_FIX, "1");
        if quietly {
            // Standard output is for a program.
            shell.stdout(Stdio::null());
        }
        if let Some(path) = path_with_us() {
            shell.env("PATH", path);
        }
        let status = shell.status().await.map_err(|error| failed().caused_by(error))?;
        if status.success() {
            Ok(())
        } else {
            Err(Error::failed(format!("`{}` failed ({status})", self.command)))
        }
    }
}

/// PATH with the folder of this program in front, if the program has the name that the commands use.
fn path_with_us() -> Option<std::ffi::OsString> {
    let program = std::env::current_exe().ok()?;
    let name = System::here().program_file("keybridge");
    let folder = program.parent().filter(|_| program.file_name() == Some(name.as_ref()))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).ok()
}

/// A path, quoted for a shell.
pub(crate) fn path(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}

/// A program of GnuPG for the home that keybridge uses.
pub(crate) fn gnupg(program: &str, gnupg: &Gnupg, words: &[&str]) -> String {
    let home = gnupg.home.as_ref().filter(|home| !home.as_os_str().is_empty());
    let home = home.map(|home| format!(" --homedir {}", path(home))).unwrap_or_default();
    format!("{program}{home} {}", line(words))
}
