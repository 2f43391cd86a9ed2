//! Has gpg sign for git, with one key that is lent.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use keybridge_proto::assuan::ErrorCode;
use keybridge_proto::git::{Answer, Request, is_one_openpgp_signature};
use keybridge_proto::permission::KeyName;
use keybridge_proto::session::{Operations, Outcome};
use keybridge_proto::{printable, printable_up_to};

use super::{file_with, not_begun, to_its_end, turn_of, wanted};
use crate::gnupg::Gnupg;
use crate::keyring::{Keyring, NoSigner, Signer};
use crate::program::{self, Output, RunError};

/// A person may be at the pinentry, or looks for a card.
pub(super) const TIME: Duration = Duration::from_mins(10);

/// A signature in armour has some hundred bytes, and a few thousand with RSA and notations.
pub(super) const MAX_SIGNATURE: usize = 64 * 1024;

/// How much of a key file is read. The public part and a secret key of any kind take a few kilobytes.
const MAX_KEY_FILE: u64 = 64 * 1024;

/// How much of the key that git named an answer says again: a fingerprint, or who commits.
const SHOWN_KEY: usize = 100;

/// The name of the file with the object.
const OBJECT_FILE: &str = "object";

/// How gpg begins a line of its status.
const STATUS: &str = "[GNUPG:] ";

/// Signs, if the key that git named is lent.
pub(super) async fn sign(keyring: &Keyring, operations: &Operations, request: &Request) -> Answer {
    let (signer, ..) = match find(keyring, request).await {
        Ok(found) => found,
        Err(answer) => return answer,
    };
    let keygrip = signer.keygrip();
    let wanted = match wanted(request, KeyName::Grip(keygrip)) {
        Ok(wanted) => wanted,
        Err(refusal) => return refusal,
    };
    let cancelled = || {
        operations
            .refuse(keygrip, Instant::now())
            .then(|| Answer::Refused("the use of this key was cancelled just before".to_owned()))
    };
    if let Some(refusal) = cancelled() {
        return refusal;
    }
    let what = wanted.operations;
    let turn = match turn_of(operations, wanted).await {
        Ok(turn) => turn,
        Err(refusal) => return refusal,
    };
    // It may have waited: a person may have cancelled meanwhile, and the keys may have changed.
    if let Some(refusal) = cancelled() {
        turn.finish(Outcome::Cancelled, None, Instant::now());
        return refusal;
    }
    let (signer, gnupg, home) = match find(keyring, request).await {
        Ok(found) if found.0.keygrip() == keygrip => found,
        Ok((other, ..)) => {
            let other = other.fingerprint;
            let why = format!("the key is {other} since a moment ago; try again");
            return not_begun(turn, Answer::Failed(why));
        }
        Err(answer) => return not_begun(turn, answer),
    };
    let mut command = gnupg.clean_gpg();
    command.args(["--status-fd", "2"]);
    if asks_remote_users(&signer.key_file(&home)) {
        // To gpg-agent this machine's own gpg is local, so that it wouldn't ask.
        command.args(["--request-origin", "remote"]);
    }
    if let Some(address) = signer.address(&request.key) {
        // gpg names it in the signature if a key is chosen by it.
        command.args(["--sender", address]);
    }
    // From its input a gpg.conf with passphrase-fd would take the first line, and have the rest signed.
    let folder = match file_with(OBJECT_FILE, &request.object) {
        Ok(folder) => folder,
        Err(error) => return not_begun(turn, Answer::Failed(error.to_string())),
    };
    command.args(["--output", "-", "-bsau", &format!("{}!", signer.fingerprint), "--"]);
    command.arg(folder.path().join(OBJECT_FILE));
    let operations = operations.clone();
    let signing = async move {
        let run = program::run(command, MAX_SIGNATURE, TIME).await;
        drop(folder);
        let (outcome, answer) = match run {
            Ok(output) => judge(&signer, output),
            Err(RunError::NotStarted(error)) => {
                (Outcome::Failed, Answer::Failed(format!("can't start gpg on the host: {error}")))
            }
            Err(RunError::Failed(error)) => (Outcome::Failed, Answer::Failed(error.to_string())),
        };
        operations.note(keygrip, outcome, Instant::now());
        (outcome, answer)
    };
    to_its_end(turn, what, request, signing).await
}

/// The key that git named, if it is lent now, and the home that it is in.
async fn find(keyring: &Keyring, request: &Request) -> Result<(Signer, Gnupg, PathBuf), Answer> {
    keyring.signer(&request.key).await.map_err(|error| match error {
        NoSigner::NotLent => Answer::NotLent(format!(
            "{} isn't lent for signing",
            printable_up_to(&request.key, SHOWN_KEY)
        )),
        // The reason can name folders of the host.
        NoSigner::Unlisted => Answer::Failed(
            "the host can't list its keys; `keybridge status` there says why".to_owned(),
        ),
        NoSigner::Ambiguous => Answer::Failed(format!(
            "several lent keys have the address of {}; set user.signingKey to a fingerprint",
            printable_up_to(&request.key, SHOWN_KEY)
        )),
    })
}

/// Whether this is one signature by that key, and nothing else.
fn judge(signer: &Signer, output: Output) -> (Outcome, Answer) {
    let messages = String::from_utf8_lossy(&output.messages);
    let status: Vec<&str> = messages.lines().filter_map(|line| line.strip_prefix(STATUS)).collect();
    let failed = |reason| (Outcome::Failed, Answer::Failed(reason));
    if !output.status.success() {
        if status.iter().any(|line| is_cancelled(line)) {
            return (Outcome::Cancelled, Answer::Refused("cancelled on the host".to_owned()));
        }
        // Other lines can name files of the host.
        let why = messages.lines().rfind(|line| line.starts_with("gpg: signing failed: "));
        let why = why.unwrap_or("it can't sign; run `keybridge doctor` there");
        return failed(format!("gpg on the host: {}", printable(why)));
    }
    let mut created = status.iter().filter(|line| line.starts_with("SIG_CREATED "));
    let (Some(created), None) = (created.next(), created.next()) else {
        return failed(
            "gpg on the host didn't make exactly one signature; look for local-user in its gpg.conf"
                .to_owned(),
        );
    };
    let words: Vec<&str> = created.split(' ').collect();
    // Detached, of a document, by that very key.
    let hash = match *words {
        [_, "D", _, hash, "00", _, by] if by == signer.fingerprint => Some(hash),
        _ => None,
    };
    let (Some(hash), true) = (hash, is_one_openpgp_signature(&output.stdout)) else {
        return failed(
            "gpg on the host made another signature than the one that is lent".to_owned(),
        );
    };
    // git before 2.36 looks for a line before the one with the signature, as gpg writes it.
    let status = format!("{STATUS}BEGIN_SIGNING H{hash}\n{STATUS}{created}\n");
    (Outcome::Succeeded, Answer::Signed { status, signature: output.stdout })
}

/// Whether a line of the status says that a person has cancelled a dialog, or said no: `FAILURE sign CODE`.
fn is_cancelled(line: &str) -> bool {
    let code = line.strip_prefix("FAILURE sign ").and_then(|code| code.parse().ok());
    code.is_some_and(|code| ErrorCode::from_value(code).is_cancel())
}

/// Whether a key file says that a person is to confirm each use by others than this machine's programs.
fn asks_remote_users(key_file: &Path) -> bool {
    let Ok(file) = std::fs::File::open(key_file) else { return false };
    let lines = BufReader::new(file.take(MAX_KEY_FILE)).split(b'\n');
    let mut lines = lines.map_while(Result::ok);
    lines.any(|line| {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return false };
        let (name, value) = line.split_at(colon);
        name.eq_ignore_ascii_case(b"confirm")
            && value.trim_ascii_end().to_ascii_lowercase().ends_with(b"restricted")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cancelled_dialog_is_told_from_other_failures() {
        for (line, expected) in [
            ("FAILURE sign 67108963", true),
            ("FAILURE sign 83886179", true),
            ("FAILURE sign 67109062", true),
            ("FAILURE sign 83886194", true),
            ("FAILURE sign 67108881", false),
            ("FAILURE sign x", false),
            ("FAILURE gpg-exit 99", false),
            ("SIG_CREATED D", false),
        ] {
            assert_eq!(is_cancelled(line), expected, "{line}");
        }
    }

    #[test]
    fn a_key_file_says_whether_to_ask() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        for (text, expected) in [
            ("Key: (protected-private-key)\nConfirm: restricted\n", true),
            ("confirm:Restricted\r\nKey: x\n", true),
            ("Confirm: yes\nKey: x\n", false),
            ("Key: (x\n Confirm: restricted)\n", false),
            ("(11:private-key", false),
            ("", false),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(asks_remote_users(&path), expected, "{text}");
        }
        assert!(!asks_remote_users(&folder.path().join("none")));
    }
}
