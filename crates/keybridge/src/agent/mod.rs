//! The host's agents: where gpg-agent and ssh-agent listen, how they are dialled, and how the bytes
//! of a session move to them and back.

mod connection;
mod dial;
mod find;
mod ssh;
mod stream;

use std::rc::Rc;

use crate::keyring::Keyring;
pub use connection::AgentConnection;
pub use dial::{AgentDialer, DialError};
pub use ssh::{
    Attempt, FoundSshAgent, KeyList, NoSshAgent, Outcome, Place, Served, SshDialer, SshPlaces,
};
pub use stream::AgentStream;

/// The host's gpg-agent, and the keys of it that a target may use.
#[derive(Debug, Clone)]
pub struct GpgAgent {
    /// Dials it.
    pub dialer: AgentDialer,
    /// The keys.
    pub keyring: Rc<Keyring>,
}

impl GpgAgent {
    /// An agent with keys to lend.
    pub fn new(dialer: AgentDialer, keyring: Keyring) -> Self {
        Self { dialer, keyring: Rc::new(keyring) }
    }
}
