//! The engines that containers run in.

mod docker;
pub(super) mod explain;
mod labelled;

use std::io::ErrorKind as Io;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error as EngineError;
use keybridge_proto::printable;

use crate::{Error, ErrorKind, Result};
pub use labelled::LabelNews;

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
        Self::connect_to(&docker::find_host()).await
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
        match explain::io_kind(error) {
            Some(Io::PermissionDenied) => away(&self.host, &"you have no right to use its socket")
                .hint("add yourself to the group that owns it (usually docker) and log in again"),
            Some(Io::NotFound) => no_socket(&self.host),
            Some(Io::ConnectionRefused) => away(&self.host, &"nothing answers there")
                .hint("start Docker: systemctl start docker, say"),
            _ => away(&self.host, &explain::words(error)),
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
