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

    /// Answers a new client that asks for the keys, for as long as the agent doesn't. Gives back what was
    /// read of the client when the agent is to be asked, or nobody.
    pub(super) async fn answer_for_agent(
        &self,
        stream: &Stream,
        dialer: &SshDialer,
        counter: &LaneCounter,
    ) -> Vec<u8> {
        let (mut request, mut held) = (Vec::new(), None);
        while let Some((signature, since)) = self.oldest()
            && !stream.is_closed()
        {
            let changed = self.changed.notified();
            counter.took_in(read_more(stream, &mut request));
            let wait = if request == Request::LIST {
                if since.elapsed() >= LONG {
                    let Some(list) = self.list(since) else { break };
                    if self.agent_answers(signature, dialer).await {
                        break;
                    }
                    (request, held) = (Vec::new(), None);
                    if stream.write_all(&list).await {
                        counter.gave_out(list.len());
                    }
                    continue;
                }
                if since > *held.get_or_insert_with(Instant::now) {
                    // Those that were under way are done.
                    break;
                }
                Some(since + LONG)
            } else if Request::LIST.starts_with(&request) && !stream.is_finished() {
                None
            } else {
                break;
            };
            tokio::select! {
                () = stream.changed() => {}
                () = changed => {}
                () = super::session::until(wait) => {}
            }
        }
        request
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

/// Reads as much of a client's request as one for the keys has; says how much came.
fn read_more(stream: &Stream, request: &mut Vec<u8>) -> usize {
    let before = request.len();
    stream.read(|bytes| {
        let count = (Request::LIST.len() - request.len()).min(bytes.len());
        request.extend_from_slice(bytes.get(..count).unwrap_or_default());
        count
    });
    request.len() - before
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
