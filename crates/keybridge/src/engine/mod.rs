//! The engines that containers run in: Docker, and Podman, which speaks Docker's API. Their containers
//! are handled alike (`container`). What differs is here: how an engine is found and started, its
//! events and states, and its errors.

mod choose;
mod containers;
mod docker;
pub(crate) mod error;
mod labels;
mod podman;
mod private_folder;
mod private_service;

use std::fmt;
use std::io::ErrorKind as Io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error as EngineError;
use keybridge_link::LocalStream;
use keybridge_proto::printable;
use tokio::time::timeout;

use crate::checks::Check;
use crate::platform::{self, System};
use crate::{Error, ErrorKind, Result};
pub(crate) use labels::{LabelEvent, LabelOrigin};
use private_service::PrivateService;

/// How long an engine may take to answer.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Docker or Podman.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
}

impl EngineKind {
    /// The program that a person types.
    pub(crate) const fn program(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Docker => "Docker",
            Self::Podman => "Podman",
        })
    }
}

/// An engine that containers run in. Each request makes a new connection, so a handle stays valid when
/// the engine restarts.
#[derive(Debug, Clone)]
pub struct Engine {
    kind: EngineKind,
    host: String,
    api: Docker,
    /// A service that we started because none was running. It ends with the last handle.
    service: Option<Arc<PrivateService>>,
}

/// The result of looking for an engine.
enum EngineSearch {
    /// It answers.
    Found(Engine),
    /// It doesn't answer. The engine too, if its address is valid.
    Unreachable(Error, Option<Engine>),
    /// The host has none.
    Missing(Error),
}

impl Engine {
    /// Finds an engine of this kind as its own program does, and checks that it answers.
    pub async fn of_kind(kind: EngineKind) -> Result<Self> {
        let found = match kind {
            EngineKind::Docker => docker::seek().await,
            EngineKind::Podman => podman::seek().await,
        };
        match found {
            EngineSearch::Found(engine) => Ok(engine),
            EngineSearch::Unreachable(error, _) | EngineSearch::Missing(error) => Err(error),
        }
    }

    /// The engine of this kind, if this user has one. One that doesn't answer is an error.
    pub(crate) async fn in_use(kind: EngineKind) -> Result<Option<Self>> {
        let found = match kind {
            EngineKind::Docker => docker::seek().await,
            EngineKind::Podman => podman::seek_used().await,
        };
        match found {
            EngineSearch::Found(engine) => Ok(Some(engine)),
            EngineSearch::Unreachable(error, _) => Err(error),
            EngineSearch::Missing(_) => Ok(None),
        }
    }

    /// Connects to the engine at an address, `unix://PATH` or `tcp://HOST:PORT`, and checks that it
    /// answers.
    pub async fn connect_to(kind: EngineKind, host: &str) -> Result<Self> {
        let engine = Self::at(kind, host)?;
        engine.answers().await?;
        Ok(engine)
    }

    /// Docker or Podman.
    pub const fn kind(&self) -> EngineKind {
        self.kind
    }

    /// The engine at an address, which may not be running.
    fn at(kind: EngineKind, host: &str) -> Result<Self> {
        let api = Docker::connect_with_host(host).map_err(|error| match error {
            EngineError::SocketNotFoundError(_) => no_socket(kind, host),
            other => {
                away(kind, host, &printable(&other.to_string())).hint(error::usable_hosts(kind))
            }
        })?;
        Ok(Self { kind, host: host.to_owned(), api, service: None })
    }

    async fn answers(&self) -> Result<()> {
        match timeout(ANSWER_TIME, self.api.ping()).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.away(&error)),
            Err(_) => Err(self.silent()),
        }
    }

    /// The engine's version.
    pub(crate) async fn version(&self) -> Result<String> {
        let asked = self.api().await?.version();
        match tokio::time::timeout(ANSWER_TIME, asked).await {
            Ok(Ok(version)) => Ok(printable(&version.version.unwrap_or_default()).to_string()),
            Ok(Err(error)) => Err(self.away(&error)),
            Err(_) => Err(self.silent()),
        }
    }

    /// Looks for an engine at an address.
    async fn seek_at(kind: EngineKind, host: &str) -> EngineSearch {
        match Self::at(kind, host) {
            Ok(engine) => match engine.answers().await {
                Ok(()) => EngineSearch::Found(engine),
                Err(error) => EngineSearch::Unreachable(error, Some(engine)),
            },
            Err(error) => EngineSearch::Unreachable(error, None),
        }
    }

    /// The API client. Starts our own service again if it has ended.
    pub(crate) async fn api(&self) -> Result<&Docker> {
        if let Some(service) = &self.service {
            // Boxed: it is seldom needed, and large.
            Box::pin(service.keep_running()).await?;
        }
        Ok(&self.api)
    }

    /// The address of the service that we started, if we did.
    pub(crate) fn own_service(&self) -> Option<&str> {
        self.service.as_ref().map(|_| self.host.as_str())
    }

    /// The engine's own command-line program, for this very engine.
    pub(crate) fn own_program(&self) -> std::process::Command {
        let mut program = std::process::Command::new(platform::program(self.kind.program()));
        match (self.kind, &self.service) {
            // The program finds the engine as we did.
            (EngineKind::Docker, _) | (EngineKind::Podman, Some(_)) => {}
            (EngineKind::Podman, None) => {
                program.args(["--remote", "--url", &self.host]);
            }
        }
        program
    }

    /// Explains why a request failed.
    pub(crate) fn away(&self, error: &EngineError) -> Error {
        let away = |why: &dyn fmt::Display| away(self.kind, &self.host, why);
        match error::io_kind(error) {
            Some(Io::PermissionDenied) => {
                away(&"you aren't allowed to use its socket").hint(&System::here().use_socket)
            }
            Some(Io::NotFound) => no_socket(self.kind, &self.host),
            Some(Io::ConnectionRefused) => {
                away(&"nothing answers there").hint(error::how_to_start(self.kind))
            }
            _ => away(&error::engine_message(error)),
        }
    }

    /// The error for an answer that took too long.
    pub(crate) fn silent(&self) -> Error {
        let program = self.kind.program();
        away(self.kind, &self.host, &format!("no answer within {} s", ANSWER_TIME.as_secs()))
            .hint(format!("see if `{program} info` answers; restart the engine if it doesn't"))
    }
}

/// Whether a process accepts connections at a socket. Its file may be left over from one that has ended.
async fn listens(socket: &Path) -> bool {
    matches!(timeout(ANSWER_TIME, LocalStream::connect(socket)).await, Ok(Ok(_)))
}

fn away(kind: EngineKind, host: &str, why: &dyn fmt::Display) -> Error {
    let message = format!("the {kind} engine at {}: {why}", printable(host));
    Error::new(ErrorKind::NoTarget, message).at_check(Check::Engine)
}

fn no_socket(kind: EngineKind, host: &str) -> Error {
    away(kind, host, &"there is no such socket").hint(error::how_to_name(kind))
}
