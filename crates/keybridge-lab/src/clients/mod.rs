//! Clients of agents and bridges that speak the protocols by hand.

mod assuan;
mod assuan_async;
mod every_line;
mod ssh;

pub use assuan::Client;
pub use assuan_async::{AsyncClient, dial};
pub use every_line::{FORBIDDEN, lines, send_all, verbs};
pub use ssh::{FAILURE, NO_KEYS, SUCCESS, SshClient};
