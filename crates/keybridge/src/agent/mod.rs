//! The host's agents: finding the sockets of gpg-agent and ssh-agent, and connecting.

mod dial;
#[cfg(test)]
mod dial_tests;
mod find;
mod question;
mod stream;

use std::rc::Rc;

use crate::keyring::Keyring;
pub use dial::{AgentDialer, DialError};
pub(crate) use question::QuestionError;
pub use stream::AgentStream;

/// The host's gpg-agent, and which of its keys a target may use.
#[derive(Debug, Clone)]
pub struct GpgAgent {
    /// Connects to it.
    pub dialer: AgentDialer,
    /// The keys that are lent.
    pub keyring: Rc<Keyring>,
}

impl GpgAgent {
    /// An agent with keys to lend.
    pub fn new(dialer: AgentDialer, keyring: Keyring) -> Self {
        Self { dialer, keyring: Rc::new(keyring) }
    }
}
