//! What clients of the ssh lane are told while their agent waits for a person.
//!
//! OpenSSH's agent does nothing else while a dialog is open or a token waits for a touch. So whoever
//! asks for the keys meanwhile is told what the agent itself said just before: while it waits, nothing
//! can be added to it or taken away.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_link::Stream;
use keybridge_proto::ssh::{Observer, Request};
use tokio::sync::Notify;

use super::stats::LaneCounter;

/// A signature that takes longer waits for a person.
const LONG: Duration = Duration::from_millis(50);

/// How much older than such a signature a list may be: clients ask for the keys first.
const FRESH: Duration = Duration::from_secs(10);

/// The signatures that are under way, and what is known of the agent's keys.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Since when each of them is, by a number that grows.
    signatures: RefCell<BTreeMap<u64, Instant>>,
    next: Cell<u64>,
    /// What the agent answered last that was asked for its keys, and when.
    list: RefCell<Option<(Instant, Rc<[u8]>)>>,
    /// A signature has begun or ended.
    changed: Notify,
}

impl Waiting {
    /// What follows one session.
    pub(super) fn observer(self: &Rc<Self>) -> impl Observer + use<> {
        Watch { waiting: Rc::clone(self), signature: None }
    }

    /// Answers a new client that asks for the keys, for as long as the agent can't: comes back when the
    /// agent is to be asked, or nobody.
    pub(super) async fn answer_for_agent(&self, stream: &Stream, counter: &LaneCounter) {
        let mut held = None;
        while let Some(since) = self.oldest()
            && !stream.is_closed()
            && !stream.is_finished()
        {
            let changed = self.changed.notified();
            let now = Instant::now();
            let wait = match first_request(stream) {
                First::Other => return,
                First::Nothing => None,
                First::List => {
                    if let Some(list) = self.list(since, now) {
                        take_list(stream);
                        counter.took_in(Request::LIST.len());
                        if stream.write_all(&list).await {
                            counter.gave_out(list.len());
                        }
                        held = None;
                        continue;
                    }
                    // Not for longer than it takes to tell a signature from a dialog.
                    let held = *held.get_or_insert(now);
                    if since > held || now >= held + LONG {
                        return;
                    }
                    Some(since + LONG)
                }
            };
            tokio::select! {
                () = stream.changed() => {}
                () = changed => {}
                () = super::session::until(wait) => {}
            }
        }
    }

    /// The agent is another one now.
    pub(super) fn forget_list(&self) {
        self.list.replace(None);
    }

    fn oldest(&self) -> Option<Instant> {
        self.signatures.borrow().values().next().copied()
    }

    /// The keys, if the agent has been waiting for a person since then and listed them before.
    fn list(&self, since: Instant, now: Instant) -> Option<Rc<[u8]>> {
        let list = self.list.borrow();
        let (at, list) = list.as_ref()?;
        (now >= since + LONG && *at + FRESH >= since).then(|| Rc::clone(list))
    }
}

/// What a client asks first.
enum First {
    /// Nothing yet, or not all of it.
    Nothing,
    /// For the keys.
    List,
    Other,
}

fn first_request(stream: &Stream) -> First {
    let mut first = First::Nothing;
    stream.read(|bytes| {
        first = if bytes.starts_with(&Request::LIST) {
            First::List
        } else if Request::LIST.starts_with(bytes) {
            First::Nothing
        } else {
            First::Other
        };
        0
    });
    first
}

fn take_list(stream: &Stream) {
    let mut left = Request::LIST.len();
    stream.read(|bytes| {
        let taken = left.min(bytes.len());
        left -= taken;
        taken
    });
}

/// Follows one session.
#[derive(Debug)]
struct Watch {
    waiting: Rc<Waiting>,
    /// Its signature, while that is under way.
    signature: Option<u64>,
}

impl Observer for Watch {
    fn asked_to_sign(&mut self, now: Instant) {
        let Waiting { signatures, next, changed, .. } = &*self.waiting;
        let number = next.replace(next.get() + 1);
        signatures.borrow_mut().insert(number, now);
        self.signature = Some(number);
        changed.notify_waiters();
    }

    fn answered(&mut self) {
        if let Some(number) = self.signature.take() {
            self.waiting.signatures.borrow_mut().remove(&number);
            self.waiting.changed.notify_waiters();
        }
    }

    fn listed(&mut self, keys: Vec<u8>) {
        self.waiting.list.replace(Some((Instant::now(), keys.into())));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.answered();
    }
}
