//! News of the host's network: a link that was lost may come back, and one that seems to live may be dead.
//! So a link is pinged, a pause is cut short, and a login that has begun before is soon given up.

use std::io;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::sleep;
use tracing::debug;

use crate::platform::NetworkChanges;
use crate::target::{Following, Presence};

/// Changes come in groups: an interface, its addresses, its routes.
const GATHERING: Duration = Duration::from_millis(300);

/// Follows a target that only the network leads to: each change of the network counts as if the target
/// were there again.
pub(crate) fn follow() -> Following {
    Following::by(Presence::Running, |told| async move {
        // Without news links are still made again, a little later.
        if let Err(error) = listen(&told).await {
            debug!(%error, "no news of the network");
            told.closed().await;
        }
    })
}

async fn listen(told: &watch::Sender<Presence>) -> io::Result<()> {
    let mut changes = NetworkChanges::listen()?;
    loop {
        changes.next().await?;
        sleep(GATHERING).await;
        changes.drain()?;
        told.send_replace(Presence::Running);
    }
}
