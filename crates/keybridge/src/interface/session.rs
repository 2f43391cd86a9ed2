//! One session of the command interface: its calls, and the task that carries them to the agent.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;
use std::task::Waker;
use std::time::{Duration, Instant};

use keybridge_link::{pump, reach};
use keybridge_proto::assuan::RequestLine;
use keybridge_proto::session::agent::State;
use keybridge_proto::session::{AgentSession, Session as _, SessionError};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use super::budget::{Budget, Response};
use super::caller::Caller;
use super::{CallError, Forget};
use crate::agent::GpgAgent;

/// The time limit for the answer to BYE, which comes at once unless the agent hangs.
const BYE_TIME: Duration = Duration::from_secs(2);

/// One connection to the agent, as the interface lists it until its task ends.
#[derive(Debug)]
pub(super) struct Session {
    id: Uuid,
    pub(super) call: RefCell<Option<Call>>,
    /// The task of the session, while it waits for a call.
    pub(super) task: RefCell<Option<Waker>>,
    is_greeted: Cell<bool>,
    has_hung_up: Cell<bool>,
    /// The budget for its responses.
    pub(super) budget: Budget,
    /// It is off the list, and its connection is closed.
    has_left: Cell<bool>,
    leaving: Notify,
}

/// The call under way.
#[derive(Debug)]
pub(super) struct Call {
    block: Vec<u8>,
    /// How many bytes of the block were taken.
    taken: usize,
    pub(super) response: Response,
    /// The block ends with BYE, so the end of the session is its answer.
    ends_session: bool,
    answer: oneshot::Sender<Result<Response, CallError>>,
}

/// The answer that a caller waits for.
#[derive(Debug)]
pub(super) struct Pending {
    id: Uuid,
    answer: oneshot::Receiver<Result<Response, CallError>>,
}

impl Pending {
    pub(super) async fn answer(self) -> Result<Response, CallError> {
        let gone = || CallError::Ended { id: self.id, reason: "the interface is gone".into() };
        self.answer.await.unwrap_or_else(|_| Err(gone()))
    }
}

impl Session {
    /// A session, and a first call that the greeting answers.
    pub(super) fn new(id: Uuid, budget: Budget) -> (Rc<Self>, Pending) {
        let session = Self {
            id,
            call: RefCell::default(),
            task: RefCell::default(),
            is_greeted: Cell::new(false),
            has_hung_up: Cell::new(false),
            budget,
            has_left: Cell::new(false),
            leaving: Notify::new(),
        };
        let pending = session.begin(Vec::new());
        (Rc::new(session), pending)
    }

    /// Starts a call, if none is under way.
    pub(super) fn call(&self, mut block: Vec<u8>) -> Result<Pending, CallError> {
        if let Some(state) = self.busy() {
            return Err(CallError::NotReady { id: self.id, state });
        }
        if block.last().is_some_and(|&byte| byte != b'\n') {
            block.push(b'\n');
        }
        let pending = self.begin(block);
        self.wake();
        Ok(pending)
    }

    /// What keeps it from taking a call.
    fn busy(&self) -> Option<State> {
        match &*self.call.borrow() {
            _ if self.has_hung_up.get() => Some(State::Closing),
            Some(_) if !self.is_greeted.get() => Some(State::ConnectingToAgent),
            Some(call) if call.rest().is_empty() => Some(State::WaitingForAgent),
            Some(_) => Some(State::SendingToAgent),
            None => None,
        }
    }

    /// Ends the session at once.
    pub(super) fn hang_up(&self) {
        self.has_hung_up.set(true);
        self.wake();
    }

    pub(super) fn has_hung_up(&self) -> bool {
        self.has_hung_up.get()
    }

    /// Ends the session, with BYE if no call is under way, and waits for its end.
    pub(super) async fn disconnect(&self) {
        if let Ok(bye) = self.call(b"BYE".to_vec()) {
            // The agent may close before its OK, or be gone: the session ends in any case.
            let _ = tokio::time::timeout(BYE_TIME, bye.answer()).await;
        }
        self.hang_up();
        while !self.has_left.get() {
            self.leaving.notified().await;
        }
    }

    /// Notes that the session is off the list.
    pub(super) fn left(&self) {
        self.has_left.set(true);
        self.leaving.notify_waiters();
    }

    fn begin(&self, block: Vec<u8>) -> Pending {
        let (answer, receiver) = oneshot::channel();
        let ends_session = ends_with_bye(&block);
        let response = self.budget.response();
        let call = Call { block, taken: 0, response, ends_session, answer };
        self.call.replace(Some(call));
        Pending { id: self.id, answer: receiver }
    }

    fn wake(&self) {
        if let Some(task) = self.task.take() {
            task.wake();
        }
    }

    /// Runs the session to its end.
    pub(super) async fn run(
        self: Rc<Self>,
        mut machine: AgentSession,
        agent: GpgAgent,
        _listed: Forget,
    ) {
        let mut caller = Caller::new(Rc::clone(&self));
        machine.connect_requested(Instant::now());
        let deadline = machine.deadline();
        let dial = async {
            agent.keyring.current().await;
            agent.dialer.dial().await
        };
        let reached = reach(&mut caller, &mut machine, deadline, dial).await;
        let agent = reached.map(|(socket, opening)| {
            machine.agent_connected(opening, Instant::now());
            socket
        });
        if let Some(left) = pump(&mut caller, &mut machine, agent, pending(), Duration::ZERO).await
        {
            tokio::task::spawn_local(left.ended());
        }
        self.end(machine.error());
    }

    /// Answers the call under way if its block was taken, and ends the session if it said BYE. To be
    /// called when the agent has answered everything that was taken.
    pub(super) fn answered(&self) {
        let is_complete = |call: &mut Call| call.rest().is_empty();
        if let Some(call) = self.call.borrow_mut().take_if(is_complete) {
            self.is_greeted.set(true);
            self.has_hung_up.set(self.has_hung_up.get() || call.ends_session);
            call.finish();
        }
    }

    /// Answers the call under way with the end of the session.
    fn end(&self, error: Option<&SessionError>) {
        let Some(call) = self.call.take() else { return };
        if call.ends_session && error.is_none() && call.rest().is_empty() {
            call.finish();
            return;
        }
        let reason = match error {
            Some(error) => error.to_string(),
            None if self.has_hung_up.get() => "the caller ended it".to_owned(),
            None => "the agent closed the connection".to_owned(),
        };
        // The caller may be gone.
        let _ = call.answer.send(Err(CallError::Ended { id: self.id, reason }));
    }
}

impl Call {
    /// What wasn't taken yet.
    pub(super) fn rest(&self) -> &[u8] {
        self.block.get(self.taken..).unwrap_or_default()
    }

    pub(super) fn took(&mut self, count: usize) {
        self.taken += count;
    }

    fn finish(self) {
        let answer = if self.response.is_too_large() {
            Err(CallError::ResponseTooLarge)
        } else {
            Ok(self.response.complete())
        };
        // The caller may be gone.
        let _ = self.answer.send(answer);
    }
}

/// Whether the last line of a block that gets an answer is BYE.
fn ends_with_bye(block: &[u8]) -> bool {
    block
        .split(|&byte| byte == b'\n')
        .filter_map(|line| RequestLine::parse(line).ok())
        .rfind(RequestLine::is_answered)
        .is_some_and(|line| line.is_bye())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_command_decides_about_the_end() {
        for (block, ends) in [
            (&b"BYE"[..], true),
            (b"bye now\n# comment\n\n", true),
            (b"NOP\nBYE\n", true),
            (b"BYE\nNOP\n", false),
            (b"D BYE\n", false),
            (b"", false),
        ] {
            assert_eq!(ends_with_bye(block), ends, "{block:?}");
        }
    }
}
