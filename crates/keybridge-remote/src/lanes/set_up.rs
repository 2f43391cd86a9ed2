//! Setting up all lanes of a bridge, each on its own, and deciding which of them it can do without: one
//! that can't be set up is a warning in READY, unless the host needs it or no other is left.

use keybridge_link::Link;
use keybridge_proto::Lane;
use keybridge_proto::report::FailureKind;

use crate::error::Error;
use crate::user_files::git::NOT_SIGNING;
use crate::{Bridge, DiscoveredLane, Environment, Settings, undo};

/// Sets up the lanes of a bridge. After an error nothing of it is left.
///
/// The future must not be dropped before it is done.
pub async fn set_up(
    settings: Settings,
    link: Link,
    environment: &Environment,
) -> Result<Bridge, Error> {
    let (lanes, host) = (settings.lanes.clone(), settings.host_folders);
    let mut bridge = Bridge::new(settings, link);
    bridge.find_git(environment).await;
    let mut failures = Vec::new();
    for lane in Lane::ALL {
        if !lanes.served.contains(&lane) {
            undo_unserved(&bridge, lane, environment).await;
            continue;
        }
        let added = match DiscoveredLane::find(lane, environment, host[lane]).await {
            Ok(home) => bridge.add(home).await,
            Err(error) => Err(error),
        };
        match added {
            Ok(()) => {}
            Err(error) if lanes.needed.contains(&lane) || !is_optional(lane, &error) => {
                return Err(give_up(bridge, environment, error).await);
            }
            Err(error) => failures.push((lane, error)),
        }
    }
    if bridge.is_empty() {
        let error = all_failed(&failures);
        return Err(give_up(bridge, environment, error).await);
    }
    for (lane, error) in failures {
        bridge.warn(as_warning(lane, &error));
        if bridge.git_lane() == Some(lane) {
            bridge.warn(format!("{NOT_SIGNING}: {lane} is not bridged"));
        }
    }
    Ok(bridge)
}

/// Whether a bridge is useful without the lane. A target without GnuPG doesn't need the gpg lane; one whose
/// gpg has another agent does, and the user has to decide.
fn is_optional(lane: Lane, error: &Error) -> bool {
    match lane {
        Lane::Gpg => error.kind() == FailureKind::NoGnupg,
        Lane::Ssh | Lane::Git => true,
    }
}

/// Undoes what an older helper of the same bridge has done for a lane that isn't served any more.
async fn undo_unserved(bridge: &Bridge, lane: Lane, environment: &Environment) {
    let Some(token) = &bridge.settings().bridge else { return };
    let Ok(home) = DiscoveredLane::find(lane, environment, None).await else {
        return;
    };
    if let Err(error) = undo(&home, Some(token)).await {
        tracing::warn!(%lane, %error, "can't undo what an older helper did");
    }
}

async fn give_up(bridge: Bridge, environment: &Environment, error: Error) -> Error {
    // An older helper that made way did so on all lanes.
    if bridge.was_ready() {
        for lane in bridge.unserved() {
            undo_unserved(&bridge, lane, environment).await;
        }
    }
    if let Err(error) = bridge.stop().await {
        tracing::warn!(%error, "can't undo everything");
    }
    error
}

fn as_warning(lane: Lane, error: &Error) -> String {
    format!("{lane} is not bridged: {}", error.one_line())
}

/// What is wrong with each lane, as one error.
fn all_failed(failures: &[(Lane, Error)]) -> Error {
    match failures {
        [] => Error::other("no lane was asked for"),
        [(_, only)] => only.clone(),
        [(_, first), ..] => {
            let parts = failures.iter().map(|(lane, error)| (lane, error.failure()));
            let messages: Vec<String> = parts
                .clone()
                .map(|(lane, failure)| format!("{lane}: {}", failure.message))
                .collect();
            let hints = parts.flat_map(|(_, failure)| &failure.hints);
            hints.cloned().fold(Error::new(first.kind(), messages.join("; ")), Error::hint)
        }
    }
}
