//! The targets that a command names, for commands that work on bridges.

use crate::supervisor::BridgeManager;
use crate::target::TargetAddress;
use crate::{Error, ErrorKind, Result};

/// Reads the targets. If there is none, the error lists what is bridged.
pub(super) async fn targets(
    words: &[String],
    manager: &BridgeManager,
) -> Result<Vec<TargetAddress>> {
    if words.is_empty() {
        return Err(not_named(manager).await);
    }
    words.iter().map(|word| word.parse()).collect()
}

/// Reads the one target.
pub(super) async fn target(word: Option<&str>, manager: &BridgeManager) -> Result<TargetAddress> {
    match word {
        Some(word) => word.parse(),
        None => Err(not_named(manager).await),
    }
}

async fn not_named(manager: &BridgeManager) -> Error {
    let error = Error::new(ErrorKind::Usage, "no target is named");
    let bridged = manager.all().await.into_iter().filter_map(|(_, status)| {
        let address: TargetAddress = status.target.parse().ok()?;
        Some(format!("{} (bridged: {})", address.as_word(), status.state.word()))
    });
    let bridged: Vec<_> = bridged.collect();
    if bridged.is_empty() {
        return error.hint("nothing is bridged; keybridge up TARGET starts");
    }
    error.listing(bridged, "keybridge status")
}
