//! Keys of an agent that are limited to some destinations (`ssh-add -h`), and what depends on them.
//!
//! An agent doesn't say which keys are. But it hides them from a connection that is bound to a session with
//! another host.

use std::fmt;
use std::time::Duration;

use keybridge_link::ask_ssh_agent;
use keybridge_proto::ssh::{Frame, MessageType, bind_to_host};
use tokio::process::Command;

use crate::program;
use crate::ssh_agent::{KeyList, SshDialer};
use crate::target::random_bytes;

/// How long `ssh -V` may take.
const VERSION_TIME: Duration = Duration::from_secs(5);

/// A version of OpenSSH: its two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenSshVersion(pub u32, pub u32);

/// An agent with keys that are limited to destinations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitedKeys {
    /// How many keys are.
    pub count: usize,
    /// The version of the program `ssh`, if that is OpenSSH's. An agent doesn't tell its own.
    pub ssh: Option<OpenSshVersion>,
}

impl OpenSshVersion {
    /// Reads what `ssh -V` prints: `OpenSSH_9.2p1 Debian-2`, `OpenSSH_for_Windows_9.5p1`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.trim_start().strip_prefix("OpenSSH_")?;
        let rest = rest.strip_prefix("for_Windows_").unwrap_or(rest);
        let (major, rest) = rest.split_once('.')?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        Some(Self(major.parse().ok()?, rest.get(..end)?.parse().ok()?))
    }
}

impl fmt::Display for OpenSshVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl SshDialer {
    /// The agent's keys that are limited to destinations, if there are any and the agent knows of such
    /// limits. The caller sets a time limit.
    pub async fn limited_keys(&self) -> Option<LimitedKeys> {
        let mut stream = self.dial().await.ok()?;
        let all = KeyList::ask(&mut stream).await.ok()?;
        let bind = bind_to_host(&random_bytes().ok()?);
        let bound = ask_ssh_agent(&mut stream, &bind).await.ok()?;
        let (frame, _) = Frame::parse(&bound).ok()??;
        if frame.kind() != MessageType::SUCCESS {
            return None;
        }
        let elsewhere = KeyList::ask(&mut stream).await.ok()?;
        let hidden = all.identities().len().saturating_sub(elsewhere.identities().len());
        let count = usize::try_from(hidden).ok().filter(|&count| count > 0)?;
        Some(LimitedKeys { count, ssh: self.ssh_version().await })
    }

    async fn ssh_version(&self) -> Option<OpenSshVersion> {
        let mut command = Command::new(&self.0.places.ssh);
        command.arg("-V");
        let output = program::run(command, 4096, VERSION_TIME).await.ok()?;
        OpenSshVersion::parse(&String::from_utf8_lossy(&output.messages))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_of_openssh_is_read_and_nothing_else_is() {
        for (text, version) in [
            ("OpenSSH_9.2p1 Debian-2+deb12u10, OpenSSL 3.0.19\n", OpenSshVersion(9, 2)),
            ("OpenSSH_10.10, LibreSSL 4", OpenSshVersion(10, 10)),
            ("OpenSSH_for_Windows_9.5p1, LibreSSL", OpenSshVersion(9, 5)),
        ] {
            assert_eq!(OpenSshVersion::parse(text), Some(version));
        }
        for text in ["", "Dropbear v2022.83", "OpenSSH_", "OpenSSH_x.y", "OpenSSH_9.p1"] {
            assert_eq!(OpenSshVersion::parse(text), None, "{text}");
        }
        assert!(
            OpenSshVersion(10, 4) < OpenSshVersion(10, 5)
                && OpenSshVersion(9, 9) < OpenSshVersion(10, 0)
        );
    }
}
