//! Clients of agents and bridges that speak the protocols by hand.

mod assuan;
mod assuan_async;
mod every_line;
mod ssh;

use std::time::Duration;

pub use assuan::Client;
pub use assuan_async::{AsyncClient, dial};
pub use every_line::{FORBIDDEN, lines, send_all, verbs};
pub use ssh::{FAILURE, NO_KEYS, SUCCESS, SshClient};

/// A client whose bridge is down has its error by then, also on a busy machine. One that has to wait until
/// the loss of a link is noticed waits for five seconds and more.
pub const AT_ONCE: Duration = Duration::from_secs(4);
