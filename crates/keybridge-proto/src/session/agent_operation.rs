//! One private-key operation of a session, from when it is asked for to the agent's answer.

use std::task::{Context, Poll};
use std::time::Instant;

use crate::assuan::{Reply, ResponseLine};
use crate::gate::{KeyGrip, KeyOperation};
use crate::permission::{KeyName, Refusal, Subject, Wanted};
use crate::session::{Operations, Outcome, Turn};
use crate::{Operation as Use, OperationSet};

/// An operation that waits for its turn, or is under way.
#[derive(Debug)]
pub(crate) struct Operation {
    /// What is done.
    pub(crate) kind: KeyOperation,
    operations: Operations,
    /// The keys that it uses: one, or the two of a composite one.
    keys: [Option<KeyGrip>; 2],
    turn: Turn,
}

impl Operation {
    /// One with these keys, if there is one.
    pub(crate) fn new(
        operations: &Operations,
        kind: KeyOperation,
        keys: [Option<KeyGrip>; 2],
        now: Instant,
    ) -> Option<Self> {
        let wanted = wanted(kind, keys.into_iter().flatten().next()?, operations.uses());
        let turn = operations.queue(wanted, now);
        Some(Self { kind, operations: operations.clone(), keys, turn })
    }

    /// The gate has refused one with this key, if it was named.
    pub(crate) fn refused_by_gate(
        operations: &Operations,
        kind: KeyOperation,
        key: Option<KeyGrip>,
    ) {
        if let Some(key) = key {
            operations.note_refused(&wanted(kind, key, [Use::Sign].into_iter().collect()));
        }
    }

    /// The answer to a client whose operation is refused.
    pub(crate) fn refuse(&self, now: Instant) -> Option<Reply> {
        let was_cancelled =
            || self.keys.iter().flatten().any(|key| self.operations.refuse(*key, now));
        match self.turn.refusal() {
            Some(Refusal::NotLent) => Some(Reply::Forbidden),
            Some(_) => Some(Reply::NotConfirmed),
            None => was_cancelled().then_some(Reply::Canceled),
        }
    }

    /// Time has passed.
    pub(crate) fn drive(&mut self, now: Instant) {
        self.turn.drive(now);
    }

    pub(crate) fn may_begin(&self) -> bool {
        self.turn.has_come()
    }

    /// The agent waits for the client, who may take long: others have the turn meanwhile.
    pub(crate) fn pause(&mut self) {
        self.turn.pause();
    }

    /// The agent can go on when its turn comes again.
    pub(crate) fn resume(&mut self) {
        self.turn.resume();
    }

    /// Ready when it may begin, or is refused.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        self.turn.poll(context)
    }

    /// It isn't done.
    pub(crate) fn refused(self, now: Instant) {
        self.turn.finish(Outcome::Refused, None, now);
    }

    /// The agent has answered the operation, if one is under way.
    pub(crate) fn answered(under_way: &mut Option<Self>, line: &[u8], now: Option<Instant>) {
        let (Some(operation), Some(now)) = (under_way.take(), now) else { return };
        let outcome = match ResponseLine::parse(line) {
            Ok(ResponseLine::Ok) => Outcome::Succeeded,
            Ok(ResponseLine::Err(Some(code))) if code.is_cancel() => Outcome::Cancelled,
            Ok(_) | Err(_) => Outcome::Failed,
        };
        for key in operation.keys.into_iter().flatten() {
            operation.operations.note(key, outcome, now);
        }
        operation.turn.finish(outcome, None, now);
    }
}

/// What `PKSIGN` or `PKDECRYPT` does. A hash doesn't show whether it is of a key that is certified, so where both
/// are lent it is taken for both.
fn wanted(kind: KeyOperation, key: KeyGrip, uses: OperationSet) -> Wanted {
    let signing: OperationSet = [Use::Sign, Use::Certify].into_iter().collect();
    let (operations, subject) = match kind {
        KeyOperation::Sign => (uses.in_both(signing), Subject::Hash),
        KeyOperation::Decrypt | KeyOperation::DecryptX509 => {
            ([Use::Decrypt].into_iter().collect(), Subject::SessionKey)
        }
    };
    Wanted { operations, key: KeyName::Grip(key), subject }
}

/// An operation whose client is gone, and that the agent may still work on: a dialog may be open. It keeps
/// its turn until it is dropped.
#[derive(Debug)]
pub struct LeftOperation(Lane);

#[derive(Debug)]
enum Lane {
    Gpg(Operation),
    Ssh(#[expect(dead_code, reason = "held, not read")] Turn),
}

impl LeftOperation {
    /// One of the gpg lane, if the agent has been asked.
    pub(crate) fn of_gpg(operation: Operation) -> Option<Self> {
        operation.may_begin().then_some(Self(Lane::Gpg(operation)))
    }

    /// One of the ssh lane, if the agent has been asked.
    pub(crate) fn of_ssh(turn: Turn) -> Option<Self> {
        turn.has_come().then_some(Self(Lane::Ssh(turn)))
    }

    /// The agent's answer begins like this.
    pub fn answered(self, answer: &[u8], now: Instant) {
        match self.0 {
            Lane::Gpg(operation) => {
                let line = answer.split_inclusive(|&byte| byte == b'\n').next().unwrap_or_default();
                Operation::answered(&mut Some(operation), line, Some(now));
            }
            // An ssh-agent doesn't tell that a person has cancelled.
            Lane::Ssh(_) => {}
        }
    }
}
