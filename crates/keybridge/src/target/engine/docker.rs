//! Where the user's own `docker` finds its engine.

use std::env;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// `DOCKER_HOST`, the current context, or the first usual socket that is there.
pub(super) fn find_host() -> String {
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
