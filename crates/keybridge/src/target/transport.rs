//! The program of the host that leads to a target.

use std::io;
use std::time::Duration;

use keybridge_proto::printable;
use tokio::process::Command;

use super::TargetAddress;
use crate::platform::{System, find_program};
use crate::program::{self, RunError};
use crate::{Error, ErrorKind, Result};

/// How long the program may take to print its version.
const TIME: Duration = Duration::from_secs(3);

/// A version is short.
const LIMIT: usize = 64 * 1024;

/// The program that leads to a target, with its version where it tells one. `None` if none does.
pub(crate) async fn version(address: &TargetAddress) -> Option<Result<String>> {
    match address {
        TargetAddress::Ssh(_) => Some(ssh().await),
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

async fn ssh() -> Result<String> {
    let mut ssh = Command::new("ssh");
    ssh.arg("-V");
    match program::run(ssh, LIMIT, TIME).await {
        // It prints its version as an error.
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.messages);
            let first = text.lines().next().unwrap_or_default();
            Ok(printable(first.split(',').next().unwrap_or_default()).to_string())
        }
        Err(RunError::NotStarted(error)) => Err(missing("ssh", &error)),
        Err(RunError::Failed(error)) => Err(error),
    }
}

/// Looks for a program without running it.
fn find(program: &str) -> Result<String> {
    let path = std::path::Path::new(program);
    let is_path = path.components().nth(1).is_some() && path.is_file();
    if is_path || find_program(program).is_some() {
        Ok(printable(program).to_string())
    } else {
        Err(missing(program, &io::ErrorKind::NotFound.into()))
    }
}

fn missing(program: &str, error: &io::Error) -> Error {
    let message = format!("{} can't be started: {error}", printable(program));
    let error = Error::new(ErrorKind::NoTarget, message);
    match program {
        "ssh" => error.hint(System::here().install_ssh),
        "wsl.exe" => {
            error.hint("wsl:// targets are for a keybridge that runs in Windows or in WSL")
        }
        _ => error.hint("see if the program is there, and in PATH"),
    }
}
