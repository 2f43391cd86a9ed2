//! The git lane: signs commits and tags for git in a target, with the user's own gpg and ssh-keygen.
//!
//! The target's words are bytes to read and nothing else. The object has to be one that git writes, and the
//! key is looked up among those that are lent; what gpg and ssh-keygen get as arguments comes from the user's
//! keyring and agent.

mod openpgp;
mod serve;
mod ssh;

use std::rc::Rc;
use std::time::Instant;

use keybridge_proto::OperationSet;
use keybridge_proto::git::{Answer, Format, Object, Request, signed_id};
use keybridge_proto::permission::{KeyName, Refusal, Wanted};
use keybridge_proto::session::{Operations, Outcome, Turn};
use keybridge_proto::ssh::SelectionInForce;
use tempfile::TempDir;

use crate::keyring::Keyring;
use crate::ssh_agent::SshDialer;
use crate::{Error, Result};
pub(crate) use serve::{RequestRoom, refuse, serve};

/// What the git lane of a bridge signs with. Cheap to clone.
#[derive(Debug, Clone)]
pub struct GitKeys {
    /// The OpenPGP keys that are lent, if there are any.
    pub openpgp: Option<Rc<Keyring>>,
    /// Where the ssh-agent is, if its keys are lent.
    pub ssh: Option<SshDialer>,
}

impl GitKeys {
    /// What signs with these keys, as far as they are lent at each signature.
    pub fn signer(&self, ssh_keys: &SelectionInForce, operations: &Operations) -> GitSigner {
        let (keys, ssh_keys) = (self.clone(), ssh_keys.clone());
        GitSigner { keys, ssh_keys, operations: operations.clone() }
    }
}

/// Whether they are those of the same bridge.
impl PartialEq for GitKeys {
    fn eq(&self, other: &Self) -> bool {
        let keyring = |keys: &Self| keys.openpgp.as_ref().map(Rc::as_ptr);
        keyring(self) == keyring(other) && self.ssh == other.ssh
    }
}

impl Eq for GitKeys {}

/// Signs for one bridge.
#[derive(Debug, Clone)]
pub struct GitSigner {
    keys: GitKeys,
    /// Which keys of the ssh-agent are lent.
    ssh_keys: SelectionInForce,
    /// The private-key operations of the bridge.
    operations: Operations,
}

impl GitSigner {
    /// Signs an object, or says why not. A key that isn't lent is none of ours, whatever it is to sign.
    pub async fn answer(&self, request: &Request) -> Answer {
        let answer = match (request.format, &self.keys.openpgp, &self.keys.ssh) {
            (Format::Openpgp, Some(keyring), _) => {
                openpgp::sign(keyring, &self.operations, request).await
            }
            (Format::Ssh, _, Some(dialer)) => {
                ssh::sign(dialer, &self.ssh_keys, &self.operations, request).await
            }
            (Format::Openpgp, None, _) => Answer::NotLent("no OpenPGP key is lent".to_owned()),
            (Format::Ssh, _, None) => Answer::NotLent("no ssh key is lent".to_owned()),
        };
        tracing::debug!(outcome = answer.outcome(), "asked to sign for git");
        answer
    }
}

/// The operation that a request asks for, if the host can read what is to be signed.
fn wanted(request: &Request, key: KeyName) -> Result<Wanted, Answer> {
    match Object::read(&request.object) {
        Ok(object) => Ok(Wanted::git(&object, key)),
        Err(error) => {
            let why = format!("it isn't a commit or a tag as git writes it: {error}");
            Err(Answer::Refused(why))
        }
    }
}

/// Waits for the turn of an operation.
async fn turn_of(operations: &Operations, wanted: Wanted) -> Result<Turn, Answer> {
    let what = wanted.operations;
    let mut turn = operations.queue(wanted, Instant::now());
    match turn.come(Instant::now).await {
        Ok(()) => Ok(turn),
        Err(refusal) => Err(not_begun(turn, refused(what, refusal))),
    }
}

fn refused(what: OperationSet, refusal: Refusal) -> Answer {
    Answer::Refused(match refusal {
        Refusal::NotLent => format!("signatures of {what}s aren't lent"),
        other => other.to_string(),
    })
}

/// Ends an operation with its answer before anything was signed.
fn not_begun(turn: Turn, answer: Answer) -> Answer {
    let outcome = match &answer {
        Answer::NotLent(_) | Answer::Refused(_) => Outcome::Refused,
        Answer::Failed(_) | Answer::Busy => Outcome::Failed,
        Answer::Signed { .. } => Outcome::Succeeded,
    };
    turn.finish(outcome, None, Instant::now());
    answer
}

/// A file that a program is to read, in a folder of the user's alone, which is removed when it is dropped.
fn file_with(name: &str, bytes: &[u8]) -> Result<TempDir> {
    let write = || -> std::io::Result<TempDir> {
        let folder = tempfile::Builder::new().prefix("keybridge-").tempdir()?;
        std::fs::write(folder.path().join(name), bytes)?;
        Ok(folder)
    };
    write().map_err(|error| {
        // The target needn't know the folder, which the error names.
        tracing::warn!(%error, "can't write a temporary file");
        Error::failed("the host can't write a temporary file")
    })
}

/// Signs, with a turn that has come, to its end. If the client goes meanwhile, a dialog may stay: it keeps the
/// turn, and what a person answers counts for the key.
async fn to_its_end(
    turn: Turn,
    what: OperationSet,
    request: &Request,
    signing: impl Future<Output = (Outcome, Answer)> + 'static,
) -> Answer {
    let object = request.object.clone();
    let task = tokio::task::spawn_local(async move {
        // The rules may have changed since the turn came.
        if let Some(refusal) = turn.refusal() {
            return not_begun(turn, refused(what, refusal));
        }
        let (outcome, answer) = signing.await;
        let id = match &answer {
            Answer::Signed { signature, .. } => signed_id(&object, signature),
            Answer::NotLent(_) | Answer::Refused(_) | Answer::Failed(_) | Answer::Busy => None,
        };
        turn.finish(outcome, id, Instant::now());
        answer
    });
    task.await.unwrap_or_else(|_| Answer::Failed("the signature was given up".to_owned()))
}

#[cfg(test)]
mod tests {
    use keybridge_proto::ssh::Fingerprint;

    use super::*;

    #[tokio::test]
    async fn nothing_is_signed_by_rules_that_were_changed_since_the_turn_came() {
        let object = b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\
            author A <a@x> 1700000000 +0100\ncommitter C <c@x> 1700000001 -0000\n\nsubject\n";
        let request = Request { format: Format::Ssh, key: vec![], object: object.to_vec() };
        let key = KeyName::Print(Fingerprint::of(b"\0\0\0\x01x").unwrap());
        let (operations, wanted) = (Operations::default(), wanted(&request, key).unwrap());
        let what = wanted.operations;
        let turn = turn_of(&operations, wanted).await.unwrap();
        operations.lend([].into_iter().collect());
        let signing = async { panic!("it is signed") };
        let ended = to_its_end(turn, what, &request, signing);
        let answer = tokio::task::LocalSet::new().run_until(ended).await;
        assert_eq!(answer, refused(what, Refusal::NotLent));
    }
}
