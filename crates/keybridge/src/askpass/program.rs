//! The program that ssh starts to ask a question.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use super::{ANSWERED, LIMIT, QUESTION_END, SOCKET_VARIABLE, lock_of};
use crate::platform::ask_listener;

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

fn ask(socket: &Path, kind: &OsString, question: &OsString) -> io::Result<Option<Vec<u8>>> {
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
