//! What somebody is told who follows a session of the ssh lane.

use std::fmt::Debug;
use std::time::Instant;

/// Follows what a session asks of its agent.
pub trait Observer: Debug {
    /// The agent has all of a request for a signature.
    fn asked_to_sign(&mut self, now: Instant);

    /// It has answered what it was asked.
    fn answered(&mut self);

    /// Its keys may be others than it listed before.
    fn keys_changed(&mut self);

    /// It has listed its keys, in a frame. Told of a connection alone that is tied to no SSH session:
    /// one that is may not be shown every key.
    fn listed(&mut self, keys: Vec<u8>);
}
