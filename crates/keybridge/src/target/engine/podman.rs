//! Where Podman answers: at a socket, or by a service that is started for us.

use std::env;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::timeout;

use super::private_service::PrivateService;
use super::{ANSWER_TIME, Engine, EngineKind, Sought};
use crate::{Error, ErrorKind, Result};

/// A way to Podman.
pub(super) enum Way {
    /// An engine that the user has named.
    Named(String),
    /// Its socket, at which somebody answers.
    Socket(PathBuf),
    /// Its program alone, since Podman needs nothing that runs all the time.
    Program,
    /// None, since it isn't here.
    Nowhere,
    /// None, since nobody has used it.
    Unused,
}

/// Looks for Podman's engine. A service that is started for it ends with us.
pub(super) async fn seek() -> Sought {
    seek_by(Way::find().await).await
}

/// Looks for Podman's engine, if it may have containers.
pub(super) async fn seek_used() -> Sought {
    seek_by(Way::find_used().await).await
}

/// Looks for Podman's engine by a way that was found.
pub(super) async fn seek_by(way: Way) -> Sought {
    match way {
        Way::Named(host) => Engine::seek_at(EngineKind::Podman, &host).await,
        Way::Socket(path) => {
            Engine::seek_at(EngineKind::Podman, &format!("unix://{}", path.display())).await
        }
        Way::Program => match by_own_service().await {
            Ok(engine) => Sought::There(engine),
            Err(error) => Sought::Away(error, None),
        },
        Way::Nowhere => Sought::Missing(missing()),
        Way::Unused => Sought::Missing(unused()),
    }
}

impl Way {
    pub(super) async fn find() -> Self {
        if let Some(host) = env::var("CONTAINER_HOST").ok().filter(|host| !host.is_empty()) {
            return Self::Named(host);
        }
        let socket = usual_socket();
        // A socket that was left behind is no way.
        if matches!(timeout(ANSWER_TIME, UnixStream::connect(&socket)).await, Ok(Ok(_))) {
            return Self::Socket(socket);
        }
        if has_program() { Self::Program } else { Self::Nowhere }
    }

    /// A way to Podman for one who hasn't named it. Its program is not run for a user who has never
    /// done so: it would make folders, and leave a process behind.
    pub(super) async fn find_used() -> Self {
        match Self::find().await {
            Self::Program if !was_used() => Self::Unused,
            way => way,
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

/// Whether Podman may have containers of this user's: it keeps them in one of these folders, or says
/// there what runs since the machine was started.
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

/// Whether Podman's program says that there is no such container: quicker than a service that is
/// started to be asked.
pub(super) async fn lacks(name: &str) -> bool {
    let asked = Command::new("podman")
        .args(["container", "exists", name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .status();
    // Whatever else it says is told better by its API.
    matches!(timeout(ANSWER_TIME, asked).await, Ok(Ok(status)) if status.code() == Some(1))
}

fn missing() -> Error {
    let socket = usual_socket();
    let message = format!("Podman: no socket {} and no program podman", socket.display());
    Error::new(ErrorKind::NoTarget, message)
        .hint("install Podman, or name its engine with CONTAINER_HOST")
}

fn unused() -> Error {
    Error::new(ErrorKind::NoTarget, "Podman: you have not used it yet")
        .hint("podman ps -a lists its containers")
}
