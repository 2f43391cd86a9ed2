//! One session of the command interface: a task that drives the state machine, and the current call.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_proto::assuan::RequestLine;
use keybridge_proto::session::agent::State;
use keybridge_proto::session::{AgentSession, Session as _};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use super::budget::{Budget, Response};
use super::{CallError, Forget};
use crate::agent::{AgentConnection, GpgAgent, until};

/// How many rounds of reads and writes a session makes before it yields: about 256 KiB.
const ROUNDS: usize = 16;

/// The time limit for the answer to BYE, which comes at once unless the agent hangs.
const BYE_TIME: Duration = Duration::from_secs(2);

/// One connection to the agent. Its task owns it, and the interface lists it until that ends.
#[derive(Debug)]
pub(super) struct Session {
    id: Uuid,
    machine: RefCell<AgentSession>,
    call: RefCell<Option<Call>>,
    /// Notified of a new call, and of `hung_up`.
    news: Notify,
    hung_up: Cell<bool>,
    /// The budget for its responses.
    budget: Budget,
    /// It is off the list, and its connection is closed.
    has_left: Cell<bool>,
    leaving: Notify,
}

/// The call under way.
#[derive(Debug)]
struct Call {
    block: Vec<u8>,
    /// How many bytes of the block the state machine has taken.
    taken: usize,
    response: Response,
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
    pub(super) fn new(id: Uuid, mut machine: AgentSession, budget: Budget) -> (Rc<Self>, Pending) {
        machine.connect_requested(Instant::now());
        let session = Self {
            id,
            machine: RefCell::new(machine),
            call: RefCell::default(),
            news: Notify::new(),
            hung_up: Cell::new(false),
            budget,
            has_left: Cell::new(false),
            leaving: Notify::new(),
        };
        let pending = session.begin(Vec::new());
        (Rc::new(session), pending)
    }

    /// Starts a call, if none is under way.
    pub(super) fn call(&self, mut block: Vec<u8>) -> Result<Pending, CallError> {
        let state = self.machine.borrow().state();
        match state {
            State::Ready if self.call.borrow().is_none() => {}
            State::Disconnected
            | State::ConnectingToAgent
            | State::SocketConnected
            | State::Ready
            | State::SendingToAgent
            | State::WaitingForAgent
            | State::Error
            | State::Closing
            | State::Fatal => return Err(CallError::NotReady { id: self.id, state }),
        }
        if block.last().is_some_and(|&byte| byte != b'\n') {
            block.push(b'\n');
        }
        let pending = self.begin(block);
        // Feed the state machine now, so that its state reflects the call at once.
        self.feed();
        self.news.notify_one();
        Ok(pending)
    }

    /// Ends the session at once.
    pub(super) fn hang_up(&self) {
        self.hung_up.set(true);
        self.news.notify_one();
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

    /// Runs the session to its end.
    pub(super) async fn run(self: Rc<Self>, agent: GpgAgent, _listed: Forget) {
        let agent = tokio::select! {
            agent = self.connect(&agent) => agent,
            () = self.hang_up_came() => {
                self.machine.borrow_mut().client_closed(false);
                None
            }
        };
        if let Some(agent) = agent {
            self.talk(agent).await;
        }
        let mut machine = self.machine.borrow_mut();
        // After its OK to BYE there is no need to wait for the agent.
        machine.client_closed(false);
        let ending = machine.cleanup();
        machine.cleanup_done(Ok::<(), &str>(()));
        drop(machine);
        self.end(ending.is_some_and(|cleanup| cleanup.had_error));
    }

    async fn connect(&self, agent: &GpgAgent) -> Option<AgentConnection> {
        let lent = agent.keyring.current().await;
        self.machine.borrow_mut().lend(lent);
        let deadline = self.machine.borrow().deadline();
        let dialled = tokio::select! {
            dialled = agent.dialer.dial() => Some(dialled),
            () = until(deadline) => None,
        };
        let mut machine = self.machine.borrow_mut();
        match dialled {
            Some(Ok((socket, opening))) => {
                machine.agent_connected(opening, Instant::now());
                Some(AgentConnection::new(socket))
            }
            Some(Err(error)) => {
                machine.agent_unreachable(error.to_string());
                None
            }
            None => {
                machine.timeout(deadline.unwrap_or_else(Instant::now));
                None
            }
        }
    }

    async fn talk(&self, mut agent: AgentConnection) {
        loop {
            let now = Instant::now();
            self.machine.borrow_mut().timeout(now);
            if self.hung_up.get() {
                self.machine.borrow_mut().client_closed(false);
            }
            let is_still = self.move_bytes(&mut agent, now);
            if self.answer_if_complete() || !self.is_live() {
                return;
            }
            if !is_still {
                tokio::task::yield_now().await;
                continue;
            }
            let waiting = agent.waits_for(&*self.machine.borrow());
            let deadline = self.machine.borrow().deadline();
            tokio::select! {
                () = agent.ready(waiting) => {}
                () = self.room_came() => {}
                () = self.news.notified() => {}
                () = until(deadline) => {}
            }
        }
    }

    /// Moves bytes until none can be moved (true), or it is time to yield (false).
    fn move_bytes(&self, agent: &mut AgentConnection, now: Instant) -> bool {
        for _ in 0..ROUNDS {
            let moved = self.feed() | agent.pump(&mut *self.machine.borrow_mut(), now);
            if !(moved | self.collect()) {
                return true;
            }
        }
        false
    }

    async fn hang_up_came(&self) {
        while !self.hung_up.get() {
            self.news.notified().await;
        }
    }

    /// Feeds the block to the state machine, as far as that takes it.
    fn feed(&self) -> bool {
        let mut call = self.call.borrow_mut();
        let Some(call) = call.as_mut() else { return false };
        let rest = call.block.get(call.taken..).unwrap_or_default();
        let taken = self.machine.borrow_mut().client_bytes(rest);
        call.taken += taken;
        taken > 0
    }

    /// Moves the agent's bytes to the call's response, if there is room; otherwise nothing more is read from
    /// the agent. What the agent sends without a call is a comment, and dropped.
    fn collect(&self) -> bool {
        let mut machine = self.machine.borrow_mut();
        let count = machine.to_client().len();
        if let Some(call) = self.call.borrow_mut().as_mut()
            && !call.response.add(machine.to_client())
        {
            return false;
        }
        machine.client_took(count);
        count > 0
    }

    /// Waits until there is room for the rest of the response, forever if it needs none.
    async fn room_came(&self) {
        let count = self.machine.borrow().to_client().len();
        let needs_room = |call: &Call| count > 0 && call.response.needs_room(count);
        if !self.call.borrow().as_ref().is_some_and(needs_room) {
            return std::future::pending().await;
        }
        if let (Some(room), Some(call)) =
            (self.budget.room().await, self.call.borrow_mut().as_mut())
        {
            call.response.give_room(room);
        }
    }

    /// Answers the call if it is complete. True if the session ends with it.
    fn answer_if_complete(&self) -> bool {
        let machine = self.machine.borrow();
        let is_idle = machine.state() == State::Ready && machine.to_agent().is_empty();
        let is_complete = |call: &mut Call| is_idle && call.taken == call.block.len();
        let Some(call) = self.call.borrow_mut().take_if(is_complete) else { return false };
        let ends_session = call.ends_session;
        call.finish();
        ends_session
    }

    /// Answers the call under way with the end of the session.
    fn end(&self, had_error: bool) {
        let Some(call) = self.call.take() else { return };
        if call.ends_session && !had_error && call.taken == call.block.len() {
            call.finish();
            return;
        }
        let machine = self.machine.borrow();
        let reason = match machine.error() {
            Some(error) => error.to_string(),
            None if self.hung_up.get() => "the caller ended it".to_owned(),
            None => "the agent closed the connection".to_owned(),
        };
        // The caller may be gone.
        let _ = call.answer.send(Err(CallError::Ended { id: self.id, reason }));
    }

    fn is_live(&self) -> bool {
        match self.machine.borrow().state() {
            State::ConnectingToAgent
            | State::SocketConnected
            | State::Ready
            | State::SendingToAgent
            | State::WaitingForAgent => true,
            State::Disconnected | State::Error | State::Closing | State::Fatal => false,
        }
    }
}

impl Call {
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
