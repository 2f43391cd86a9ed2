//! The sockets that the helper binds: how they are bound, who listens at a path before that, and what
//! keeps a path ours.

pub(crate) mod current_listener;
pub(crate) mod direct_path;
pub(crate) mod folder_watch;
pub(crate) mod listening_socket;
pub(crate) mod long_path;
pub(crate) mod path_guard;
