//! Questions of a login, such as for a password: ssh runs this program to ask them (`SSH_ASKPASS`), and it
//! passes them on to the `up` that waits at a terminal. The bridge in between never sees an answer.
//!
//! ```text
//! ssh ── starts ──▶ keybridge PROMPT ── socket in a private folder ──▶ keybridge up ──▶ terminal
//! ```
//!
//! One question is asked at a time. The progress of several targets makes room for it.

mod asker;
mod terminal;

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use crate::platform::ask_listener;
pub(crate) use asker::Asker;
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

/// Whether this process was started to ask a question: with one argument, and with a socket to ask through.
pub fn is_wanted() -> bool {
    std::env::var_os(SOCKET_VARIABLE).is_some() && std::env::args_os().len() == 2
}

/// Asks the question, and prints the answer. False if there is none.
pub fn run() -> bool {
    let socket = std::env::var_os(SOCKET_VARIABLE).unwrap_or_default();
    let question = std::env::args_os().nth(1).unwrap_or_default();
    let kind = std::env::var_os("SSH_ASKPASS_PROMPT").unwrap_or_default();
    match ask(Path::new(&socket), &kind, &question) {
        Ok(Some(answer)) => io::stdout().write_all(&answer).is_ok(),
        Ok(None) | Err(_) => false,
    }
}

fn ask(socket: &Path, kind: &OsStr, question: &OsStr) -> io::Result<Option<Vec<u8>>> {
    let lock = File::open(lock_of(socket))?;
    lock.lock_shared()?;
    let mut stream = ask_listener(socket)?;
    stream.write_all(kind.as_encoded_bytes())?;
    stream.write_all(b"\n")?;
    stream.write_all(question.as_encoded_bytes())?;
    stream.write_all(&[QUESTION_END])?;
    let mut answer = Vec::new();
    stream.take(LIMIT).read_to_end(&mut answer)?;
    if answer.first() != Some(&ANSWERED) {
        return Ok(None);
    }
    answer.remove(0);
    answer.push(b'\n');
    Ok(Some(answer))
}

/// Beside the socket: locked while a question is open.
fn lock_of(socket: &Path) -> PathBuf {
    socket.with_file_name("asking")
}

/// Whether a person is being asked through a socket right now.
pub(crate) fn is_asking(socket: &Path) -> bool {
    let Ok(lock) = File::open(lock_of(socket)) else { return false };
    lock.try_lock().is_err()
}
