//! Bridges in the background: one process for each target, a lock that proves that it lives, and a
//! socket to talk to it.

pub mod control;
#[cfg(any(test, feature = "test-double"))]
mod double;
pub mod editor;
mod life;
mod managed_bridge;
mod manager;
pub mod serve;
pub mod state;
mod status;
pub mod watch;

#[cfg(any(test, feature = "test-double"))]
pub use double::{Call, RecordingBridges};
pub use manager::{BridgeManager, Bridges, Downed, Ensured};
pub(crate) use status::to_json;
pub use status::{BridgeState, BridgeStatus, LaneStatus, Lanes};
