//! Questions of a login, such as for a password: ssh runs this program to ask them (`SSH_ASKPASS`), and it
//! passes them on to the `up` that waits at a terminal. The bridge in between never sees an answer.
//!
//! ```text
//! ssh ── starts ──▶ keybridge PROMPT ── socket in a private folder ──▶ keybridge up ──▶ terminal
//! ```
//!
//! One question is asked at a time. The progress of several targets makes room for it.

mod asker;
mod program;
mod terminal;

use std::path::{Path, PathBuf};

pub use asker::Asker;
pub use program::{is_wanted, run};
pub(crate) use terminal::{Terminal, Typed};

/// Tells this program that it was started to ask a question, and through which socket.
pub(crate) const SOCKET_VARIABLE: &str = "KEYBRIDGE_ASKPASS_SOCKET";

/// The longest question that is shown, and the longest answer that is passed on.
const LIMIT: u64 = 8 * 1024;

/// Stands behind a question, which is an argument and so can't contain it. A pipe of Windows can't be closed
/// in one direction.
const QUESTION_END: u8 = 0;

/// Stands before an answer; an end without it means that there is none.
const ANSWERED: u8 = b'+';

/// Beside the socket: locked while a question is open.
fn lock_of(socket: &Path) -> PathBuf {
    socket.with_file_name("asking")
}

/// Whether a person is being asked through a socket right now.
pub(crate) fn is_asking(socket: &Path) -> bool {
    let Ok(lock) = std::fs::File::open(lock_of(socket)) else { return false };
    lock.try_lock().is_err()
}
