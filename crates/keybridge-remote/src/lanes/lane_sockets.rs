//! The sockets of a lane: one, and another one where gpg looks for its agent after a login.

use std::cell::RefCell;
use std::rc::Rc;

use crate::socket::listening_socket::ListeningSocket;

/// The sockets of a lane. More can come while it is served. Cheap to clone.
#[derive(Clone)]
pub(crate) struct LaneSockets(Rc<RefCell<Vec<Rc<ListeningSocket>>>>);

impl LaneSockets {
    pub(crate) fn new(first: Rc<ListeningSocket>) -> Self {
        Self(Rc::new(RefCell::new(vec![first])))
    }

    pub(crate) fn add(&self, socket: Rc<ListeningSocket>) {
        self.0.borrow_mut().push(socket);
    }

    /// All of them by now.
    pub(crate) fn all(&self) -> Vec<Rc<ListeningSocket>> {
        self.0.borrow().clone()
    }
}
