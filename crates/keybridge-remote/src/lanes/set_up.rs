//! Which lanes a bridge serves, and which it can't do without.

use keybridge_proto::Lane;
use keybridge_proto::report::Failure;

use crate::error::{Problem, StartError};
use crate::{Bridge, DiscoveredLane, Environment, HostFolders, undo};

/// The lanes of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneSelection {
    /// Those to set up. One that isn't there is a warning, as long as another one is.
    pub served: Vec<Lane>,
    /// Those without which there is no bridge.
    pub needed: Vec<Lane>,
}

/// Sets the lanes of a bridge up. After an error nothing of it is left.
///
/// The future is not to be dropped half-way.
pub async fn set_up(
    mut bridge: Bridge,
    lanes: &LaneSelection,
    environment: &Environment,
    host: HostFolders,
) -> Result<Bridge, StartError> {
    let mut failures = Vec::new();
    for lane in Lane::ALL {
        if !lanes.served.contains(&lane) {
            clear(&bridge, lane, environment).await;
            continue;
        }
        let added = match DiscoveredLane::find(lane, environment, host).await {
            Ok(home) => bridge.add(home).await,
            Err(error) => Err(error),
        };
        match added {
            Ok(()) => {}
            Err(error) if lanes.needed.contains(&lane) || !can_be_missed(lane, &error) => {
                return Err(give_up(bridge, error).await);
            }
            Err(error) => failures.push((lane, error)),
        }
    }
    if bridge.is_empty() {
        let error = all_failed(&failures);
        return Err(give_up(bridge, error).await);
    }
    for (lane, error) in failures {
        bridge.warn(as_warning(lane, &error));
        if bridge.config().git.as_ref().is_some_and(|git| git.signing().lane() == lane) {
            bridge.warn(format!("git is not set up to sign: {lane} is not bridged"));
        }
    }
    Ok(bridge)
}

/// Whether a bridge without the lane is of use all the same. A target without GnuPG doesn't miss it; one
/// whose gpg has another agent does, and somebody has to decide.
fn can_be_missed(lane: Lane, error: &StartError) -> bool {
    match lane {
        Lane::Gpg => matches!(error, StartError::NoGnupg(_)),
        Lane::Ssh => true,
    }
}

/// Takes away what an older helper of the same bridge has done for a lane that isn't served any more.
async fn clear(bridge: &Bridge, lane: Lane, environment: &Environment) {
    let Some(token) = &bridge.config().bridge else { return };
    let Ok(home) = DiscoveredLane::find(lane, environment, HostFolders::default()).await else {
        return;
    };
    if let Err(error) = undo(&home, Some(token)).await {
        tracing::warn!(%lane, %error, "what an older helper did stays");
    }
}

async fn give_up(bridge: Bridge, error: StartError) -> StartError {
    if let Err(error) = bridge.stop().await {
        tracing::warn!(%error, "not everything was undone");
    }
    error
}

fn as_warning(lane: Lane, error: &StartError) -> String {
    let Failure { message, hints, .. } = error.failure();
    let parts: Vec<String> = [message].into_iter().chain(hints).collect();
    format!("{lane} is not bridged: {}", parts.join("; "))
}

/// What is wrong with each lane, as one error.
fn all_failed(failures: &[(Lane, StartError)]) -> StartError {
    match failures {
        [] => StartError::Other(Problem::new("no lane is to be served")),
        [(_, only)] => only.clone(),
        [(_, first), ..] => {
            let parts = failures.iter().map(|(lane, error)| (lane, error.failure()));
            let messages: Vec<String> = parts
                .clone()
                .map(|(lane, failure)| format!("{lane}: {}", failure.message))
                .collect();
            let hints = parts.flat_map(|(_, failure)| failure.hints).collect();
            first.about(Problem { message: messages.join("; "), hints })
        }
    }
}
