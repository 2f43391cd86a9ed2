//! What all Unix systems have in common.

mod async_fd;
mod client_socket;
mod descriptors;
mod local_socket;
mod overflow_uid;
mod passing;
mod send_queue;
mod stdio;

pub use async_fd::register;
pub use client_socket::ClientSocket;
pub use descriptors::{receive_descriptors, send_descriptors};
pub use local_socket::{LocalSocket, LocalSocketWriter, WriteReadiness};
pub use overflow_uid::overflow_uid;
pub use passing::PassingSocket;
pub(crate) use passing::{read_with_passing, write_with_passing};
pub use send_queue::{Message, SendQueue, SendTogether};
pub use std::os::unix::net::UnixStream as ClientStream;
pub use stdio::{Input, Output, detach_stdio};
pub use tokio::net::UnixStream as LocalStream;
