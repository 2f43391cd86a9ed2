//! Finds Podman: at its socket, or through a service that we start.

use std::env;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::timeout;

use super::private_service::PrivateService;
use super::{ANSWER_TIME, Engine, EngineKind, EngineSearch};
use crate::{Error, ErrorKind, Result};

/// How Podman can be reached.
pub(super) enum PodmanAccess {
    /// At the address that the user has named.
    Named(String),
    /// At its socket, where it answers.
    Socket(PathBuf),
    /// Only through its program, since Podman needs no daemon.
    Program,
    /// Not at all: it isn't installed.
    Missing,
    /// Not at all: this user has never used it.
    Unused,
}

/// Looks for Podman's engine. A service that is started for it ends with us.
pub(super) async fn seek() -> EngineSearch {
    seek_by(PodmanAccess::find().await).await
}

/// Looks for Podman's engine, if it may have containers.
pub(super) async fn seek_used() -> EngineSearch {
    seek_by(PodmanAccess::find_used().await).await
}

/// Looks for Podman's engine in a known way.
pub(super) async fn seek_by(access: PodmanAccess) -> EngineSearch {
    match access {
        PodmanAccess::Named(host) => Engine::seek_at(EngineKind::Podman, &host).await,
        PodmanAccess::Socket(path) => {
            Engine::seek_at(EngineKind::Podman, &format!("unix://{}", path.display())).await
        }
        PodmanAccess::Program => match by_own_service().await {
            Ok(engine) => EngineSearch::Found(engine),
            Err(error) => EngineSearch::Unreachable(error, None),
        },
        PodmanAccess::Missing => EngineSearch::Missing(missing()),
        PodmanAccess::Unused => EngineSearch::Missing(unused()),
    }
}

impl PodmanAccess {
    pub(super) async fn find() -> Self {
        if let Some(host) = env::var("CONTAINER_HOST").ok().filter(|host| !host.is_empty()) {
            return Self::Named(host);
        }
        let socket = usual_socket();
        // A socket file may be left over from a service that has ended.
        if matches!(timeout(ANSWER_TIME, UnixStream::connect(&socket)).await, Ok(Ok(_))) {
            return Self::Socket(socket);
        }
        if has_program() { Self::Program } else { Self::Missing }
    }

    /// How Podman can be reached if the address doesn't name it. Its program isn't run for a user who has
    /// never used it: it would create folders and leave a process behind.
    pub(super) async fn find_used() -> Self {
        match Self::find().await {
            Self::Program if !was_used() => Self::Unused,
            access => access,
        }
    }
}

/// Where Podman's socket is if it runs as a service: one for root, and one for each user.
fn usual_socket() -> PathBuf {
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return "/run/podman/podman.sock".into();
    }
    let runtime = env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let runtime =
        runtime.map_or_else(|| format!("/run/user/{}", uid.as_raw()).into(), PathBuf::from);
    runtime.join("podman/podman.sock")
}

fn has_program() -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join("podman").is_file())
}

/// Whether this user may have containers in Podman: it stores containers, and the state of running ones,
/// in these folders.
fn was_used() -> bool {
    let folder =
        |name: &str| env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    if folder("CONTAINERS_STORAGE_CONF").is_some() {
        return true;
    }
    let folders = if rustix::process::geteuid().is_root() {
        [Some("/var/lib/containers".into()), Some("/run/containers".into()), None]
    } else {
        [
            folder("XDG_DATA_HOME").map(|data| data.join("containers")),
            folder("HOME").map(|home| home.join(".local/share/containers")),
            folder("XDG_RUNTIME_DIR").map(|runtime| runtime.join("containers")),
        ]
    };
    folders.into_iter().flatten().any(|folder| folder.is_dir())
}

async fn by_own_service() -> Result<Engine> {
    let service = PrivateService::start().await?;
    let engine = Engine::at(EngineKind::Podman, &service.host())?;
    engine.answers().await?;
    Ok(Engine { service: Some(Arc::new(service)), ..engine })
}

/// Whether Podman's program says that there is no such container. That is quicker than to start a
/// service.
pub(super) async fn lacks(name: &str) -> bool {
    let asked = Command::new("podman")
        .args(["container", "exists", name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status();
    // For anything else the API has a better error.
    matches!(timeout(ANSWER_TIME, asked).await, Ok(Ok(status)) if status.code() == Some(1))
}

fn missing() -> Error {
    let socket = usual_socket();
    let message =
        format!("can't find Podman: no socket {} and no program podman", socket.display());
    Error::new(ErrorKind::NoTarget, message)
        .hint("install Podman, or name its engine with CONTAINER_HOST")
}

fn unused() -> Error {
    Error::new(ErrorKind::NoTarget, "you haven't used Podman yet")
        .hint("podman ps -a lists its containers")
}
