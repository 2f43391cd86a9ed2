//! One client and its stream: the task that moves bytes between them by the request session.

use std::cell::RefCell;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_link::{Link, Stream};
use keybridge_proto::Lane;
use keybridge_proto::assuan::Summary;
use keybridge_proto::mux::LinkError;
use keybridge_proto::session::{FirstError, Limits, RequestSession};
use tokio::time::{sleep_until, timeout};

use crate::Stopping;
use crate::client_socket::{ClientSocket, Found};

/// What one read of a client takes: some lines. A pipelining client leaves at most that much with us.
const READ_SIZE: usize = 8 * 1024;

/// How long a client may take to read the last words to it.
const FAREWELL_TIME: Duration = Duration::from_secs(2);

/// What all sessions share.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    pub(crate) link: Link,
    pub(crate) limits: Limits,
    pub(crate) stopping: Stopping,
    /// One buffer for the reads of all sessions; only what a session can't take yet is kept by it.
    scratch: Rc<RefCell<Vec<u8>>>,
}

impl Common {
    pub(crate) fn new(link: Link, limits: Limits, stopping: Stopping) -> Self {
        Self { link, limits, stopping, scratch: Rc::new(RefCell::new(vec![0; READ_SIZE])) }
    }
}

/// Serves one client to its end.
pub(crate) async fn serve(common: Common, socket: UnixStream) {
    let socket = match ClientSocket::new(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::warn!(%error, "a client's socket can't be used");
            return;
        }
    };
    let mut session = Session {
        machine: RequestSession::new(common.limits),
        common,
        socket,
        unread: Vec::new(),
        at_end: false,
        over: false,
    };
    session.machine.client_connected(Instant::now());
    tracing::debug!("connected");
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
struct Session {
    common: Common,
    machine: RequestSession,
    socket: ClientSocket,
    /// Bytes that the machine didn't take yet.
    unread: Vec<u8>,
    /// The end of the client's input was read.
    at_end: bool,
    over: bool,
}

impl Session {
    /// Opens the stream. Those of sessions that just ended count until the host is told.
    async fn open(&mut self) -> Option<Stream> {
        if self.common.link.is_over() {
            self.machine.agent_unreachable("the link is down");
            return None;
        }
        let mut result = self.common.link.open(Lane::Gpg);
        if let Err(LinkError::TooManyStreams { .. }) = result {
            if timeout(self.common.limits.connect, self.common.link.flushed()).await.is_err() {
                self.machine.timeout(Instant::now());
                return None;
            }
            result = self.common.link.open(Lane::Gpg);
        }
        match result {
            Ok(stream) => {
                self.machine.agent_connected(Instant::now());
                Some(stream)
            }
            Err(error) => {
                self.machine.agent_unreachable(error.to_string());
                None
            }
        }
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
                () = self.common.stopping.wait() => self.machine.agent_closed(false),
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
        let scratch = Rc::clone(&self.common.scratch);
        let mut scratch = scratch.borrow_mut();
        match self.socket.read(&mut scratch) {
            Ok(Found::Nothing) => false,
            Ok(Found::Bytes(count)) => {
                let bytes = scratch.get(..count).unwrap_or_default();
                let taken = self.take_client_bytes(bytes);
                self.keep(bytes.get(taken..).unwrap_or_default());
                true
            }
            Ok(Found::End) => {
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
        result.note(self.say_farewell().await);
        result.note(self.socket.shutdown());
        self.machine.cleanup_done(result.into_result());
    }

    /// Sends what is left for the client. One that doesn't read it is not waited for.
    async fn say_farewell(&mut self) -> io::Result<()> {
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
            // A client that went first has no harm from it.
            Ok(Err(error)) if is_hang_up(&error) => Ok(()),
            Ok(result) => result,
            Err(_) => {
                tracing::debug!("the client didn't read to the end");
                Ok(())
            }
        }
    }
}

fn is_hang_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
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
