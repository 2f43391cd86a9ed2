//! Finding the Docker engine, and what its errors mean to a person.

use std::env;
use std::io::ErrorKind as Io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error as EngineError;
use keybridge_proto::printable;
use sha2::{Digest, Sha256};

use super::quoted;
use crate::{Error, ErrorKind, Result};

/// How long the engine may take to answer at all.
pub(super) const ANSWER_TIME: Duration = Duration::from_secs(10);

/// An engine that containers run in. It is dialled anew for each question, so a handle outlives a
/// restart of the engine.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(super) api: Docker,
    host: String,
}

impl Engine {
    /// Connects to the engine that the user's own `docker` talks to, and sees that it answers.
    pub async fn connect() -> Result<Self> {
        Self::connect_to(&find_host()).await
    }

    /// Connects to the engine at an address, `unix://PATH` or `tcp://HOST:PORT`, and sees that it
    /// answers.
    pub async fn connect_to(host: &str) -> Result<Self> {
        let api = Docker::connect_with_host(host).map_err(|error| match error {
            EngineError::SocketNotFoundError(_) => no_socket(host),
            other => away(host, &printable(&other.to_string()))
                .hint("DOCKER_HOST and the docker context can name unix:// and tcp:// engines"),
        })?;
        let engine = Self { api, host: host.to_owned() };
        match tokio::time::timeout(ANSWER_TIME, engine.api.ping()).await {
            Ok(Ok(_)) => Ok(engine),
            Ok(Err(error)) => Err(engine.away(&error)),
            Err(_) => Err(engine.silent()),
        }
    }

    /// What it means to a person that a question was not answered.
    pub(super) fn away(&self, error: &EngineError) -> Error {
        match io_kind(error) {
            Some(Io::PermissionDenied) => away(&self.host, &"you have no right to use its socket")
                .hint("add yourself to the group that owns it (usually docker) and log in again"),
            Some(Io::NotFound) => no_socket(&self.host),
            Some(Io::ConnectionRefused) => away(&self.host, &"nothing answers there")
                .hint("start Docker: systemctl start docker, say"),
            _ => away(&self.host, &words(error)),
        }
    }

    /// What it means to a person that an answer took too long.
    pub(super) fn silent(&self) -> Error {
        away(&self.host, &format!("no answer within {} s", ANSWER_TIME.as_secs()))
            .hint("see if `docker info` answers; restart the engine if it doesn't")
    }
}

fn away(host: &str, why: &dyn std::fmt::Display) -> Error {
    let message = format!("the Docker engine at {}: {why}", printable(host));
    Error::new(ErrorKind::NoTarget, message)
}

fn no_socket(host: &str) -> Error {
    away(host, &"there is no such socket")
        .hint("start Docker, or name its engine with DOCKER_HOST or `docker context use`")
}

/// `DOCKER_HOST`, the current context, or the first usual socket that is there.
fn find_host() -> String {
    if let Some(host) = env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty()) {
        return host;
    }
    let home = env::var_os("HOME").map(PathBuf::from);
    let config = env::var_os("DOCKER_CONFIG")
        .map(PathBuf::from)
        .or_else(|| home.as_ref().map(|home| home.join(".docker")));
    if let Some(host) = config.as_deref().and_then(host_of_context) {
        return host;
    }
    let runtime =
        env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("docker.sock"));
    let desktop = home.iter().flat_map(|home| {
        [home.join(".docker/run/docker.sock"), home.join(".docker/desktop/docker.sock")]
    });
    let usual = PathBuf::from("/var/run/docker.sock");
    let there =
        [usual.clone()].into_iter().chain(runtime).chain(desktop).find(|path| path.exists());
    format!("unix://{}", there.unwrap_or(usual).display())
}

/// The engine of the current docker context, if one other than the default is set.
fn host_of_context(config: &Path) -> Option<String> {
    let read = |path: PathBuf| -> Option<serde_json::Value> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    };
    let name = env::var("DOCKER_CONTEXT").ok().filter(|name| !name.is_empty()).or_else(|| {
        let config = read(config.join("config.json"))?;
        Some(config.get("currentContext")?.as_str()?.to_owned())
    })?;
    let folder = format!("{:x}", Sha256::digest(&name));
    let meta = read(config.join("contexts/meta").join(folder).join("meta.json"))?;
    Some(meta.pointer("/Endpoints/docker/Host")?.as_str()?.to_owned())
}

/// What an error means when a container was asked for.
pub(super) fn explain_container(wanted: &str, error: &EngineError) -> Error {
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
pub(super) fn explain_exec(name: &str, user: Option<&str>, said: &str) -> Option<Error> {
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
pub(super) fn words(error: &EngineError) -> String {
    match error {
        EngineError::DockerResponseServerError { message, .. } => printable(message).to_string(),
        other => printable(&other.to_string()).to_string(),
    }
}

/// What the operating system said, if it was that.
fn io_kind(error: &EngineError) -> Option<Io> {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = source {
        if let Some(io) = error.downcast_ref::<std::io::Error>() {
            return Some(io.kind());
        }
        source = error.source();
    }
    None
}
