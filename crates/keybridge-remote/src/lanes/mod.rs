//! The lanes in the target: what each finds there, its set-up, its running, and its undoing.

pub(crate) mod agent_check;
mod choose_socket;
pub(crate) mod discovery;
mod follow_login;
pub(crate) mod gnupg;
pub(crate) mod pipe_folder;
pub(crate) mod running_lane;
pub(crate) mod set_up;
pub(crate) mod ssh_folder;
pub(crate) mod start_lane;
pub(crate) mod undo_lane;
