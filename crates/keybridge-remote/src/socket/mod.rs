//! The sockets that the helper binds: how they are bound, who listens at a path before that, and what
//! keeps a path ours.

pub(crate) mod current_listener;
pub(crate) mod folder_watch;
mod gpg_agent_listener;
pub(crate) mod listening_socket;
pub(crate) mod path_guard;
