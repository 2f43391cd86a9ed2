//! The host's agents: where gpg-agent listens, how it is dialled, and how the bytes of a session
//! move to it and back.

mod connection;
mod dial;
mod find;
mod stream;

pub use connection::AgentConnection;
pub use dial::{AgentDialer, DialError};
pub use stream::AgentStream;
