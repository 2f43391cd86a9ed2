//! The mux over a real byte stream. The helper uses it over its standard input and output, and the
//! host over the other ends of these.
//!
//! A link runs on one thread. It has two loops, one that reads and one that writes, so reading never
//! waits for writing. The tasks of its streams call the mux directly and wake the writer, which sends
//! what they have ready in one write.
#![forbid(unsafe_code)]

mod ask;
mod duplex;
mod io_loops;
mod platform;
mod program;
mod pump;
mod start_line;
mod stop_signal;
mod stream;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_proto::Lane;
use keybridge_proto::mux::{
    self, Config, Due, Event, Hello, LinkError, Liveness, SILENCE_LIMIT, StreamId,
};
use keybridge_proto::report::{Failure, FailureKind};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

pub use ask::{GpgAnswer, GpgQuestions, QuestionError, ask_ssh_agent};
pub use duplex::Duplex;
pub use platform::*;
pub use program::{ProgramError, ProgramOutput, read_beginning, run_program};
pub use pump::{LeftWork, pump, reach, until};
pub use start_line::{StartError, await_start};
pub use stop_signal::StopSignal;
pub use stream::Stream;
use stream::Waker;

/// How long to read on after a write has failed: the peer may have said why.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long writing the farewell may take: a pipe with room takes it at once.
const FAREWELL: Duration = Duration::from_millis(100);

/// One end of a link. Cheap to clone; every clone is the same link.
#[derive(Debug, Clone)]
pub struct Link(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    mux: RefCell<mux::Endpoint>,
    /// The tasks that own streams.
    wakers: RefCell<HashMap<StreamId, Rc<Waker>>>,
    /// There may be something to transmit.
    transmit: Notify,
    /// Everything was written.
    idle: Notify,
    writing: Cell<bool>,
    /// The link has ended.
    over: Cell<bool>,
    liveness: RefCell<Liveness>,
    /// The deadline of `liveness` may have changed.
    liveness_changed: Notify,
    /// How many PINGs were sent.
    pings: Cell<u64>,
    /// The number of the last PONG.
    last_pong: Cell<u64>,
    /// A PONG has come, or the link has ended.
    ponged: Notify,
    /// Received bytes are being handled, and all events with them.
    dispatching: Cell<bool>,
}

/// An event of a link that isn't for the task of a stream.
#[derive(Debug)]
pub enum Notice {
    /// The peer has said who it is.
    Hello(Hello),
    /// The helper has opened a stream.
    Opened(Stream, Lane),
    /// A series of keys has ended.
    KeysEnd,
    /// The helper's report. Untrusted.
    Ready(Vec<u8>),
    /// Why the helper can't go on. Untrusted.
    Error(Vec<u8>),
    /// The host ends the bridge.
    Stop,
}

/// Why a link ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkEnd {
    /// The peer closed it.
    #[error("the other end closed the link")]
    Eof,
    /// Reading or writing failed.
    #[error("the link broke: {0}")]
    Io(#[from] io::Error),
    /// The peer broke the protocol.
    #[error("the other end broke the protocol: {0}")]
    Protocol(#[from] LinkError),
    /// The peer didn't answer a PING.
    #[error("nothing came over the link for {} s", SILENCE_LIMIT.as_secs())]
    Silent,
}

impl Link {
    /// A link before the first byte.
    pub fn new(config: Config) -> Result<Self, LinkError> {
        let liveness = Liveness::new(config.version, config.end, now());
        Ok(Self(Rc::new(Shared {
            mux: RefCell::new(mux::Endpoint::new(config)?),
            wakers: RefCell::default(),
            transmit: Notify::new(),
            idle: Notify::new(),
            writing: Cell::new(false),
            over: Cell::new(false),
            liveness: RefCell::new(liveness),
            liveness_changed: Notify::new(),
            pings: Cell::new(0),
            last_pong: Cell::new(0),
            ponged: Notify::new(),
            dispatching: Cell::new(false),
        })))
    }

    /// Moves the link's bytes until it ends, closes every stream, and returns why it ended. `first`
    /// was read before.
    pub async fn run(
        &self,
        first: &[u8],
        reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin,
        mut on_notice: impl FnMut(Notice),
    ) -> LinkEnd {
        let reading = self.read(first, reader, &mut on_notice);
        self.0.liveness.borrow_mut().heard(now());
        // Also when the caller drops this future.
        let _closing = Closing(self);
        let mut reading = std::pin::pin!(reading);
        let mut writing = std::pin::pin!(self.write(writer));
        tokio::select! {
            end = &mut reading => end,
            end = self.watch() => {
                self.say_farewell(&end, writing).await;
                end
            }
            end = &mut writing => {
                // The peer may have said why it is gone: that is still to be read. If it has hung up, it
                // is the same end as without anything to write.
                match tokio::time::timeout(LAST_WORDS, reading).await {
                    Ok(LinkEnd::Eof) => LinkEnd::Eof,
                    Ok(_) | Err(_) => end,
                }
            }
        }
    }

    /// Leaves the reason in the pipe for a host that is held up: a helper that outlives the link
    /// doesn't close it.
    async fn say_farewell(&self, end: &LinkEnd, writing: impl Future<Output = LinkEnd>) {
        let text = Failure { kind: FailureKind::Other, message: end.to_string(), hints: vec![] };
        // Fails on the host, which sends no ERROR.
        if self.with_mux(|mux| mux.fail(&text.encode())).is_ok() {
            let flushed = async {
                tokio::select! {
                    _ = writing => {}
                    () = self.flushed() => {}
                }
            };
            let _ = tokio::time::timeout(FAREWELL, flushed).await;
        }
    }

    /// Calls the mux, and wakes the writer if there is something to send.
    pub fn with_mux<R>(&self, call: impl FnOnce(&mut mux::Endpoint) -> R) -> R {
        let mut mux = self.0.mux.borrow_mut();
        let result = call(&mut mux);
        if mux.wants_transmit() {
            self.0.transmit.notify_one();
        }
        self.wake_streams(&mut mux);
        result
    }

    /// Wakes the tasks of streams that a call on another stream, or a transmit, has made room for.
    /// Notices come only from received bytes, which are handled elsewhere.
    fn wake_streams(&self, mux: &mut mux::Endpoint) {
        while !self.0.dispatching.get()
            && let Some(event) = mux.poll_event()
        {
            self.dispatch(event, &mut |notice| {
                debug_assert!(false, "got a notice without received bytes: {notice:?}");
            });
        }
    }

    /// Waits until everything that can be sent was written, or the link has ended.
    pub async fn flushed(&self) {
        while !self.is_over() && (self.0.writing.get() || self.0.mux.borrow().wants_transmit()) {
            self.0.idle.notified().await;
        }
    }

    /// Whether the link has ended. Streams that are opened after that are closed from the start.
    pub fn is_over(&self) -> bool {
        self.0.over.get()
    }

    /// Opens a stream (helper only).
    pub fn open(&self, lane: Lane) -> Result<Stream, LinkError> {
        let id = self.with_mux(|mux| mux.open(lane))?;
        if self.0.liveness.borrow_mut().opened(now()) {
            let _ = self.ping();
        } else {
            self.0.liveness_changed.notify_one();
        }
        Ok(self.stream(id))
    }

    /// Sends a PING: the link ends if nothing comes for [`SILENCE_LIMIT`].
    pub fn ping_now(&self) {
        if self.0.liveness.borrow_mut().ask(now()) {
            let _ = self.ping();
        }
    }

    /// The peer is known to be unable to answer: its silence doesn't count from now on.
    pub fn pause_liveness(&self) {
        self.0.liveness.borrow_mut().suspend();
    }

    /// The peer can answer again.
    pub fn resume_liveness(&self) {
        self.0.liveness.borrow_mut().resume(now());
        self.0.liveness_changed.notify_one();
    }

    /// Sends a PING, and waits for its PONG. `None` if the link ends first. Cancel safe.
    pub async fn round_trip(&self) -> Option<Duration> {
        let (start, number) = (now(), self.ping());
        while self.0.last_pong.get() < number {
            if self.is_over() {
                return None;
            }
            self.0.ponged.notified().await;
        }
        Some(now().duration_since(start))
    }

    fn ping(&self) -> u64 {
        let number = self.0.pings.get() + 1;
        self.0.pings.set(number);
        self.with_mux(|mux| mux.ping(number));
        self.0.liveness_changed.notify_one();
        number
    }

    /// The stream that carries public keys.
    pub fn keys(&self) -> Stream {
        self.stream(StreamId::KEYS)
    }

    fn stream(&self, id: StreamId) -> Stream {
        let waker = Rc::clone(self.0.wakers.borrow_mut().entry(id).or_default());
        if self.is_over() {
            waker.close();
        }
        Stream::new(self.clone(), id, waker)
    }

    /// Sends PINGs when they are due, until the peer doesn't answer one.
    async fn watch(&self) -> LinkEnd {
        loop {
            let deadline = self.0.liveness.borrow().deadline();
            tokio::select! {
                () = until(deadline) => {}
                () = self.0.liveness_changed.notified() => {}
            }
            let due = self.0.liveness.borrow_mut().timeout(now());
            match due {
                Some(Due::Ping) => drop(self.ping()),
                Some(Due::Lost) => return LinkEnd::Silent,
                None => {}
            }
        }
    }

    fn dispatch(&self, event: Event, on_notice: &mut impl FnMut(Notice)) {
        match event {
            Event::Readable(id) | Event::Writable(id) | Event::Finished(id) => self.wake(id, false),
            Event::Closed(id) => self.wake(id, true),
            Event::Opened { id, lane } => {
                // It may have been closed in the same read.
                if self.0.mux.borrow().is_open(id) {
                    on_notice(Notice::Opened(self.stream(id), lane));
                }
            }
            Event::Hello(hello) => on_notice(Notice::Hello(hello)),
            Event::KeysEnd => {
                self.wake(StreamId::KEYS, false);
                on_notice(Notice::KeysEnd);
            }
            Event::Ready(payload) => on_notice(Notice::Ready(payload)),
            Event::Error(text) => on_notice(Notice::Error(text)),
            Event::Pong(number) => {
                self.0.last_pong.set(number);
                self.0.ponged.notify_waiters();
            }
            Event::Stop => on_notice(Notice::Stop),
        }
    }

    fn wake(&self, id: StreamId, closed: bool) {
        if let Some(waker) = self.0.wakers.borrow().get(&id) {
            if closed {
                waker.close();
            } else {
                waker.wake();
            }
        }
    }

    fn forget(&self, id: StreamId) {
        if id != StreamId::KEYS {
            self.0.liveness.borrow_mut().closed();
        }
        self.0.wakers.borrow_mut().remove(&id);
        self.with_mux(|mux| mux.close(id));
    }
}

/// Whether an error means only that the call has to be made again: the socket isn't ready, or a signal
/// came.
pub(crate) fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Bytes from the kernel that nobody can guess.
pub fn random<const SIZE: usize>() -> io::Result<[u8; SIZE]> {
    let mut bytes = [0; SIZE];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}

/// The timers' time, which tests can advance.
fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

/// Ends a link, and with it every stream, when it is dropped.
struct Closing<'a>(&'a Link);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.0.over.set(true);
        self.0.0.idle.notify_waiters();
        self.0.0.ponged.notify_waiters();
        for waker in self.0.0.wakers.borrow().values() {
            waker.close();
        }
    }
}
