//! What all Unix systems have in common.

mod async_fd;
mod local_socket;
mod stdio;

pub use async_fd::register;
pub use local_socket::LocalSocket;
pub use stdio::{Input, Output, detach_stdio};
pub use tokio::net::UnixStream as LocalStream;
