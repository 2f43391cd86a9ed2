//! What the errors of an engine mean to a person.

use std::io::ErrorKind as Io;

use bollard::errors::Error as EngineError;
use keybridge_proto::printable;

use super::EngineKind;
use crate::target::quoted;
use crate::{Error, ErrorKind};

/// What the engine's answer means when a container was asked for that may be there.
pub(super) fn explain_container(wanted: &str, error: &EngineError) -> Error {
    let shown = printable(wanted);
    let refused = |message| Error::new(ErrorKind::NoTarget, message);
    if is_ambiguous(error) {
        refused(format!("more than one container has an id that begins with {shown}"))
            .hint("write more of the id, or the name")
    } else {
        refused(format!("the container {shown}: {}", words(error)))
    }
}

/// What it means that an engine has no such container.
pub(in crate::target) fn no_container(kind: EngineKind, wanted: &str) -> Error {
    let message = format!("there is no container {} in {kind}", printable(wanted));
    let hint = format!("{} ps lists those that run", kind.program());
    Error::new(ErrorKind::NoTarget, message).hint(hint)
}

/// What it means that a command could not be run in a container. The engine says so by its API, or in
/// the command's own output.
pub(in crate::target) fn explain_exec(
    kind: EngineKind,
    name: &str,
    user: Option<&str>,
    said: &str,
) -> Option<Error> {
    let (shown, program) = (printable(name), kind.program());
    if said.contains("unable to find user") || said.contains("no matching entries in passwd") {
        let user = printable(user.unwrap_or_default());
        let message = format!("there is no user {user} in the container {shown}");
        let list = format!("{program} exec {} cat /etc/passwd", quoted(name));
        return Some(
            Error::new(ErrorKind::NoUser, message)
                .hint(format!("{list} lists its users; choose one with --user")),
        );
    }
    // In the words of runc and of crun.
    let says = |text: &str| said.to_ascii_lowercase().contains(text);
    if (says("\"sh\"") || says("`sh`")) && (says(" not found") || says("no such file or directory"))
    {
        let message = format!("the container {shown} has no shell");
        return Some(Error::new(ErrorKind::NoShell, message));
    }
    let away = ["is not running", "is paused", "on running containers"];
    if away.iter().any(|words| said.contains(words)) {
        let message = format!("the container {shown}: {said}");
        let hint = format!("{program} ps -a shows its state");
        return Some(Error::new(ErrorKind::NoTarget, message).hint(hint));
    }
    None
}

/// Whether an error says that the engine has no such container.
pub(super) fn is_unknown(error: &EngineError) -> bool {
    matches!(error, EngineError::DockerResponseServerError { status_code: 404, .. })
        && !is_ambiguous(error)
}

/// Whether an error says that several containers have an id with that beginning. Podman says so as if
/// there were none.
fn is_ambiguous(error: &EngineError) -> bool {
    let EngineError::DockerResponseServerError { message, .. } = error else { return false };
    let message = message.to_ascii_lowercase();
    message.contains("multiple ids found") || message.contains("more than one result")
}

/// What can name an engine, and which addresses can be used.
pub(super) const fn usable_hosts(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Docker => {
            "DOCKER_HOST and the docker context can name unix:// and tcp:// engines"
        }
        EngineKind::Podman => "CONTAINER_HOST can name unix:// and tcp:// engines",
    }
}

/// How an engine that isn't there is started, or another one named.
pub(super) const fn how_to_name(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Docker => {
            "start Docker, or name its engine with DOCKER_HOST or `docker context use`"
        }
        EngineKind::Podman => "name Podman's socket with CONTAINER_HOST, or leave that unset",
    }
}

/// How an engine that is there and doesn't run is started.
pub(super) const fn how_to_start(kind: EngineKind) -> &'static str {
    match kind {
        EngineKind::Docker => "start Docker: systemctl start docker, say",
        EngineKind::Podman => "start Podman's socket: systemctl --user start podman.socket, say",
    }
}

/// The engine's own words, which can hold names from a container.
pub(in crate::target) fn words(error: &EngineError) -> String {
    match error {
        EngineError::DockerResponseServerError { message, .. } => printable(message).to_string(),
        other => {
            // The innermost cause is the one that a person can do something about.
            let mut cause: &dyn std::error::Error = other;
            while let Some(source) = cause.source() {
                cause = source;
            }
            printable(&cause.to_string()).to_string()
        }
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
