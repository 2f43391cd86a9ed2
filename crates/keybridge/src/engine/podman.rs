//! Finds Podman: at its socket, or through a service that we start.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::process::Command;

use crate::engine::private_service::PrivateService;
use crate::engine::{ANSWER_TIME, Engine, EngineKind, EngineSearch, listens};
use crate::platform::{self, System, expand, find_program, is_root, runtime_folder, variable};
use crate::program;
use crate::{Error, ErrorKind, Result};

/// The exit status alone says whether a container exists.
const OUTPUT_LIMIT: usize = 4096;

/// How Podman can be reached.
pub(crate) enum PodmanAccess {
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
pub(crate) async fn seek() -> EngineSearch {
    seek_by(PodmanAccess::find().await).await
}

/// Looks for Podman's engine, if it may have containers.
pub(crate) async fn seek_used() -> EngineSearch {
    seek_by(PodmanAccess::find_used().await).await
}

/// Looks for Podman's engine in a known way.
pub(crate) async fn seek_by(access: PodmanAccess) -> EngineSearch {
    match access {
        PodmanAccess::Named(host) => Engine::seek_at(EngineKind::Podman, &host).await,
        PodmanAccess::Socket(path) => {
            Engine::seek_at(EngineKind::Podman, &System::here().engine_host(&path)).await
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
    pub(crate) async fn find() -> Self {
        if let Some(host) = env::var("CONTAINER_HOST").ok().filter(|host| !host.is_empty()) {
            return Self::Named(host);
        }
        for socket in usual_sockets(System::here(), variable) {
            if listens(&socket).await {
                return Self::Socket(socket);
            }
        }
        // Elsewhere the program only talks to a machine that isn't running.
        let has_service = System::here().is_linux && find_program("podman").is_some();
        if has_service { Self::Program } else { Self::Missing }
    }

    /// How Podman can be reached if the address doesn't name it. Its program isn't run for a user who has
    /// never used it: it would create folders and leave a process behind.
    pub(crate) async fn find_used() -> Self {
        match Self::find().await {
            Self::Program if !was_used() => Self::Unused,
            access => access,
        }
    }
}

/// Where Podman's socket may be if it runs as a service: one for root, and one for each user.
fn usual_sockets(system: &System, variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    if is_root() {
        return expand(system.podman_sockets_of_root, variable);
    }
    expand(system.podman_sockets, |name| match (name, variable(name)) {
        ("XDG_RUNTIME_DIR", None) => runtime_folder(),
        (_, value) => value,
    })
}

/// Whether this user may have containers in Podman: it stores containers, and the state of running ones,
/// in these folders.
fn was_used() -> bool {
    let folder =
        |name: &str| env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    if folder("CONTAINERS_STORAGE_CONF").is_some() {
        return true;
    }
    let folders = if is_root() {
        [Some("/var/lib/containers".into()), Some("/run/containers".into()), None]
    } else {
        [
            folder("XDG_DATA_HOME").map(|data| data.join("containers")),
            variable("HOME").map(|home| PathBuf::from(home).join(".local/share/containers")),
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
pub(crate) async fn lacks(name: &str) -> bool {
    let mut command = Command::new(platform::program("podman"));
    command.args(["container", "exists", name]);
    // For anything else the API has a better error.
    let asked = program::run(command, OUTPUT_LIMIT, ANSWER_TIME).await;
    asked.is_ok_and(|output| output.status.code() == Some(1))
}

fn missing() -> Error {
    let system = System::here();
    let sockets = usual_sockets(system, variable);
    let socket = sockets.first().map(|path| path.display().to_string()).unwrap_or_default();
    let failed = |message| Error::new(ErrorKind::NoTarget, message);
    if system.is_linux {
        failed(format!("can't find Podman: no socket {socket} and no program podman"))
            .hint("install Podman, or name its engine with CONTAINER_HOST")
    } else {
        failed(format!("can't find Podman: nothing listens at {socket}"))
            .hint(&system.start_podman)
            .hint("or name its engine with CONTAINER_HOST")
    }
}

fn unused() -> Error {
    Error::new(ErrorKind::NoTarget, "you haven't used Podman yet")
        .hint("podman ps -a lists its containers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_apple_the_socket_of_the_machine_is_looked_for_whoever_asks() {
        let variable = |name: &str| match name {
            "TMPDIR" => Some(OsString::from("/var/folders/x/y/T")),
            "HOME" => Some("/Users/ann".into()),
            _ => None,
        };
        let sockets = usual_sockets(System::of("macos"), variable);
        let expected = [
            "/var/folders/x/y/T/podman/podman-machine-default-api.sock",
            "/Users/ann/.local/share/containers/podman/machine/podman.sock",
            "/Users/ann/.local/share/containers/podman/machine/podman-machine-default/podman.sock",
        ];
        assert_eq!(sockets, expected.map(PathBuf::from));
    }

    crate::platform::tests_on_unix! {
    #[test]
    fn on_linux_root_and_each_user_have_one_socket() {
        let expected = if is_root() {
            "/run/podman/podman.sock".to_owned()
        } else {
            format!("/run/user/{}/podman/podman.sock", crate::platform::user_tag())
        };
        assert_eq!(usual_sockets(System::of("linux"), |_| None), [PathBuf::from(expected)]);
    }
    }
}
