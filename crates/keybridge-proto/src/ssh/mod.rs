//! The protocol of ssh-agent (RFC 9987): frames, requests, responses and the session.
//!
//! A request is parsed until the gate knows its type, its key and what is to be signed; one that adds
//! a key is parsed to its end. If not every key is lent, a list of keys is stored until it is
//! complete and then reduced to the lent ones. Everything else is forwarded as it arrives.
//!
//! | where | what |
//! |---|---|
//! | host, for each stream | [`SshSession`]: the gate, and one connection to the agent |
//! | target, for each client | [`PendingRequests`]: counts the requests that are unanswered |
//! | either, without an agent | [`RefusingAgent`]: a failure for each request |

mod added_key;
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

pub use added_key::AddedKey;
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
