//! Bridges in the background: one process for each target, a lock that proves that it lives, and a
//! socket to talk to it.

pub mod control;
#[cfg(any(test, feature = "test-double"))]
mod double;
mod manager;
pub mod serve;
pub mod state;
mod status;

#[cfg(any(test, feature = "test-double"))]
pub use double::{Call, RecordingBridges};
pub use manager::{BridgeManager, Bridges, Ensured};
pub(crate) use status::utc;
pub use status::{BridgeState, BridgeStatus, LaneStatus, Lanes};
