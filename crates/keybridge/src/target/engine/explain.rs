//! What the errors of an engine mean to a person.

use std::io::ErrorKind as Io;

use bollard::errors::Error as EngineError;
use keybridge_proto::printable;

use crate::{Error, ErrorKind};

/// What an error means when a container was asked for.
pub(in crate::target) fn explain_container(wanted: &str, error: &EngineError) -> Error {
    let shown = printable(wanted);
    match error {
        EngineError::DockerResponseServerError { status_code: 404, .. } => {
            Error::new(ErrorKind::NoTarget, format!("there is no container {shown}"))
                .hint("docker ps lists those that run")
        }
        EngineError::DockerResponseServerError { message, .. } if is_ambiguous(message) => {
            let message = format!("more than one container has an id that begins with {shown}");
            Error::new(ErrorKind::NoTarget, message).hint("write more of the id, or the name")
        }
        other => {
            Error::new(ErrorKind::NoTarget, format!("the container {shown}: {}", words(other)))
        }
    }
}

/// What it means that a command could not be run in a container. The engine says so by its API, or in
/// the command's own output.
pub(in crate::target) fn explain_exec(name: &str, user: Option<&str>, said: &str) -> Option<Error> {
    let shown = printable(name);
    if said.contains("unable to find user") || said.contains("no matching entries in passwd") {
        let user = printable(user.unwrap_or_default());
        let message = format!("there is no user {user} in the container {shown}");
        let list = format!("docker exec {} cat /etc/passwd", quoted(name));
        return Some(
            Error::failed(message).hint(format!("{list} lists its users; choose one with --user")),
        );
    }
    if said.contains("is not running") || said.contains("is paused") {
        let message = format!("the container {shown}: {said}");
        return Some(Error::new(ErrorKind::NoTarget, message).hint("docker ps -a shows its state"));
    }
    None
}

fn is_ambiguous(message: &str) -> bool {
    message.to_ascii_lowercase().contains("multiple ids found")
}

/// The engine's own words, which can hold names from a container.
pub(in crate::target) fn words(error: &EngineError) -> String {
    match error {
        EngineError::DockerResponseServerError { message, .. } => printable(message).to_string(),
        other => printable(&other.to_string()).to_string(),
    }
}

/// What the operating system said, if it was that.
pub(super) fn io_kind(error: &EngineError) -> Option<Io> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        source = error.source();
    }
    None
}

/// A word as a shell takes it, for a command that a person may copy.
pub(in crate::target) fn quoted(word: &str) -> String {
    let plain = |character: char| character.is_ascii_alphanumeric() || "-_./:@".contains(character);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", printable(&word.replace('\'', "'\\''")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_in_a_fix_is_quoted() {
        assert_eq!(quoted("web-1"), "web-1");
        assert_eq!(quoted("a b; rm"), "'a b; rm'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert!(!quoted("\u{1b}[31m").contains('\u{1b}'));
    }
}
