//! The protocol of ssh-agent (RFC 9987): frames, what a request asks for, and one client's talk with
//! the agent.
//!
//! A request is read far enough for the gate to know its verb, its key and what is to be signed, and one
//! that adds a key to its end. Where not every key is lent, a list of keys is held until it is whole and
//! narrowed. Everything else passes as it comes, byte for byte and in order, and is never held.
//!
//! | where | what |
//! |---|---|
//! | host, for each stream | [`SshSession`]: the gate, and one connection to the agent |
//! | target, for each client whose bytes go over the link | [`PendingRequests`]: knows what is unanswered |
//! | wherever there is no way to the agent | [`RefusingAgent`]: a failure for each request |

mod addition;
mod error;
mod fingerprint;
mod frame;
mod key_selection;
mod message_type;
mod pending_requests;
mod refusing_agent;
mod request;
mod response;
pub mod session;
mod summary;
mod wire;

pub use addition::Addition;
pub use error::SessionError;
pub use fingerprint::{Fingerprint, NoFingerprint};
pub use frame::{Cut, Frame, FrameCutter, FrameError, MAX_FRAME, Piece};
pub use key_selection::KeySelection;
pub use message_type::MessageType;
pub use pending_requests::PendingRequests;
pub use refusing_agent::RefusingAgent;
pub use request::{Purpose, Reading, Request};
pub use response::{Identities, Identity, Response};
pub use session::SshSession;
pub use summary::Summary;
pub use wire::Malformed;
