//! The key that git in the target signs with: the one that git uses on the host.

use std::path::Path;
use std::time::Duration;

use keybridge_proto::Lane;
use keybridge_proto::printable;
use tokio::process::Command;

use super::agents::Agents;
use crate::keyring::{KeyId, Keyring};
use crate::keys::{KeyInfo, PublicKeys};
use crate::platform::variable;
use crate::program::{self, RunError};
use crate::{Error, Result};

/// git's setting for a command that prints the key, where `user.signingKey` isn't set.
const KEY_COMMAND: &str = "gpg.ssh.defaultKeyCommand";

/// How long git may take, and that command.
const TIME: Duration = Duration::from_secs(10);

/// All keys of an agent, as `ssh-add -L` prints them.
const LISTED_KEYS: usize = 256 * 1024;

/// A key for git.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SigningKey {
    /// The fingerprint of an OpenPGP key.
    Gpg(String),
    /// An SSH key as a line of its `.pub` file, without the comment.
    Ssh(String),
}

impl SigningKey {
    /// The key that git on the host is set up with, or else the first OpenPGP key that is sent. A command of
    /// the user's that names it gets this `SSH_AUTH_SOCK`.
    pub(super) async fn find(agents: &Agents, keys: &PublicKeys, auth_sock: &Path) -> Result<Self> {
        let (lanes, git) = (agents.lanes(), agents.git.as_ref());
        let set = setting("user.signingKey").await?;
        let is_ssh = setting("gpg.format").await?.as_deref() == Some("ssh");
        if is_ssh && (lanes.contains(&Lane::Ssh) || git.is_some_and(|git| git.ssh.is_some())) {
            if let Some(set) = set {
                return ssh_key(&set);
            }
            let Some(command) = setting(KEY_COMMAND).await? else {
                return Err(Error::failed(
                    "git on the host signs with SSH but has no user.signingKey",
                )
                .hint("git config --global user.signingKey \"$(cat ~/.ssh/id_ed25519.pub)\""));
            };
            return printed_key(&command, auth_sock).await;
        }
        let of_git = git.and_then(|git| git.openpgp.as_ref());
        if let Some(keyring) = of_git.filter(|_| !lanes.contains(&Lane::Gpg)) {
            return lent_key(keyring, set.filter(|_| !is_ssh)).await;
        }
        if !lanes.contains(&Lane::Gpg) {
            return Err(Error::failed("git on the host signs with gpg, but the gpg lane is off")
                .hint("git config --global gpg.format ssh, and user.signingKey with an SSH key"));
        }
        let wanted = set.filter(|_| !is_ssh);
        let found =
            keys.keys.iter().find(|key| wanted.as_ref().is_none_or(|wanted| is_named(key, wanted)));
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

/// A key that the git lane lends, which may be the only lane.
async fn lent_key(keyring: &Keyring, wanted: Option<String>) -> Result<SigningKey> {
    match keyring.fingerprint_for_git(wanted.as_deref()).await {
        Some(fingerprint) => Ok(SigningKey::Gpg(fingerprint)),
        None => Err(Error::failed(match wanted {
            Some(wanted) => {
                format!("user.signingKey {} isn't lent for signing", printable(&wanted))
            }
            None => "no OpenPGP key is lent for signing".to_owned(),
        })
        .hint("choose one with --lend, or git config --global user.signingKey FINGERPRINT")),
    }
}

/// The id or fingerprint of a key, with a `!` if no other subkey will do.
fn subkey(wanted: &str) -> Result<SigningKey> {
    if let Some(id) = KeyId::parse_long(wanted) {
        return Ok(SigningKey::Gpg(id.to_string()));
    }
    Err(Error::failed(format!(
        "user.signingKey {} isn't among the keys that are sent",
        printable(wanted)
    ))
    .hint("git config --global user.signingKey FINGERPRINT; --keys says which keys are sent"))
}

fn is_named(key: &KeyInfo, wanted: &str) -> bool {
    match KeyId::parse(wanted) {
        Some(id) => id.is_of(&key.fingerprint),
        None => key.user_id.contains(wanted),
    }
}

/// The key that a command prints on its first line. git runs it in the same way, without a shell.
async fn printed_key(line: &str, auth_sock: &Path) -> Result<SigningKey> {
    let failed = |why: &str| Error::failed(format!("{KEY_COMMAND}: {why}"));
    let words = shell_words::split(line).map_err(|error| failed(&error.to_string()))?;
    let [name, arguments @ ..] = words.as_slice() else { return Err(failed("it is empty")) };
    let mut command = Command::new(name);
    command.args(arguments);
    // It may ask the agent, which may be another one than when this process began.
    if !auth_sock.as_os_str().is_empty() {
        command.env("SSH_AUTH_SOCK", auth_sock);
    }
    let output = match program::run(command, LISTED_KEYS, TIME).await {
        Ok(output) => output,
        Err(RunError::NotStarted(error)) => {
            return Err(failed(&format!("can't start {}", printable(name))).caused_by(error));
        }
        Err(RunError::Failed(error)) => return Err(failed(&error.message)),
    };
    if !output.status.success() {
        return Err(failed(&output.error(name).message));
    }
    let printed = String::from_utf8_lossy(&output.stdout);
    let first = printed.lines().next().unwrap_or_default();
    if !is_literal(first) {
        return Err(failed("it printed no SSH key on its first line"));
    }
    ssh_key(first)
}

/// Whether a value is a key, and not where one is.
fn is_literal(value: &str) -> bool {
    ["key::", "ssh-", "ecdsa-", "sk-"].iter().any(|beginning| value.starts_with(beginning))
}

/// The key itself: a path would mean nothing in the target.
fn ssh_key(set: &str) -> Result<SigningKey> {
    let text = match set.strip_prefix("key::") {
        Some(key) => key.to_owned(),
        None if is_literal(set) => set.to_owned(),
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
    const LIMIT: usize = 16 * 1024;
    let mut git = Command::new("git");
    // Not the setting of the repository in the current folder.
    git.args(["config", "--global", "--get", name]);
    match program::run(git, LIMIT, TIME).await {
        Ok(output) if output.status.success() => {
            let value = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            Ok(Some(value).filter(|value| !value.is_empty()))
        }
        // Not set, or no git on the host.
        Ok(_) | Err(RunError::NotStarted(_)) => Ok(None),
        Err(RunError::Failed(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::platform::tests_on_unix! {
    #[tokio::test]
    async fn a_command_names_the_key_on_its_first_line() {
        let named = async |line: &str| printed_key(line, Path::new("/agent")).await;
        let key = SigningKey::Ssh("ssh-ed25519 AAAA".to_owned());
        for line in [
            "echo 'key::ssh-ed25519 AAAA me@here'",
            "printf 'ssh-ed25519 AAAA\nssh-ed25519 BBBB\n'",
            "sh -c 'test $SSH_AUTH_SOCK = /agent && echo ssh-ed25519 AAAA'",
        ] {
            assert_eq!(named(line).await.as_ref(), Ok(&key), "{line}");
        }
        // Neither a path, nor what fails, nor what only a shell would run.
        for line in ["echo /etc/passwd", "false", "/nonexistent/x", "echo 'a", "", "true; echo ssh-ed25519 AAAA"] {
            let error = named(line).await.unwrap_err();
            assert!(error.message.starts_with("gpg.ssh.defaultKeyCommand: "), "{line}: {error}");
        }
    }
    }

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
