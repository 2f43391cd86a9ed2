//! What takes the place of an agent, or stands before one.

mod recorder;
mod scripted;
mod stand_in;

pub use recorder::{Recorder, is_allowed};
pub use scripted::{ScriptedAgent, agreeable};
pub use stand_in::{Peer, STAND_IN_VERSION, StandIn, native_socket_file};
