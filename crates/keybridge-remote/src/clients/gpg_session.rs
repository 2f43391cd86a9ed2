//! The gpg lane: the request session between a client and its stream.

use std::io;
use std::rc::Rc;
use std::time::Instant;

use keybridge_link::{ClientSocket, ReadOutcome, Stream};
use keybridge_proto::Lane;
use keybridge_proto::assuan::Summary;
use keybridge_proto::session::{FirstError, RequestSession, Session as _};
use tokio::time::{sleep_until, timeout};

use super::session::{FAREWELL_TIME, OpenError, SessionContext, is_hang_up};
use crate::StopSignal;

/// Serves one client to its end.
pub(super) async fn serve(context: SessionContext, stop: StopSignal, socket: ClientSocket) {
    let mut session = GpgSession {
        machine: RequestSession::new(context.limits),
        context,
        stop,
        socket,
        unread: Vec::new(),
        at_end: false,
        over: false,
    };
    session.machine.client_connected(Instant::now());
    let stream = session.open().await;
    if let Some(stream) = &stream {
        session.talk(stream).await;
    }
    session.end(stream).await;
    if let Some(error) = session.machine.error() {
        tracing::debug!(%error, "ended");
    } else {
        tracing::debug!("ended");
    }
}

/// One client's session, owned by its task.
struct GpgSession {
    context: SessionContext,
    stop: StopSignal,
    machine: RequestSession,
    socket: ClientSocket,
    /// Bytes that the machine didn't take yet.
    unread: Vec<u8>,
    /// The end of the client's input was read.
    at_end: bool,
    over: bool,
}

impl GpgSession {
    async fn open(&mut self) -> Option<Stream> {
        match self.context.open(Lane::Gpg).await {
            Ok(stream) => {
                self.machine.agent_connected(Instant::now());
                return Some(stream);
            }
            Err(OpenError::Timeout) => self.machine.timeout(Instant::now()),
            Err(error @ (OpenError::LinkDown | OpenError::Refused(_))) => {
                self.machine.agent_unreachable(error.to_string());
            }
        }
        None
    }

    /// Moves bytes until the machine wants the end.
    async fn talk(&mut self, stream: &Stream) {
        loop {
            while !self.is_over() && self.pump(stream) {}
            if self.is_over() {
                return;
            }
            let deadline = self.machine.deadline();
            tokio::select! {
                changed = self.socket.changed() => {
                    if changed.is_err() {
                        self.machine.client_closed(true);
                    } else if self.socket.hung_up() {
                        self.machine.client_closed(false);
                    }
                }
                () = stream.changed() => {}
                () = wait_for(deadline) => self.machine.timeout(Instant::now()),
                () = self.stop.wait() => self.machine.agent_closed(false),
            }
        }
    }

    /// Whether the machine has given out the work of ending.
    fn is_over(&mut self) -> bool {
        self.over |= self.machine.cleanup().is_some();
        self.over
    }

    /// Moves what can be moved now, each way once; says whether anything was.
    fn pump(&mut self, stream: &Stream) -> bool {
        let mut moved = self.agent_to_session(stream);
        moved |= self.session_to_agent(stream);
        moved |= self.session_to_client();
        moved |= self.client_to_session();
        // What came before the end is taken first, and a slow client reads it in its own time.
        let is_drained = !moved && self.machine.to_client().is_empty();
        if is_drained && (stream.is_finished() || stream.is_closed()) {
            self.machine.agent_closed(false);
            return true;
        }
        moved
    }

    fn agent_to_session(&mut self, stream: &Stream) -> bool {
        let machine = &mut self.machine;
        let mut total = 0;
        if machine.takes_agent_bytes() {
            stream.read(|bytes| {
                let before = machine.to_client().len();
                let taken = machine.agent_bytes(bytes);
                log_lines("from the agent", machine.to_client().get(before..));
                total += taken;
                taken
            });
        }
        total > 0
    }

    fn session_to_agent(&mut self, stream: &Stream) -> bool {
        let count = stream.write(self.machine.to_agent());
        if count > 0 {
            self.machine.agent_took(count, Instant::now());
        }
        count > 0
    }

    fn session_to_client(&mut self) -> bool {
        match self.socket.write(self.machine.to_client()) {
            Ok(0) => false,
            Ok(count) => {
                self.machine.client_took(count);
                true
            }
            Err(_) => {
                self.machine.client_closed(true);
                true
            }
        }
    }

    fn client_to_session(&mut self) -> bool {
        if !self.machine.takes_client_bytes() {
            return false;
        }
        if !self.unread.is_empty() {
            let unread = std::mem::take(&mut self.unread);
            let taken = self.take_client_bytes(&unread);
            self.keep(unread.get(taken..).unwrap_or_default());
            return taken > 0;
        }
        if self.at_end {
            self.machine.client_eof();
            return true;
        }
        let scratch = Rc::clone(&self.context.scratch);
        let mut scratch = scratch.borrow_mut();
        match self.socket.read(&mut scratch) {
            Ok(ReadOutcome::Nothing) => false,
            Ok(ReadOutcome::Bytes(count)) => {
                let bytes = scratch.get(..count).unwrap_or_default();
                let taken = self.take_client_bytes(bytes);
                self.keep(bytes.get(taken..).unwrap_or_default());
                true
            }
            Ok(ReadOutcome::End) => {
                self.at_end = true;
                true
            }
            Err(_) => {
                self.machine.client_closed(true);
                true
            }
        }
    }

    fn take_client_bytes(&mut self, bytes: &[u8]) -> usize {
        let before = self.machine.to_agent().len();
        let taken = self.machine.client_bytes(bytes);
        log_lines("from the client", self.machine.to_agent().get(before..));
        taken
    }

    /// Holds what wasn't taken, in no more room than it needs.
    fn keep(&mut self, rest: &[u8]) {
        self.unread = rest.to_vec();
    }

    /// Closes both sides. The agent's goes first: a pinentry must not wait for a slow client.
    async fn end(&mut self, stream: Option<Stream>) {
        drop(stream);
        if !self.is_over() {
            return;
        }
        let mut result = FirstError::default();
        result.note(self.send_rest().await);
        result.note(self.socket.shutdown());
        self.machine.cleanup_done(result.into_result());
    }

    /// Sends what is left for the client. One that doesn't read it is not waited for.
    async fn send_rest(&mut self) -> io::Result<()> {
        let sending = async {
            while !self.machine.to_client().is_empty() && !self.socket.hung_up() {
                let count = self.socket.write(self.machine.to_client())?;
                self.machine.client_took(count);
                if count == 0 {
                    self.socket.changed().await?;
                }
            }
            Ok(())
        };
        match timeout(FAREWELL_TIME, sending).await {
            // It doesn't matter if the client has closed first.
            Ok(Err(error)) if is_hang_up(&error) => Ok(()),
            Ok(result) => result,
            Err(_) => {
                tracing::debug!("the client didn't read the last answer");
                Ok(())
            }
        }
    }
}

async fn wait_for(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline.into()).await,
        None => std::future::pending().await,
    }
}

/// Verbs and sizes of lines; nothing of what is in them.
fn log_lines(whence: &'static str, lines: Option<&[u8]>) {
    if !tracing::enabled!(tracing::Level::TRACE) {
        return;
    }
    for line in lines.unwrap_or_default().split_inclusive(|&byte| byte == b'\n') {
        tracing::trace!("{whence}: {}", Summary::of(line));
    }
}
