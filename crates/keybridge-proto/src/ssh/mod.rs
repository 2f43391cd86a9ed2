//! The protocol of ssh-agent (RFC 9987): frames, requests, responses and the session.
//!
//! A request is parsed until the gate knows its type, its key and what is to be signed; one that adds
//! a key is parsed to its end. If not every key is lent, a list of keys is stored until it is
//! complete and then reduced to the lent ones. Everything else is forwarded as it arrives.
//!
//! | where | what |
//! |---|---|
//! | host, for each stream | [`SshSession`]: the gate, and one connection to the agent |
//! | target, for each client | [`RelaySession`]: passes bytes, and refuses requests while the link is lost |

mod added_key;
mod binds;
mod error;
mod fingerprint;
mod frame;
mod host_key;
mod key_selection;
mod message_type;
mod purpose;
pub mod relay;
mod relay_machine;
mod request;
mod response;
pub mod session;
mod session_machine;
mod wire;

pub use added_key::AddedKey;
pub use binds::{BindError, bind_to_host};
pub use error::SessionError;
pub use fingerprint::{Fingerprint, NoFingerprint};
pub use frame::{Cut, Frame, FrameCutter, FrameError, MAX_FRAME, Piece};
pub use key_selection::{KeySelection, SelectionInForce};
pub use message_type::{MessageType, Summary};
pub use purpose::{Login, Purpose};
pub use relay::RelaySession;
pub use request::{Reading, Request};
pub use response::{Identities, Identity, Response};
pub use session::SshSession;
pub use wire::Malformed;
