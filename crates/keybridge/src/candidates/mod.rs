//! What could be bridged: the targets that the host knows of.

mod containers;
mod ssh;
mod wsl;

use std::pin::Pin;
use std::time::Duration;

use tokio::time::timeout;

use crate::Result;
use crate::engine::EngineKind;
use crate::join::join_all;
use crate::target::TargetAddress;

/// A target that could be bridged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its address.
    pub address: TargetAddress,
    /// What identifies it: [`Target::key`](crate::target::Target::key).
    pub key: String,
    /// What a person knows it by, apart from its name: an image, a host. Safe to show.
    pub detail: String,
    /// How old it is.
    pub age: Option<Duration>,
}

/// All candidates, and what has kept us from finding more.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// The targets, grouped by where they were found.
    pub found: Vec<Candidate>,
    /// A line for each place that couldn't be asked. Safe to show.
    pub problems: Vec<String>,
}

/// How long a source may take: a person waits. Podman may have to start first, which takes up to a second.
const LISTING_TIME: Duration = Duration::from_secs(3);

/// How many targets a source may list: more can't be chosen from.
const MOST_LISTED: usize = 200;

type Listing = Pin<Box<dyn Future<Output = Result<Vec<Candidate>>>>>;

/// Where targets are found. One that the host doesn't have finds none.
struct Source {
    name: &'static str,
    list: fn() -> Listing,
}

/// Every source, in the order in which its targets are shown.
const SOURCES: [Source; 4] = [
    Source { name: "Docker", list: || Box::pin(containers::list(EngineKind::Docker)) },
    Source { name: "Podman", list: || Box::pin(containers::list(EngineKind::Podman)) },
    Source { name: "ssh's configuration", list: || Box::pin(ssh::list()) },
    Source { name: "WSL", list: || Box::pin(wsl::list()) },
];

impl Candidates {
    /// Asks all sources side by side.
    pub(crate) async fn list() -> Self {
        let listings = SOURCES.map(|source| async move {
            match timeout(LISTING_TIME, (source.list)()).await {
                Ok(Ok(found)) => Ok(found),
                Ok(Err(error)) => Err(error.message),
                Err(_) => {
                    Err(format!("{}: no answer within {} s", source.name, LISTING_TIME.as_secs()))
                }
            }
        });
        let mut all = Self::default();
        for listed in join_all(listings).await {
            match listed {
                Ok(found) => {
                    for candidate in found.into_iter().take(MOST_LISTED) {
                        all.add(candidate);
                    }
                }
                Err(problem) => all.problems.push(problem),
            }
        }
        all
    }

    /// The running container whose name is most like that of an address, if one is.
    pub(crate) async fn similar(to: &TargetAddress) -> Option<TargetAddress> {
        let wanted = to.container()?;
        let found = Self::list().await.found.into_iter().map(|candidate| candidate.address);
        let near = found.filter_map(|address| {
            let distance = distance(address.container()?, wanted);
            (distance <= limit(wanted)).then_some((distance, address))
        });
        near.min_by_key(|(distance, _)| *distance).map(|(_, address)| address)
    }

    /// Adds a candidate, once: `docker` may be configured to use Podman's socket.
    fn add(&mut self, candidate: Candidate) {
        if self.found.iter().all(|known| known.key != candidate.key) {
            self.found.push(candidate);
        }
    }
}

/// How many letters may be wrong: more in a longer name.
const fn limit(name: &str) -> usize {
    if name.len() < 9 { 2 } else { name.len() / 4 }
}

/// How many letters have to be changed, added or left out.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (count, letter) in one.chars().enumerate() {
        let mut left = count + 1;
        let mut next = vec![left];
        for (pair, expected) in row.windows(2).zip(&other) {
            let [before, above] = pair else { continue };
            let changed = before + usize::from(letter != *expected);
            left = changed.min(above + 1).min(left + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_differ_are_counted() {
        for (one, other, count) in
            [("web", "web", 0), ("web", "wbe", 2), ("web", "web1", 1), ("", "ab", 2), ("db", "", 2)]
        {
            assert_eq!(distance(one, other), count, "{one} {other}");
        }
    }
}
