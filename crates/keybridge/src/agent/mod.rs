//! The host's agents: where gpg-agent and ssh-agent listen, how they are dialled, and how the bytes
//! of a session move to them and back.

mod connection;
mod dial;
mod find;
mod ssh;
mod stream;

pub use connection::AgentConnection;
pub use dial::{AgentDialer, DialError};
pub use ssh::{
    FoundSshAgent, KeyList, Look, NoSshAgent, Outcome, Place, Served, SshDialer, SshPlaces,
};
pub use stream::AgentStream;
