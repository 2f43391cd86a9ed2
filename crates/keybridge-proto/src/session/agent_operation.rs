//! One private-key operation of a session, from when it is asked for to the agent's answer.

use std::task::{Context, Poll};
use std::time::Instant;

use crate::assuan::ResponseLine;
use crate::gate::{KeyGrip, KeyOperation};
use crate::session::{Operations, Outcome, Turn};

/// An operation that waits for its turn, or is under way.
#[derive(Debug)]
pub(crate) struct Operation {
    /// What is done.
    pub(crate) kind: KeyOperation,
    operations: Operations,
    /// The keys that it uses: one, or the two of a composite one.
    keys: [Option<KeyGrip>; 2],
    /// None while the agent waits for the client.
    turn: Option<Turn>,
}

impl Operation {
    pub(crate) fn new(
        operations: &Operations,
        kind: KeyOperation,
        keys: [Option<KeyGrip>; 2],
    ) -> Self {
        Self { kind, operations: operations.clone(), keys, turn: Some(operations.queue()) }
    }

    /// Whether a person has cancelled the use of a key lately.
    pub(crate) fn is_refused(&self, now: Option<Instant>) -> bool {
        now.is_some_and(|now| {
            self.keys.iter().flatten().any(|key| self.operations.refuse(*key, now))
        })
    }

    pub(crate) fn may_begin(&self) -> bool {
        self.turn.as_ref().is_some_and(Turn::has_come)
    }

    /// The agent waits for the client, who may take long: others have the turn meanwhile.
    pub(crate) fn pause(&mut self) {
        self.turn = None;
    }

    /// The agent can go on when its turn comes again.
    pub(crate) fn resume(&mut self) {
        self.turn.get_or_insert_with(|| self.operations.queue());
    }

    /// Ready when it may begin.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<()> {
        self.turn.as_ref().map_or(Poll::Pending, |turn| turn.poll(context))
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
    }
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
