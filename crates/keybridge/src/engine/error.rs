//! Explains errors of an engine to a person.

use std::io::ErrorKind as Io;

use bollard::errors::Error as EngineError;
use keybridge_proto::printable;

use crate::checks::Check;
use crate::engine::EngineKind;
use crate::platform::System;
use crate::shell_quote::quoted;
use crate::{Error, ErrorKind, Hint};

/// The error for a container that the engine may have but doesn't describe.
pub(crate) fn explain_container(wanted: &str, error: &EngineError) -> Error {
    let shown = printable(wanted);
    let refused = |message| Error::new(ErrorKind::NoTarget, message);
    if is_ambiguous(error) {
        refused(format!("more than one container has an id that begins with {shown}"))
            .hint("write more of the id, or the name")
    } else {
        refused(format!("the container {shown}: {}", engine_message(error)))
    }
}

/// The error for a container that an engine doesn't have.
pub(crate) fn no_container(kind: EngineKind, wanted: &str) -> Error {
    let message = format!("there is no container {} in {kind}", printable(wanted));
    let hint = format!("{} ps lists those that run", kind.program());
    Error::new(ErrorKind::NoTarget, message).hint(hint).at_check(Check::Target)
}

/// Why a command could not be run in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotRun {
    NoUser,
    NoShell,
    /// The engine's machine can't run its programs.
    WrongProcessor,
    /// The container doesn't run.
    Away,
}

impl NotRun {
    /// Finds the reason in the words of an engine or of its runtime: in its answer or in the command's own
    /// output, and only as text.
    pub(crate) fn find(words: &str) -> Option<Self> {
        // runc and crun print different texts.
        let lower_case = words.to_ascii_lowercase();
        let says = |text: &str| lower_case.contains(text);
        let says_any = |texts: &[&str]| texts.iter().any(|text| words.contains(text));
        if says_any(&["unable to find user", "no matching entries in passwd"]) {
            Some(Self::NoUser)
        } else if (says("\"sh\"") || says("`sh`"))
            && (says(" not found") || says("no such file or directory"))
        {
            Some(Self::NoShell)
        } else if says("exec format error") {
            Some(Self::WrongProcessor)
        } else if says_any(&["is not running", "is paused", "on running containers"]) {
            Some(Self::Away)
        } else {
            None
        }
    }

    /// The error for a command of this user in a container; `said` is the one that nothing is known about.
    pub(crate) fn error(
        self,
        kind: EngineKind,
        name: &str,
        user: Option<&str>,
        said: &Error,
    ) -> Error {
        let (shown, program) = (printable(name), kind.program());
        match self {
            Self::NoUser => {
                let user = printable(user.unwrap_or_default());
                let problem = format!("there is no user {user} in the container {shown}");
                let list = format!("{program} exec {} cat /etc/passwd", quoted(name));
                Error::new(ErrorKind::NoUser, problem)
                    .hint(format!("{list} lists its users; choose one with --user"))
            }
            Self::NoShell => {
                Error::new(ErrorKind::NoShell, format!("the container {shown} has no shell"))
            }
            Self::WrongProcessor => Error::new(
                ErrorKind::WrongProcessor,
                format!("the programs of the container {shown} can't be run on its engine"),
            ),
            Self::Away => Error::new(ErrorKind::NoTarget, format!("the container {shown}: {said}"))
                .hint(format!("{program} ps -a shows its state")),
        }
    }
}

/// Whether an error says that the engine has no such container.
pub(crate) fn is_unknown(error: &EngineError) -> bool {
    matches!(error, EngineError::DockerResponseServerError { status_code: 404, .. })
        && !is_ambiguous(error)
}

/// Whether an error says that several ids begin with the given text. Podman reports that with status 404
/// too.
fn is_ambiguous(error: &EngineError) -> bool {
    let EngineError::DockerResponseServerError { message, .. } = error else { return false };
    let message = message.to_ascii_lowercase();
    message.contains("multiple ids found") || message.contains("more than one result")
}

/// Which addresses of an engine can be used, and where they are set.
pub(crate) const fn usable_hosts(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Docker => {
            "DOCKER_HOST and the docker context can name unix:// and tcp:// engines"
        }
        EngineKind::Podman => "CONTAINER_HOST can name unix:// and tcp:// engines",
    }
}

/// The hint for an engine without a socket.
pub(crate) const fn how_to_name(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Docker => {
            "start Docker, or name its engine with DOCKER_HOST or `docker context use`"
        }
        EngineKind::Podman => "name Podman's socket with CONTAINER_HOST, or leave that unset",
    }
}

/// The hint for an engine that doesn't run.
pub(crate) fn how_to_start(kind: EngineKind) -> &'static Hint {
    let system = System::here();
    match kind {
        EngineKind::Docker => &system.start_docker,
        EngineKind::Podman => &system.start_podman,
    }
}

/// The engine's own error message. It can contain names that a container has chosen.
pub(crate) fn engine_message(error: &EngineError) -> String {
    match error {
        EngineError::DockerResponseServerError { message, .. } => printable(message).to_string(),
        other => {
            // The innermost cause is the one that a person can fix.
            let mut cause: &dyn std::error::Error = other;
            while let Some(source) = cause.source() {
                cause = source;
            }
            printable(&cause.to_string()).to_string()
        }
    }
}

/// The error of the operating system, if that was the cause.
pub(crate) fn io_kind(error: &EngineError) -> Option<Io> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        source = error.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_found_in_the_words_of_every_runtime() {
        for (words, why) in [
            ("unable to find user x: no matching entries in passwd file", Some(NotRun::NoUser)),
            ("exec: \"sh\": executable file not found in $PATH", Some(NotRun::NoShell)),
            ("crun: executable file `sh` not found in $PATH", Some(NotRun::NoShell)),
            ("exec /x: exec format error", Some(NotRun::WrongProcessor)),
            ("Container 4711 is not running", Some(NotRun::Away)),
            ("can only create exec sessions on running containers", Some(NotRun::Away)),
            ("sh: 1: x: not found", None),
        ] {
            assert_eq!(NotRun::find(words), why, "{words}");
        }
    }
}
