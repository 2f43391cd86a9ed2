//! Has ssh-keygen sign for git, with one key of the ssh-agent that is lent.

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keybridge_proto::git::{Answer, Request, is_one_ssh_signature};
use keybridge_proto::permission::KeyName;
use keybridge_proto::session::{Operations, Outcome};
use keybridge_proto::ssh::{Fingerprint, SelectionInForce};
use keybridge_proto::{last_line, printable};

use super::openpgp::{MAX_SIGNATURE, TIME};
use super::{file_with, not_begun, to_its_end, turn_of, wanted};
use crate::platform::{clean_command, program};
use crate::program::{self, RunError};
use crate::ssh_agent::SshDialer;
use crate::{Error, Result};

/// The name of a file with a public key, beside which there is no secret one.
const KEY_FILE: &str = "key.pub";

/// Signs, if the public key that git named is one of the agent's that are lent.
pub(super) async fn sign(
    dialer: &SshDialer,
    selection: &SelectionInForce,
    operations: &Operations,
    request: &Request,
) -> Answer {
    let Some(named) = public_key(&request.key) else {
        return Answer::NotLent("it isn't an ssh key".to_owned());
    };
    let (found, keys) = match dialer.find().await {
        Ok(found) => found,
        // The error names sockets of the host, and the dialer has logged it once.
        Err(error) => {
            tracing::debug!(%error, "git wants a signature with an ssh key");
            // Who has no agent at all lends none of its keys; the target may sign with one of its own.
            if !dialer.has_found() {
                return Answer::NotLent("the host has no ssh-agent".to_owned());
            }
            return Answer::Failed("the host has no ssh-agent that answers now".to_owned());
        }
    };
    let listed = keys.identities();
    // The same for a key that the agent has: a target needn't know which those are.
    let not_lent = || Answer::NotLent("this ssh key isn't lent".to_owned());
    let Some(key) = listed.iter().map(|one| one.key).find(|key| *key == named) else {
        return not_lent();
    };
    let is_lent = || selection.get().resolved(&listed).lends(key);
    if !is_lent() {
        return not_lent();
    }
    let Some(fingerprint) = Fingerprint::of(key) else { return not_lent() };
    let wanted = match wanted(request, KeyName::Print(fingerprint)) {
        Ok(wanted) => wanted,
        Err(refusal) => return refusal,
    };
    let what = wanted.operations;
    let turn = match turn_of(operations, wanted).await {
        Ok(turn) => turn,
        Err(refusal) => return refusal,
    };
    // It may have waited.
    if !is_lent() {
        return not_begun(turn, not_lent());
    }
    let (key, agent, object) = (named, found.path, request.object.clone());
    let signing = async move {
        match run(&key, &agent, &object).await {
            Ok(signature) => {
                (Outcome::Succeeded, Answer::Signed { status: String::new(), signature })
            }
            Err(error) => (Outcome::Failed, Answer::Failed(error.to_string())),
        }
    };
    to_its_end(turn, what, request, signing).await
}

/// Runs ssh-keygen, which has the agent sign.
async fn run(key: &[u8], agent: &Path, object: &[u8]) -> Result<Vec<u8>> {
    let folder = file_with(KEY_FILE, key_line(key).as_bytes())?;
    let mut command = clean_command(&program("ssh-keygen"));
    // Its messages name the file, and the target gets the last one.
    command.args(["-Y", "sign", "-n", "git", "-f", KEY_FILE]).current_dir(folder.path());
    command.env("SSH_AUTH_SOCK", agent);
    let output = match program::run_with(command, Some(object), MAX_SIGNATURE, TIME).await {
        Ok(output) => output,
        Err(RunError::NotStarted(error)) => {
            return Err(Error::failed("can't start ssh-keygen on the host").caused_by(error));
        }
        Err(RunError::Failed(error)) => return Err(error),
    };
    if !output.status.success() {
        let last = printable(last_line(&output.messages)).to_string();
        return Err(Error::failed(format!("ssh-keygen on the host: {last}")));
    }
    if !is_one_ssh_signature(&output.stdout) {
        return Err(Error::failed("ssh-keygen on the host made no signature"));
    }
    Ok(output.stdout)
}

/// The key in `TYPE BASE64`, as git has it in its settings and in files.
fn public_key(text: &[u8]) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split_ascii_whitespace();
    let (kind, key) = (words.next()?, STANDARD.decode(words.next()?).ok()?);
    (type_of(&key)? == kind.as_bytes()).then_some(key)
}

/// The type of a key in wire format: its first field.
fn type_of(key: &[u8]) -> Option<&[u8]> {
    let (size, rest) = key.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(u32::from_be_bytes(*size)).ok()?)
}

/// The line of a file with a key of the agent's.
fn key_line(key: &[u8]) -> String {
    let kind = String::from_utf8_lossy(type_of(key).unwrap_or_default()).into_owned();
    format!("{kind} {}\n", STANDARD.encode(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIMKFvY4+qYa8wl2aRzOniNjkj66/Unwpec0joVuTeMhv";

    #[test]
    fn a_public_key_is_its_type_and_itself() {
        let key = public_key(KEY.as_bytes()).unwrap();
        assert_eq!(key_line(&key), format!("{KEY}\n"));
        let longer = format!("  {KEY} a comment\n");
        assert_eq!(public_key(longer.as_bytes()).as_ref(), Some(&key));
        for wrong in [
            "",
            "ssh-ed25519",
            "ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIMKFvY4+qYa8wl2aRzOniNjkj66/Unwpec0joVuTeMhv",
            "ssh-ed25519 AAAA",
            "ssh-ed25519 /////w==",
            "ssh-ed25519 -f",
            "~/.ssh/id_ed25519.pub",
        ] {
            assert_eq!(public_key(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(public_key(b"ssh-ed25519 \xff"), None);
    }
}
