//! Bridges: one process for each target, in the background or that of its `up`, a lock that proves that it
//! lives, and a socket to talk to it. Of several `up` at once the one that gets the lock serves, and the
//! others wait for its bridge.
//!
//! A bridge outlives its links. `life` decides when one is made again, and `lifecycle` makes it. Nothing
//! that was sent over a lost link is sent again: clients that waited for an answer get an error. What
//! can't be undone in a target that is away is noted (`state`), and undone at the next `up` or `down`.

pub(crate) mod control;
mod control_server;
mod ending;
mod life;
mod lifecycle;
pub(crate) mod managed_bridge;
mod manager;
mod narrowed;
mod process;
pub(crate) mod serve;
pub(crate) mod state;
mod status;
mod take_over;
#[cfg(any(test, feature = "test-double"))]
mod test_double;
pub(crate) mod watch;

pub(crate) use control::Synced;
pub(crate) use ending::DownOutcome;
pub(crate) use manager::UpOutcome;
pub use manager::{BridgeManager, Bridges};
pub(crate) use serve::run_in_foreground;
pub(crate) use status::{BridgeState, BridgeStatus, LaneStatus, to_json, utc};
#[cfg(any(test, feature = "test-double"))]
pub use test_double::{Call, RecordingBridges};
