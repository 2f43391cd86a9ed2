//! Where the user's own `docker` finds its engine.

use std::env;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::{Engine, EngineKind, EngineSearch, no_socket};

/// Looks for the engine at `DOCKER_HOST`, in the current context, or at the first usual socket that
/// is there.
pub(super) async fn seek() -> EngineSearch {
    let home = env::var_os("HOME").map(PathBuf::from);
    if let Some(host) = named_host(home.as_deref()) {
        return Engine::seek_at(EngineKind::Docker, &host).await;
    }
    let sockets = usual_sockets(home.as_deref());
    let there = sockets.iter().find(|path| path.exists());
    let host = |path: &Path| format!("unix://{}", path.display());
    match (there, sockets.first()) {
        (Some(path), _) => Engine::seek_at(EngineKind::Docker, &host(path)).await,
        (None, first) => {
            let first = first.map(|path| host(path)).unwrap_or_default();
            EngineSearch::Missing(no_socket(EngineKind::Docker, &first))
        }
    }
}

/// The address that the user has set.
fn named_host(home: Option<&Path>) -> Option<String> {
    if let Some(host) = env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty()) {
        return Some(host);
    }
    let config = env::var_os("DOCKER_CONFIG").map(PathBuf::from);
    host_of_context(&config.or_else(|| Some(home?.join(".docker")))?)
}

fn usual_sockets(home: Option<&Path>) -> Vec<PathBuf> {
    let runtime =
        env::var_os("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("docker.sock"));
    let desktop = home.into_iter().flat_map(|home| {
        [home.join(".docker/run/docker.sock"), home.join(".docker/desktop/docker.sock")]
    });
    [PathBuf::from("/var/run/docker.sock")].into_iter().chain(runtime).chain(desktop).collect()
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
