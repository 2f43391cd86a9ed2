//! What clients of the ssh lane are told while their agent waits for a person.
//!
//! OpenSSH's agent does nothing else while a dialog is open or a token waits for a touch. So whoever
//! comes then and asks for the keys is told what the agent itself said just before: while it answers
//! nobody, nothing can be added to it or taken away. An agent that does answer meanwhile, as gpg-agent
//! does, is asked.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_link::Stream;
use keybridge_proto::ssh::{Observer, Request};
use tokio::sync::{Mutex, Notify};

use super::stats::LaneCounter;
use crate::agent::SshDialer;

/// A signature that takes longer waits for a person.
const LONG: Duration = Duration::from_millis(50);

/// A client that is told so often needs no keys.
const MOST_LISTS: usize = 1000;

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
    /// Whether the agent answers others while that signature waits, as far as it was tried. Held while
    /// that is, so that it is tried once for all who wait.
    tried: Mutex<Option<(u64, bool)>>,
}

impl Waiting {
    /// What follows one session.
    pub(super) fn observer(self: &Rc<Self>) -> impl Observer + use<> {
        Watch { waiting: Rc::clone(self), signature: None }
    }

    /// Answers a new client that asks for the keys, for as long as the agent doesn't: comes back when the
    /// agent is to be asked, or nobody.
    pub(super) async fn answer_for_agent(
        &self,
        stream: &Stream,
        dialer: &SshDialer,
        counter: &LaneCounter,
    ) {
        let (mut told, mut held) = (0, None);
        while let Some((signature, since)) = self.oldest()
            && told < MOST_LISTS
            && !stream.is_closed()
            && !stream.is_finished()
        {
            let changed = self.changed.notified();
            let is_long = since.elapsed() >= LONG;
            let wait = match first_request(stream) {
                First::Other => return,
                First::Nothing => None,
                First::List if is_long => {
                    let Some(list) = self.list(since) else { return };
                    if self.agent_answers(signature, dialer).await {
                        return;
                    }
                    take_list(stream);
                    counter.took_in(Request::LIST.len());
                    if stream.write_all(&list).await {
                        counter.gave_out(list.len());
                    }
                    (told, held) = (told + 1, None);
                    continue;
                }
                // Those who came before it are done.
                First::List if held.is_some_and(|held| since > held) => return,
                First::List => {
                    held.get_or_insert_with(Instant::now);
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

    /// Whether the agent answers others while that signature waits.
    async fn agent_answers(&self, signature: u64, dialer: &SshDialer) -> bool {
        let mut tried = self.tried.lock().await;
        match *tried {
            Some((of, answers)) if of == signature => answers,
            Some(_) | None => {
                let answers = dialer.answers_within(LONG).await;
                *tried = Some((signature, answers));
                answers
            }
        }
    }

    /// The agent is another one now.
    pub(super) fn forget_list(&self) {
        self.list.replace(None);
    }

    /// The signature that is under way for longest.
    fn oldest(&self) -> Option<(u64, Instant)> {
        self.signatures.borrow().first_key_value().map(|(number, since)| (*number, *since))
    }

    /// The keys as the agent listed them before a signature that began then.
    fn list(&self, since: Instant) -> Option<Rc<[u8]>> {
        let list = self.list.borrow();
        list.as_ref().filter(|(at, _)| *at + FRESH >= since).map(|(_, list)| Rc::clone(list))
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
    stream.read(|bytes| std::mem::take(&mut left).min(bytes.len()));
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

    fn keys_changed(&mut self) {
        self.waiting.forget_list();
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
