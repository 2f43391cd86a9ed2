//! Bridges in the background: one process for each target, a lock that proves that it lives, and a
//! socket to talk to it.

pub mod control;
pub mod editor;
mod lifecycle;
mod managed_bridge;
mod manager;
mod process;
pub mod serve;
pub mod state;
mod status;
mod take_over;
#[cfg(any(test, feature = "test-double"))]
mod test_double;
pub mod watch;

pub use control::Synced;
pub use manager::{BridgeManager, Bridges, DownOutcome, UpOutcome};
pub(crate) use status::to_json;
pub use status::{BridgeState, BridgeStatus, LaneStatus};
#[cfg(any(test, feature = "test-double"))]
pub use test_double::{Call, RecordingBridges};
