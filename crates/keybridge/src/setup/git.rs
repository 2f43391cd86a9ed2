//! The key that git in the target signs with: the one that git uses on this machine.

use std::path::Path;
use std::time::Duration;

use keybridge_proto::Lane;
use keybridge_proto::printable;
use tokio::process::Command;

use crate::keys::PublicKeys;
use crate::platform::variable;
use crate::program;
use crate::{Error, Result};

/// A key for git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SigningKey {
    /// The fingerprint of an OpenPGP key.
    Gpg(String),
    /// An SSH key as a line of its `.pub` file, without the comment.
    Ssh(String),
}

impl SigningKey {
    /// The key that git on this machine is set up with, or else the first OpenPGP key that is sent.
    pub(super) async fn find(lanes: &[Lane], keys: &PublicKeys) -> Result<Self> {
        let set = setting("user.signingKey").await?;
        let is_ssh = setting("gpg.format").await?.as_deref() == Some("ssh");
        if is_ssh && lanes.contains(&Lane::Ssh) {
            let set = set.ok_or_else(|| {
                Error::failed("git on this machine signs with SSH but has no user.signingKey")
                    .hint("git config --global user.signingKey \"$(cat ~/.ssh/id_ed25519.pub)\"")
            })?;
            return ssh_key(&set);
        }
        if !lanes.contains(&Lane::Gpg) {
            return Err(Error::failed(
                "git on this machine signs with gpg, but the gpg lane is off",
            )
            .hint("git config --global gpg.format ssh, and user.signingKey with an SSH key"));
        }
        let wanted = set.filter(|_| !is_ssh);
        let found = keys.keys.iter().find(|key| {
            wanted.as_ref().is_none_or(|wanted| is_named(key, wanted.trim_end_matches('!')))
        });
        match (found, wanted) {
            (Some(key), _) => Ok(Self::Gpg(key.fingerprint.clone())),
            // It may be the id of a subkey, which gpg in the target knows if the key was sent.
            (None, Some(wanted)) => subkey(&wanted),
            (None, None) => Err(Error::failed("no OpenPGP key for git to sign with")
                .hint("create one with gpg --quick-gen-key, or leave gpg out with --lanes ssh")),
        }
    }

    /// The option of the helper that sets it up.
    pub(super) fn option(&self) -> String {
        match self {
            Self::Gpg(key) => format!("gpg={key}"),
            Self::Ssh(key) => format!("ssh={key}"),
        }
    }
}

/// The id or fingerprint of a key, with a `!` if no other subkey will do.
fn subkey(wanted: &str) -> Result<SigningKey> {
    let id = wanted.strip_prefix("0x").unwrap_or(wanted);
    let digits = id.strip_suffix('!').unwrap_or(id);
    if digits.len() >= 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(SigningKey::Gpg(id.to_owned()));
    }
    Err(Error::failed(format!(
        "user.signingKey {} isn't among the keys that are sent",
        printable(wanted)
    ))
    .hint("git config --global user.signingKey FINGERPRINT; --keys says which keys are sent"))
}

fn is_named(key: &crate::keys::KeyInfo, wanted: &str) -> bool {
    let id = wanted.strip_prefix("0x").unwrap_or(wanted).to_ascii_uppercase();
    (id.len() >= 8 && key.fingerprint.ends_with(&id)) || key.user_id.contains(wanted)
}

/// The key itself: a path would mean nothing in the target.
fn ssh_key(set: &str) -> Result<SigningKey> {
    let text = match set.strip_prefix("key::") {
        Some(key) => key.to_owned(),
        None if set.starts_with("ssh-") || set.starts_with("ecdsa-") || set.starts_with("sk-") => {
            set.to_owned()
        }
        None => read_public(set)?,
    };
    let mut fields = text.split_whitespace();
    match (fields.next(), fields.next()) {
        (Some(kind), Some(key)) => Ok(SigningKey::Ssh(format!("{kind} {key}"))),
        _ => Err(Error::failed(format!("user.signingKey {} isn't an SSH key", printable(set)))),
    }
}

fn read_public(set: &str) -> Result<String> {
    let home = variable("HOME").unwrap_or_default();
    let path = match set.strip_prefix("~/") {
        Some(rest) => Path::new(&home).join(rest),
        None => set.into(),
    };
    // git takes the name of a secret key too; only its public half is read here.
    let public = match path.extension() {
        Some(extension) if extension == "pub" => path,
        Some(_) | None => {
            let mut name = path.into_os_string();
            name.push(".pub");
            name.into()
        }
    };
    std::fs::read_to_string(&public).map_err(|error| {
        Error::failed(format!("can't read user.signingKey {}", public.display()))
            .caused_by(error)
            .hint("name the public key there: git config --global user.signingKey FILE.pub")
    })
}

async fn setting(name: &str) -> Result<Option<String>> {
    const TIME: Duration = Duration::from_secs(10);
    const LIMIT: usize = 16 * 1024;
    let mut git = Command::new("git");
    // Not the setting of the repository in the current folder.
    git.args(["config", "--global", "--get", name]);
    match program::run(git, LIMIT, TIME).await {
        Ok(output) if output.status.success() => {
            let value = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            Ok(Some(value).filter(|value| !value.is_empty()))
        }
        // Not set, or no git on this machine.
        Ok(_) | Err(program::RunError::NotStarted(_)) => Ok(None),
        Err(program::RunError::Failed(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ssh_key_itself_is_sent_and_never_its_path() {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("id");
        std::fs::write(folder.path().join("id.pub"), "ssh-ed25519 AAAA me@here\n").unwrap();
        let key = SigningKey::Ssh("ssh-ed25519 AAAA".to_owned());
        let public = format!("{}.pub", secret.display());
        for set in
            ["key::ssh-ed25519 AAAA x", "ssh-ed25519 AAAA", &public, secret.to_str().unwrap()]
        {
            assert_eq!(ssh_key(set).as_ref(), Ok(&key), "{set}");
        }
        assert!(ssh_key("/nowhere/id").is_err());
        assert!(ssh_key("key::nothing").is_err());
    }
}
