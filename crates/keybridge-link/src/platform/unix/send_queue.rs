//! Small messages to several sockets, sent together.
//!
//! A message wakes the process that waits for it. On a busy machine the kernel lets that process run at
//! once, in place of the sender, which loses its processor at nearly every message when there are many
//! clients. Messages of one system call wake their readers too, but the sender goes on until it is done.

use std::cell::{Cell, RefCell, RefMut};
use std::fmt::{self, Debug};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::task::Waker;

/// How many bytes of one socket wait at most; nearly all requests and answers are shorter.
const MOST_BYTES: usize = 1024;

/// How many sockets' messages wait at most.
const MOST_MESSAGES: usize = 64;

/// Bytes for a socket.
pub type Message<'a> = (BorrowedFd<'a>, &'a [u8]);

/// A way to send several messages.
pub trait SendTogether: Debug {
    /// Sends each message, as far as its socket takes it without waiting. Adds for each how many bytes were
    /// taken; none after an error.
    fn send(&mut self, messages: &[Message<'_>], taken: &mut Vec<usize>);
}

/// Messages that are sent when the tasks that are ready have had their turn. Cheap to clone. For one thread,
/// whose runtime can spawn local tasks.
#[derive(Debug, Clone)]
pub struct SendQueue(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    sender: RefCell<Box<dyn SendTogether>>,
    entries: RefCell<Vec<Rc<Entry>>>,
    is_open: Cell<bool>,
}

/// The messages to one socket.
struct Entry {
    socket: Rc<UnixStream>,
    /// What waits to be sent, or what the socket didn't take.
    bytes: RefCell<Vec<u8>>,
    is_queued: Cell<bool>,
    /// The task that owns the socket.
    owner: RefCell<Waker>,
}

impl Debug for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The bytes may be secret.
        let length = self.bytes.borrow().len();
        formatter.debug_struct("Entry").field("length", &length).finish_non_exhaustive()
    }
}

impl SendQueue {
    /// A queue that takes no messages yet.
    pub fn new(sender: impl SendTogether + 'static) -> Self {
        Self(Rc::new(Shared {
            sender: RefCell::new(Box::new(sender)),
            entries: RefCell::default(),
            is_open: Cell::new(false),
        }))
    }

    /// Says whether messages that are written from now on wait for others.
    pub fn set_open(&self, is_open: bool) {
        self.0.is_open.set(is_open);
    }

    /// Sends what waits. Owners of sockets that don't take all of theirs are woken.
    fn send(&self) {
        let entries = self.0.entries.take();
        if entries.is_empty() {
            return;
        }
        let mut taken = Vec::with_capacity(entries.len());
        {
            let bytes: Vec<_> = entries.iter().map(|entry| entry.bytes.borrow()).collect();
            let messages: Vec<_> = entries
                .iter()
                .zip(&bytes)
                .map(|(entry, bytes)| (entry.socket.as_fd(), bytes.as_slice()))
                .collect();
            self.0.sender.borrow_mut().send(&messages, &mut taken);
        }
        let mut taken = taken.into_iter();
        for entry in &entries {
            entry.is_queued.set(false);
            let mut bytes = entry.bytes.borrow_mut();
            let count = taken.next().unwrap_or(0).min(bytes.len());
            bytes.drain(..count);
            if !bytes.is_empty() {
                entry.owner.borrow().wake_by_ref();
            }
        }
    }
}

/// One socket's part of a queue. What waits in it is sent when it is dropped.
#[derive(Debug)]
pub(super) struct Outgoing {
    queue: SendQueue,
    entry: Rc<Entry>,
}

impl Outgoing {
    pub(super) fn new(queue: SendQueue, socket: Rc<UnixStream>) -> Self {
        let entry = Entry {
            socket,
            bytes: RefCell::default(),
            is_queued: Cell::new(false),
            owner: RefCell::new(Waker::noop().clone()),
        };
        Self { queue, entry: Rc::new(entry) }
    }

    /// Queues a message if the queue is open and has room for it. Nothing must be left over.
    pub(super) fn take(&self, message: &[u8]) -> bool {
        let Self { queue, entry } = self;
        {
            let mut bytes = entry.bytes.borrow_mut();
            if !queue.0.is_open.get() || bytes.len() + message.len() > MOST_BYTES {
                return false;
            }
            bytes.extend_from_slice(message);
        }
        if !entry.is_queued.replace(true) {
            queue.0.entries.borrow_mut().push(Rc::clone(entry));
            let count = queue.0.entries.borrow().len();
            match count {
                1 => {
                    let queue = queue.clone();
                    // It runs after the tasks that are ready now.
                    tokio::task::spawn_local(async move { queue.send() });
                }
                MOST_MESSAGES => queue.send(),
                _ => {}
            }
        }
        true
    }

    /// Sends what waits, at once.
    pub(super) fn send(&self) {
        if self.entry.is_queued.get() {
            self.queue.send();
        }
    }

    /// What the socket didn't take. Nothing else must be sent to it before.
    pub(super) fn left_over(&self) -> Option<RefMut<'_, Vec<u8>>> {
        let bytes = self.entry.bytes.borrow_mut();
        (!self.entry.is_queued.get() && !bytes.is_empty()).then_some(bytes)
    }

    /// Sets the task that is woken when something is left over.
    pub(super) fn set_owner(&self, owner: &Waker) {
        self.entry.owner.borrow_mut().clone_from(owner);
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.send();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};

    use rustix::net::{SendFlags, send};
    use tokio::io::Interest;
    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::yield_now;

    use super::*;
    use crate::platform::NO_SIGNAL;
    use crate::{ClientSocket, LocalSocket};

    /// Sends one by one, and notes to how many sockets at a time.
    #[derive(Debug, Clone, Default)]
    struct Sender(Rc<RefCell<Vec<usize>>>);

    impl SendTogether for Sender {
        fn send(&mut self, messages: &[Message<'_>], taken: &mut Vec<usize>) {
            self.0.borrow_mut().push(messages.len());
            taken.extend(messages.iter().map(|(socket, bytes)| {
                send(socket, bytes, SendFlags::DONTWAIT | NO_SIGNAL).unwrap_or(0)
            }));
        }
    }

    /// Runs a test with a queue that is open, and what its sender notes.
    fn with_queue(test: impl AsyncFnOnce(SendQueue, Sender)) {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        runtime.unwrap().block_on(async {
            let sender = Sender::default();
            let queue = SendQueue::new(sender.clone());
            queue.set_open(true);
            test(queue, sender).await;
        });
    }

    /// A socket that has joined a queue, and its other end, which doesn't wait.
    fn joined(queue: &SendQueue) -> (LocalSocket, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut socket = LocalSocket::new(tokio::net::UnixStream::from_std(ours).unwrap()).unwrap();
        socket.join(queue);
        (socket, theirs)
    }

    /// What has arrived.
    fn arrived(mut socket: &UnixStream) -> Vec<u8> {
        let mut bytes = Vec::new();
        let end = socket.read_to_end(&mut bytes);
        assert!(end.is_ok() || end.unwrap_err().kind() == io::ErrorKind::WouldBlock);
        bytes
    }

    #[test]
    fn messages_of_a_turn_are_sent_together() {
        with_queue(async |queue, sender| {
            let (mut first, first_end) = joined(&queue);
            let (mut second, second_end) = joined(&queue);
            assert_eq!(first.try_write(b"one").unwrap(), 3);
            assert_eq!(second.try_write(b"two").unwrap(), 3);
            assert_eq!(first.try_write(b", three").unwrap(), 7);
            assert_eq!(arrived(&first_end), b"");
            yield_now().await;
            assert_eq!(arrived(&first_end), b"one, three");
            assert_eq!(arrived(&second_end), b"two");
            assert_eq!(*sender.0.borrow(), [2]);
        });
    }

    #[test]
    fn a_closed_queue_takes_nothing() {
        with_queue(async |queue, sender| {
            let (mut socket, end) = joined(&queue);
            queue.set_open(false);
            socket.try_write(b"at once").unwrap();
            assert_eq!(arrived(&end), b"at once");
            assert_eq!(*sender.0.borrow(), []);
        });
    }

    #[test]
    fn what_is_written_later_does_not_overtake() {
        with_queue(async |queue, _| {
            let (mut socket, end) = joined(&queue);
            socket.try_write(b"small, ").unwrap();
            let large = vec![b'x'; MOST_BYTES];
            socket.try_write(&large).unwrap();
            assert_eq!(arrived(&end), [b"small, ", large.as_slice()].concat());
            socket.try_write(b"small, ").unwrap();
            queue.set_open(false);
            socket.try_write(b"closed").unwrap();
            assert_eq!(arrived(&end), b"small, closed");
        });
    }

    #[test]
    fn no_more_than_so_many_wait() {
        with_queue(async |queue, sender| {
            let mut sockets: Vec<_> = (0..=MOST_MESSAGES).map(|_| joined(&queue)).collect();
            for (socket, _) in &mut sockets {
                socket.try_write(b"message").unwrap();
            }
            assert_eq!(*sender.0.borrow(), [MOST_MESSAGES]);
            yield_now().await;
            assert_eq!(*sender.0.borrow(), [MOST_MESSAGES, 1]);
            assert!(sockets.iter().all(|(_, end)| arrived(end) == b"message"));
        });
    }

    #[test]
    fn what_waits_is_sent_before_a_socket_is_closed() {
        with_queue(async |queue, _| {
            let (mut socket, end) = joined(&queue);
            socket.try_write(b"dropped").unwrap();
            drop(socket);
            assert_eq!(arrived(&end), b"dropped");

            let (ours, end) = UnixStream::pair().unwrap();
            let mut client = ClientSocket::new(ours).unwrap();
            client.join(&queue);
            client.write(b"shut down").unwrap();
            client.shutdown().unwrap();
            assert_eq!(arrived(&end), b"shut down");
        });
    }

    #[test]
    fn what_a_full_socket_does_not_take_is_sent_when_it_has_room() {
        with_queue(async |queue, _| {
            let (ours, end) = UnixStream::pair().unwrap();
            let mut behind = ours.try_clone().unwrap();
            let mut client = ClientSocket::new(ours).unwrap();
            client.join(&queue);
            behind.set_nonblocking(true).unwrap();
            let mut filled = 0;
            while let Ok(count) = behind.write(&[b'x'; 4096]) {
                filled += count;
            }
            assert_eq!(client.write(b"first, ").unwrap(), 7);
            // The task that owns the client waits meanwhile, and is woken.
            let owner = tokio::task::spawn_local(async move {
                while !client.flush() {
                    assert_eq!(client.write(b"too early").unwrap(), 0);
                    client.changed().await.unwrap();
                }
                client.write(b"second").unwrap();
                client
            });
            yield_now().await;
            yield_now().await;
            assert!(!owner.is_finished());
            end.set_nonblocking(true).unwrap();
            assert_eq!(arrived(&end).len(), filled);
            drop(owner.await.unwrap());
            assert_eq!(arrived(&end), b"first, second");
        });
    }

    #[test]
    fn the_owner_of_a_socket_gets_the_error_of_its_message() {
        with_queue(async |queue, _| {
            let (mut socket, end) = joined(&queue);
            socket.try_write(b"message").unwrap();
            drop(end);
            yield_now().await;
            let error = socket.ready(Interest::WRITABLE).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
            let after = socket.try_write(b"after a gap").unwrap_err();
            assert_eq!(after.kind(), io::ErrorKind::WouldBlock);
        });
    }
}
