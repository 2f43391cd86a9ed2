//! The logins that are allowed, with the keys that the user's own `known_hosts` has for their hosts.
//!
//! ssh-keygen looks them up, since names in such a file can be hashed or patterns. What it prints are lines of
//! the file. A key that is marked as revoked there never counts, and one that only signs certificates doesn't.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keybridge_proto::permission::LoginRule;
use keybridge_proto::ssh::Fingerprint;

use crate::platform::{System, clean_command, expand, program, variable};
use crate::program::{self, RunError};
use crate::{Error, Result};

/// How much ssh-keygen may print for one host, and how long it may take. Some files have thousands of lines.
const MAX_LINES: usize = 1024 * 1024;
const TIME: Duration = Duration::from_secs(10);

/// The allowed logins, as far as the keys of their hosts are known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct KnownLogins {
    pub(crate) rules: Vec<LoginRule>,
    /// The hosts of which no key is known.
    pub(crate) unknown: Vec<String>,
}

impl KnownLogins {
    /// Looks up the hosts of these users and hosts.
    pub(crate) async fn find(logins: Option<&[(String, String)]>) -> Self {
        let mut known = Self::default();
        for (user, host) in logins.unwrap_or_default() {
            let files = expand(System::here().known_hosts, variable);
            let keys = keys_of(host, &files).await.unwrap_or_else(|error| {
                tracing::warn!(%error, "the keys of {host} can't be looked up");
                Vec::new()
            });
            if keys.is_empty() && !known.unknown.contains(host) {
                known.unknown.push(host.clone());
            }
            known.rules.push(LoginRule { user: user.clone(), hosts: keys });
        }
        known
    }
}

/// The keys that these files have for a host.
async fn keys_of(host: &str, files: &[PathBuf]) -> Result<Vec<Fingerprint>> {
    let mut lines = Vec::new();
    for file in files.iter().filter(|file| file.is_file()) {
        let mut command = clean_command(&program("ssh-keygen"));
        command.args(["-F", host, "-f"]).arg(file);
        // It fails if the file has no such host.
        match program::run(command, MAX_LINES, TIME).await {
            Ok(output) => lines.extend(output.stdout),
            Err(RunError::NotStarted(error)) => {
                return Err(Error::failed("can't start ssh-keygen on the host").caused_by(error));
            }
            Err(RunError::Failed(error)) => return Err(error),
        }
        lines.push(b'\n');
    }
    Ok(keys_in(&String::from_utf8_lossy(&lines)))
}

/// The keys in lines of such files that a host may prove.
fn keys_in(lines: &str) -> Vec<Fingerprint> {
    let (mut keys, mut revoked) = (BTreeSet::new(), BTreeSet::new());
    for line in lines.lines().map(str::trim_start).filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (kind, key) = match words.as_slice() {
            ["@revoked", _, _, key, ..] => (&mut revoked, key),
            [hosts, _, key, ..] if !hosts.starts_with('@') => (&mut keys, key),
            _ => continue,
        };
        kind.extend(STANDARD.decode(key).ok().and_then(|key| Fingerprint::of(&key)));
    }
    keys.difference(&revoked).copied().collect()
}

#[cfg(test)]
mod tests {
    // With the ssh-keygen of the lab.
    crate::platform::tests_on_unix! {
    use super::*;
    use keybridge_lab::command;

    /// A new host key: the line that a file has for it, and its fingerprint.
    fn host_key(folder: &std::path::Path, name: &str) -> (String, Fingerprint) {
        let file = folder.join(name);
        let made = command("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
            .arg(&file)
            .status();
        assert!(made.unwrap().success());
        let line = std::fs::read_to_string(file.with_extension("pub")).unwrap();
        let words: Vec<&str> = line.split_whitespace().collect();
        let key = STANDARD.decode(words[1]).unwrap();
        (words.join(" "), Fingerprint::of(&key).unwrap())
    }

    #[tokio::test]
    async fn keys_are_those_that_ssh_would_accept_of_the_host() {
        let folder = tempfile::tempdir().unwrap();
        let [plain, port, shared, authority, revoked] =
            ["plain", "port", "shared", "authority", "revoked"]
                .map(|name| host_key(folder.path(), name));
        let (hashed, more) = (folder.path().join("hashed"), folder.path().join("more"));
        let lines = format!("one.example {}\n[one.example]:2222 {}\n", plain.0, port.0);
        std::fs::write(&hashed, lines).unwrap();
        let hash = command("ssh-keygen").args(["-q", "-H", "-f"]).arg(&hashed).output();
        assert!(hash.unwrap().status.success());
        assert!(!std::fs::read_to_string(&hashed).unwrap().contains("one.example"));
        let lines = format!(
            "# a comment\n\n*.example,!two.example {}\n@cert-authority *.example {}\n\
             one.example {}\n@revoked * {}\nnot a line\n",
            shared.0, authority.0, revoked.0, revoked.0
        );
        std::fs::write(&more, lines).unwrap();
        let files = [hashed, folder.path().join("isn't there"), more];
        for (host, mut expected) in [
            ("one.example", vec![plain.1, shared.1]),
            ("[one.example]:2222", vec![port.1]),
            ("three.example", vec![shared.1]),
            ("two.example", vec![]),
            ("elsewhere", vec![]),
        ] {
            expected.sort();
            assert_eq!(keys_of(host, &files).await.unwrap(), expected, "{host}");
        }
    }
    }
}
