//! Where the user's own `docker` finds its engine.

use std::env;
use std::path::{Path, PathBuf};

use base16ct::HexDisplay;
use sha2::{Digest, Sha256};

use crate::engine::{Engine, EngineKind, EngineSearch, listens, no_socket};
use crate::platform::{System, expand, local_socket_exists, variable};

/// Looks for the engine at `DOCKER_HOST`, in the current context, or at the first usual socket that
/// is there.
pub(crate) async fn seek() -> EngineSearch {
    let home = variable("HOME").map(PathBuf::from);
    if let Some(host) = named_host(home.as_deref()) {
        return Engine::seek_at(EngineKind::Docker, &host).await;
    }
    let sockets = expand(System::here().docker_sockets, variable);
    let host = |path: &Path| System::here().engine_host(path);
    match (choose(&sockets, System::here()).await, sockets.first()) {
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

/// The first socket that is there. Where dead ones are passed over, the first at which a process listens
/// comes before that.
async fn choose<'a>(sockets: &'a [PathBuf], system: &System) -> Option<&'a Path> {
    let there: Vec<&Path> =
        sockets.iter().map(PathBuf::as_path).filter(|path| local_socket_exists(path)).collect();
    if system.skips_dead_sockets {
        for path in &there {
            if listens(path).await {
                return Some(path);
            }
        }
    }
    there.first().copied()
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
    let folder = format!("{:x}", HexDisplay(&Sha256::digest(&name)));
    let meta = read(config.join("contexts/meta").join(folder).join("meta.json"))?;
    Some(meta.pointer("/Endpoints/docker/Host")?.as_str()?.to_owned())
}

crate::platform::tests_on_unix! {
#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::fs::create_dir_all;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// The sockets of a system in a home that is made up, without those of the host itself.
    fn sockets_in(home: &Path, system: &System) -> Vec<PathBuf> {
        let variable = |name: &str| match name {
            "HOME" => Some(home.as_os_str().to_owned()),
            "COLIMA_HOME" => Some(home.join("colima").into()),
            _ => None::<OsString>,
        };
        let sockets = expand(system.docker_sockets, variable);
        sockets.into_iter().filter(|path| path.starts_with(home)).collect()
    }

    fn listen(home: &Path, socket: &str) -> (PathBuf, UnixListener) {
        let path = home.join(socket);
        create_dir_all(path.parent().unwrap()).unwrap();
        (path.clone(), UnixListener::bind(path).unwrap())
    }

    #[tokio::test]
    async fn every_product_for_apple_is_found_where_it_listens() {
        for product in [
            ".docker/run/docker.sock",
            ".orbstack/run/docker.sock",
            ".colima/default/docker.sock",
            "colima/default/docker.sock",
            ".rd/docker.sock",
        ] {
            let home = tempfile::tempdir().unwrap();
            let apple = System::of("macos");
            let sockets = sockets_in(home.path(), apple);
            assert_eq!(choose(&sockets, apple).await, None);
            let (path, _listener) = listen(home.path(), product);
            assert_eq!(choose(&sockets, apple).await, Some(&*path), "{product}");
        }
    }

    #[tokio::test]
    async fn on_apple_a_product_that_was_stopped_is_passed_over() {
        let home = tempfile::tempdir().unwrap();
        let (apple, linux) = (System::of("macos"), System::of("linux"));
        let (stopped, listener) = listen(home.path(), ".docker/run/docker.sock");
        drop(listener);
        let sockets = sockets_in(home.path(), apple);
        assert_eq!(choose(&sockets, apple).await, Some(&*stopped), "for an error that names it");
        let (running, _listener) = listen(home.path(), ".rd/docker.sock");
        assert_eq!(choose(&sockets, apple).await, Some(&*running));
        assert_eq!(choose(&sockets_in(home.path(), linux), linux).await, Some(&*stopped));
    }
}
}
