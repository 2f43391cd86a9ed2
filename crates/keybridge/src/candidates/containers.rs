//! The running containers of an engine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::models::ContainerSummary;
use keybridge_proto::printable;

use crate::Result;
use crate::candidates::Candidate;
use crate::engine::{Engine, EngineKind};
use crate::target::TargetAddress;

pub(crate) async fn list(kind: EngineKind) -> Result<Vec<Candidate>> {
    let Some(engine) = Engine::in_use(kind).await? else { return Ok(Vec::new()) };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut running: Vec<_> = engine
        .running()
        .await?
        .into_iter()
        .filter_map(|container| candidate(kind, container, now))
        .collect();
    // The newest first: it is the one that somebody has just started.
    running.sort_by_key(|candidate| candidate.age);
    Ok(running)
}

/// `now` is the time since 1970.
fn candidate(kind: EngineKind, container: ContainerSummary, now: Duration) -> Option<Candidate> {
    let id = container.id?;
    let names = container.names.unwrap_or_default();
    // Names begin with a slash. Those with another one are links of other containers.
    let names = names.iter().map(|name| name.strip_prefix('/').unwrap_or(name));
    let address = names.chain([id.as_str()]).find_map(|name| address(kind, name))?;
    let created = container.created.and_then(|created| u64::try_from(created).ok());
    Some(Candidate {
        address,
        detail: short_image(&container.image.unwrap_or_default()),
        age: created.map(|created| now.saturating_sub(Duration::from_secs(created))),
        key: id,
    })
}

fn address(kind: EngineKind, name: &str) -> Option<TargetAddress> {
    format!("{}://{name}", kind.program()).parse().ok()
}

/// The name of an image; of one without a name, as much of its id as engines show.
fn short_image(image: &str) -> String {
    let id = image.strip_prefix("sha256:").and_then(|id| id.get(..12));
    // Where Podman keeps images that it has not pulled.
    let name = id.unwrap_or(image).strip_prefix("localhost/").unwrap_or(id.unwrap_or(image));
    printable(name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(names: &[&str], image: &str) -> ContainerSummary {
        ContainerSummary {
            id: Some("0123abcd".to_owned()),
            names: Some(names.iter().map(|name| name.to_string()).collect()),
            image: Some(image.to_owned()),
            created: Some(100),
            ..ContainerSummary::default()
        }
    }

    #[test]
    fn a_container_is_shown_by_its_own_name_its_image_and_its_age() {
        let now = Duration::from_secs(160);
        for (names, image, address, detail) in [
            (&["/web"][..], "debian:12", "docker://web", "debian:12"),
            (&["/other/link", "/web"], "localhost/app", "docker://web", "app"),
            (&[], "sha256:0123456789abcdef", "docker://0123abcd", "0123456789ab"),
            (&["/a\u{1b}[31m"], "b\u{1b}[2J", "docker://0123abcd", "b\\u{1b}[2J"),
        ] {
            let found = candidate(EngineKind::Docker, summary(names, image), now).unwrap();
            assert_eq!(
                (found.address.to_string().as_str(), found.detail.as_str()),
                (address, detail)
            );
            assert_eq!((found.key.as_str(), found.age), ("0123abcd", Some(Duration::from_mins(1))));
        }
    }

    #[test]
    fn a_container_whose_age_nobody_knows_is_listed() {
        for created in [None, Some(-1)] {
            let summary = ContainerSummary { created, ..summary(&["/web"], "debian:12") };
            let found = candidate(EngineKind::Docker, summary, Duration::from_secs(160)).unwrap();
            assert_eq!((found.address.to_string().as_str(), found.age), ("docker://web", None));
        }
    }
}
