//! Windows.

mod local_socket;
mod passing;
mod stdio;

pub use local_socket::{LocalSocket, LocalSocketWriter, LocalStream, SendQueue};
pub use passing::{ClientStream, PassingSocket};
pub(crate) use passing::{read_with_passing, write_with_passing};
pub use stdio::{Input, Output};
