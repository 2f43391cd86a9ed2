//! Asks ssh which agent its configuration names.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keybridge_proto::os_string;
use tokio::process::Command;

use crate::program::{self, RunError};

/// ssh answers in milliseconds, unless its configuration runs a program.
const TIME: Duration = Duration::from_secs(3);

/// `ssh -G` prints a few KiB.
const OUTPUT: usize = 256 * 1024;

/// A host name that can't exist: what ssh says about it applies to every host.
const HOST: &str = "keybridge.invalid";

/// The agent that ssh's configuration names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum IdentityAgent {
    /// It names none, so ssh uses `SSH_AUTH_SOCK`.
    NotSet,
    /// It names `SSH_AUTH_SOCK` by name.
    AuthSock,
    /// It says that none is to be used.
    None,
    /// It names a socket.
    Path(PathBuf),
    /// ssh didn't say; why not.
    Unknown(String),
}

impl IdentityAgent {
    /// Asks ssh, with this value of `SSH_AUTH_SOCK` in its environment.
    pub(crate) async fn ask(ssh: &Path, auth_sock: Option<&Path>) -> Self {
        let mut command = Command::new(ssh);
        command.args(["-G", HOST]);
        match auth_sock {
            Some(path) => command.env("SSH_AUTH_SOCK", path),
            None => command.env_remove("SSH_AUTH_SOCK"),
        };
        match program::run(command, OUTPUT, TIME).await {
            Ok(output) if output.status.success() => {
                Self::parse(&output.stdout, |name| std::env::var_os(name))
            }
            Ok(output) => Self::Unknown(output.error("ssh -G").message),
            Err(RunError::NotStarted(error)) => {
                Self::Unknown(format!("{} can't be started: {error}", ssh.display()))
            }
            Err(RunError::Failed(error)) => Self::Unknown(error.message),
        }
    }

    /// Parses ssh's output. ssh has expanded tokens, `${VAR}` and `~`, but not `$VAR`.
    fn parse(output: &[u8], variable: impl Fn(&str) -> Option<OsString>) -> Self {
        let value = output
            .split(|&byte| byte == b'\n')
            .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
            .find_map(|line| line.strip_prefix(b"identityagent "));
        let Some(value) = value else { return Self::NotSet };
        match value {
            b"none" => Self::None,
            b"SSH_AUTH_SOCK" | b"$SSH_AUTH_SOCK" => Self::AuthSock,
            [b'$', name @ ..] => {
                let name = String::from_utf8_lossy(name);
                match variable(&name).filter(|value| !value.is_empty()) {
                    Some(path) => Self::Path(path.into()),
                    None => Self::NotSet,
                }
            }
            path => Self::Path(os_string(path.to_vec()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ssh_prints_is_read_as_ssh_reads_it() {
        let parse = |value: &str| {
            let output = format!("user me\nidentityagent {value}\r\nport 22\n");
            let variable = |name: &str| match name {
                "FOO" => Some(OsString::from("/run/foo")),
                "EMPTY" => Some(OsString::new()),
                _ => None,
            };
            IdentityAgent::parse(output.as_bytes(), variable)
        };
        let path = |path: &str| IdentityAgent::Path(path.into());
        for (value, expected) in [
            ("none", IdentityAgent::None),
            ("SSH_AUTH_SOCK", IdentityAgent::AuthSock),
            ("$SSH_AUTH_SOCK", IdentityAgent::AuthSock),
            ("$FOO", path("/run/foo")),
            ("$EMPTY", IdentityAgent::NotSet),
            ("$BAR", IdentityAgent::NotSet),
            ("/run/a b.sock", path("/run/a b.sock")),
            ("None", path("None")),
        ] {
            assert_eq!(parse(value), expected, "{value}");
        }
        let none = IdentityAgent::parse(b"user me\nidentityagentx y\n", |_| None);
        assert_eq!(none, IdentityAgent::NotSet);
    }
}
