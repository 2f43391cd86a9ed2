//! The host's agents: finding the sockets of gpg-agent and ssh-agent, connecting, and moving the bytes
//! of a session.

mod connection;
mod dial;
mod find;
mod question;
mod ssh;
mod stream;

use std::rc::Rc;

use crate::keyring::Keyring;
pub use connection::AgentConnection;
pub(crate) use connection::until;
pub use dial::{AgentDialer, DialError};
pub(crate) use question::QuestionError;
pub use ssh::{
    Attempt, FoundSshAgent, KeyList, KeyListError, NoSshAgent, Outcome, OwnSocket, Place,
    SshDialer, SshPlaces,
};
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
