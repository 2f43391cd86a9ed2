//! Windows.

mod local_socket;
mod stdio;

pub use local_socket::{LocalSocket, LocalStream};
pub use stdio::{Input, Output};
