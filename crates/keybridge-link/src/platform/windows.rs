//! Windows.

mod local_socket;
mod stdio;

pub use local_socket::{LocalSocket, LocalSocketWriter, LocalStream};
pub use stdio::{Input, Output};
