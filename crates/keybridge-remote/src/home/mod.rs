//! The user's home: the folder that a lane works in, the lock that keeps a second helper out of it, and
//! the check that no other user can change a path.

pub(crate) mod acquire_lock;
pub(crate) mod lane_folder;
pub(crate) mod lock;
pub(crate) mod safe_path;
