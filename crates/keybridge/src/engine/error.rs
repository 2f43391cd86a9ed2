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

/// Explains why a command could not be run in a container. The engine reports that through its API or in
/// the command's own output, and only as text.
pub(crate) fn explain_exec(
    kind: EngineKind,
    name: &str,
    user: Option<&str>,
    message: &str,
) -> Option<Error> {
    let (shown, program) = (printable(name), kind.program());
    if message.contains("unable to find user") || message.contains("no matching entries in passwd")
    {
        let user = printable(user.unwrap_or_default());
        let problem = format!("there is no user {user} in the container {shown}");
        let list = format!("{program} exec {} cat /etc/passwd", quoted(name));
        return Some(
            Error::new(ErrorKind::NoUser, problem)
                .hint(format!("{list} lists its users; choose one with --user")),
        );
    }
    // runc and crun print different texts.
    let says = |text: &str| message.to_ascii_lowercase().contains(text);
    if (says("\"sh\"") || says("`sh`")) && (says(" not found") || says("no such file or directory"))
    {
        let problem = format!("the container {shown} has no shell");
        return Some(Error::new(ErrorKind::NoShell, problem));
    }
    if says("exec format error") {
        let problem = format!("the programs of the container {shown} can't be run on its engine");
        return Some(Error::new(ErrorKind::WrongProcessor, problem));
    }
    let away = ["is not running", "is paused", "on running containers"];
    if away.iter().any(|text| message.contains(text)) {
        let problem = format!("the container {shown}: {message}");
        let hint = format!("{program} ps -a shows its state");
        return Some(Error::new(ErrorKind::NoTarget, problem).hint(hint));
    }
    None
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
