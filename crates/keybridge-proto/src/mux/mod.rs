//! The mux: many streams, public keys and reports over one pair of byte streams.
//!
//! [`Endpoint`] is one end. It does no I/O: bytes of the peer go into [`Endpoint::receive`], [`Event`]s come out of
//! [`Endpoint::poll_event`], and [`Endpoint::transmit`] gives the bytes for the peer. The host's end and the helper's
//! end are the same type, in version 1 and 2 of the protocol.
//!
//! Reading never waits for writing, and no stream waits for another: what a stream may send is bounded by
//! its credit, what it holds is bounded by what its peer may send, and control frames are flags, not queues.
//!
//! [`Liveness`] tells when a link over which nothing comes is to be asked, and when it is lost.

mod config;
mod endpoint;
mod error;
mod event;
mod flow;
mod frame;
mod hello;
mod liveness;
mod queue;
mod schedule;
mod start_line;
mod stream;

pub use config::{Config, DEFAULT_MAX_STREAMS, End, Version};
pub use endpoint::{
    Endpoint, HIGH_WATER, TRANSMIT_SIZE, VERSION_1_LINK_BOUND, VERSION_1_STREAM_BOUND,
};
pub use error::LinkError;
pub use event::{Event, StreamId};
pub use flow::{FLOOR, LINK_WINDOW, WINDOW};
pub use frame::{FrameType, MAX_DATA, MAX_PAYLOAD};
pub use hello::Hello;
pub use liveness::{Due, IDLE_PING, Liveness, SILENCE_LIMIT};
pub use start_line::{Cookie, START_LINE_LIMIT, START_LINE_TIME, StartScanner};
