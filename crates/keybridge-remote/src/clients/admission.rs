//! Who may connect: the target's user and root, as the kernel reports the peer's uid. How many are served at
//! once.

use std::cell::Cell;
use std::rc::Rc;

use tokio::net::UnixStream;

use crate::home::safe_path::euid;

/// Which users may connect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PeerCheck {
    own: u32,
    /// Stands for every uid that has none here: it could be anyone.
    overflow: u32,
}

impl PeerCheck {
    /// Allows the target's user and root.
    pub(crate) fn of_user() -> Self {
        Self { own: euid(), overflow: overflow_uid() }
    }

    pub(crate) fn allows(self, socket: &UnixStream) -> Result<(), String> {
        let peer = socket.peer_cred().map_err(|error| format!("can't get its uid: {error}"))?;
        if self.allows_uid(peer.uid()) { Ok(()) } else { Err(format!("it has uid {}", peer.uid())) }
    }

    fn allows_uid(self, uid: u32) -> bool {
        uid != self.overflow && (uid == self.own || uid == 0)
    }
}

/// The uid that stands for all users who have none in this process's user namespace.
fn overflow_uid() -> u32 {
    const DEFAULT: u32 = 65534;
    std::fs::read_to_string("/proc/sys/kernel/overflowuid")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(DEFAULT)
}

/// Counts the sessions of a bridge, on all lanes together.
#[derive(Debug)]
pub(crate) struct SessionLimit {
    limit: usize,
    sessions: Cell<usize>,
}

/// Allows one session. Another one may take its place when this is dropped.
#[derive(Debug)]
pub(crate) struct SessionPermit(Rc<SessionLimit>);

impl SessionLimit {
    pub(crate) fn new(limit: usize) -> Rc<Self> {
        Rc::new(Self { limit, sessions: Cell::new(0) })
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// A permit, if the limit isn't reached.
    pub(crate) fn acquire(self: &Rc<Self>) -> Option<SessionPermit> {
        if self.sessions.get() >= self.limit {
            return None;
        }
        self.sessions.set(self.sessions.get() + 1);
        Some(SessionPermit(Rc::clone(self)))
    }
}

impl Drop for SessionPermit {
    fn drop(&mut self) {
        self.0.sessions.set(self.0.sessions.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_user_and_root_may_connect() {
        let check = PeerCheck { own: 1000, overflow: 65534 };
        assert!(check.allows_uid(1000) && check.allows_uid(0));
        assert!(!check.allows_uid(1001) && !check.allows_uid(65534));
        assert!(!PeerCheck { own: 65534, overflow: 65534 }.allows_uid(65534));
    }

    #[test]
    fn a_permit_that_is_dropped_can_be_given_again() {
        let limit = SessionLimit::new(2);
        let (first, second) = (limit.acquire(), limit.acquire());
        assert!(first.is_some() && second.is_some() && limit.acquire().is_none());
        drop(first);
        assert!(limit.acquire().is_some());
    }
}
