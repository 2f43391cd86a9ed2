//! What somebody is told who follows a session of the ssh lane.

use std::fmt::Debug;
use std::time::Instant;

use super::Kind;

/// The longest list of keys that an observer is shown: that of fifty RSA keys.
const LIST_LIMIT: usize = 32 * 1024;

/// Follows what a session asks of its agent.
pub trait Observer: Debug {
    /// The agent has all of a request for a signature.
    fn asked_to_sign(&mut self, now: Instant);

    /// It has answered what it was asked.
    fn answered(&mut self);

    /// Its keys may be others than it listed before.
    fn keys_changed(&mut self);

    /// It has listed its keys, in a frame. Told of a connection alone that is tied to no SSH session:
    /// one that is may not be shown every key.
    fn listed(&mut self, keys: Vec<u8>);
}

/// What is kept for somebody who follows the session.
#[derive(Debug)]
pub(super) struct Observed {
    by: Box<dyn Observer>,
    /// The connection is tied to no SSH session.
    is_plain: bool,
    /// The list that is being answered.
    list: Option<Vec<u8>>,
}

impl Observed {
    pub(super) fn by(observer: impl Observer + 'static) -> Self {
        Self { by: Box::new(observer), is_plain: true, list: None }
    }

    pub(super) fn asked(&mut self, kind: Kind, now: Instant) {
        match kind {
            Kind::SIGN_REQUEST => self.by.asked_to_sign(now),
            Kind::REQUEST_IDENTITIES if self.is_plain => self.list = Some(Vec::new()),
            Kind::REQUEST_IDENTITIES => {}
            Kind::EXTENSION => self.is_plain = false,
            _ => self.by.keys_changed(),
        }
    }

    pub(super) fn answer_begun(&mut self, kind: Kind, size: usize, start: &[u8]) {
        let Some(list) = &mut self.list else { return };
        if kind == Kind::IDENTITIES_ANSWER && size <= LIST_LIMIT {
            list.extend_from_slice(start);
        } else {
            self.list = None;
            self.by.keys_changed();
        }
    }

    pub(super) fn answer_part(&mut self, part: &[u8]) {
        if let Some(list) = &mut self.list {
            list.extend_from_slice(part);
        }
    }

    pub(super) fn answered(&mut self) {
        match self.list.take() {
            Some(list) => self.by.listed(list),
            None => self.by.answered(),
        }
    }
}
