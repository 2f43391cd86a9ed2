//! The mux: many streams, public keys and reports over one pair of byte streams.
//!
//! [`Endpoint`] is one end of a link. It does no I/O: [`Endpoint::receive`] takes the peer's bytes,
//! [`Endpoint::poll_event`] returns [`Event`]s, and [`Endpoint::transmit`] returns the bytes for the
//! peer. Both ends, host and helper, are of this type, in version 1 and 2 of the protocol.
//!
//! Reading never waits for writing, and no stream waits for another: credit bounds what a stream may send
//! and what its peer has to hold, and of each control frame at most one waits. Of frames that no credit
//! bounds, a host takes so many in a time.
//!
//! [`Liveness`] says when to send a PING on a silent link, and when to give it up.

mod admit;
mod config;
mod endpoint;
mod error;
mod event;
mod flow;
mod frame;
mod frame_type;
mod hello;
mod incoming;
mod liveness;
mod outgoing;
mod pace;
mod queue;
mod schedule;
mod start_line;
mod stream;
mod version_1;

pub use config::{Config, DEFAULT_MAX_STREAMS, End, Version};
pub use endpoint::{Endpoint, HIGH_WATER};
pub use error::LinkError;
pub use event::{Event, StreamId};
pub use flow::{FLOOR, LINK_WINDOW, WINDOW};
pub use frame::{MAX_DATA, MAX_PAYLOAD};
pub(crate) use frame_type::ERROR_LIMIT;
pub use frame_type::FrameType;
#[cfg(test)]
pub(crate) use frame_type::READY_LIMIT;
pub use hello::Hello;
pub use liveness::{Due, IDLE_PING, Liveness, SILENCE_LIMIT};
pub use pace::{OPEN_BURST, OPEN_INTERVAL, OpenPace};
pub use start_line::{Cookie, START_LINE_LIMIT, START_LINE_TIME, StartScanner};
pub use version_1::{VERSION_1_LINK_BOUND, VERSION_1_STREAM_BOUND};
