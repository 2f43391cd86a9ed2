//! The protocol of ssh-agent (RFC 9987): frames, what a request asks for, and one client's talk with
//! the agent.
//!
//! A request is read far enough for the gate to know its verb, its key and what is to be signed.
//! Everything else passes as it comes, byte for byte and in order, and is never held.

mod answer;
mod frame;
mod kind;
mod request;
mod summary;
mod wire;

pub use answer::{Answer, Identities, Identity};
pub use frame::{Cut, Frame, FrameCutter, FrameError, MAX_FRAME, Piece};
pub use kind::Kind;
pub use request::{Purpose, Reading, Request};
pub use summary::Summary;
pub use wire::Malformed;
