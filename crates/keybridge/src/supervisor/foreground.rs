//! A bridge in the process of its `up`. Other commands find it as they find one in the background, and a
//! signal ends it.

use std::pin::pin;
use std::rc::Rc;

use super::lifecycle::Ending;
use super::managed_bridge::ManagedBridge;
use super::serve::{ceiling_to_begin_with, run_bridge, settings_after_kill};
use super::state::StateRoot;
use super::{BridgeStatus, DownOutcome};
use crate::config::{ConfigFile, Invocation};
use crate::output::Report;
use crate::platform::{Signals, raise_descriptor_limit};
use crate::setup::LiveBridge;
use crate::target::{Target, TargetAddress};
use crate::{Error, Result};

/// Bridges a target until a signal or another command ends it; `ready` is called with the first link.
/// Gives back what became of the changes in the target.
pub(crate) async fn run_in_foreground(
    address: &TargetAddress,
    config: &ConfigFile,
    invocation: &Invocation,
    report: &Report,
    ready: impl FnOnce(&LiveBridge, &BridgeStatus),
) -> Result<DownOutcome> {
    let target = Target::find(address, None).await?;
    let settings = config.settings_for(&target.address().to_string(), invocation)?;
    let target = target.for_user(settings.options.user.as_deref())?;
    let root = StateRoot::open()?;
    let folder = root.folder(&target.key());
    let Some(_lock) = folder.lock()? else {
        let word = address.as_word();
        return Err(Error::failed(format!("{address} is bridged already"))
            .hint(format!("keybridge down {word} ends that bridge")));
    };
    let kept = settings_after_kill(&folder, &target, invocation, report).await?;
    let ceiling = ceiling_to_begin_with(&folder, invocation, report)?;
    let settings = kept.unwrap_or(settings);
    let target = target.for_user(settings.options.user.as_deref())?;
    folder.begin_log_beside_terminal()?;
    raise_descriptor_limit(settings.max_sessions);
    root.prune();
    // Before anything is changed, so that no signal can come too early to be undone.
    let mut signals = Signals::new()?;
    let token = root.token(&target.key())?;
    let bridge = Rc::new(ManagedBridge::new(target.clone(), settings, ceiling).in_foreground());
    bridge.set_questions(invocation.questions());
    let mut life = pin!(run_bridge(&bridge, &target, &folder, &token, async |life| {
        let live = life.begin(report).await?;
        ready(&live, &bridge.status());
        Ok(Some(live))
    }));
    let outcome = |ending: Ending| ending.outcome(&bridge);
    tokio::select! {
        ending = &mut life => return ending.map(outcome),
        () = signals.received() => bridge.stop(),
    }
    let ended = async {
        tokio::select! {
            ending = life => ending.map(outcome),
            // A second signal doesn't wait for the target.
            () = signals.received() => Err(Error::failed("interrupted")
                .hint(format!("keybridge down {} undoes what is left", address.as_word()))),
        }
    };
    if !bridge.was_linked() {
        return ended.await;
    }
    let undo = async { ended.await.map(|outcome| (outcome, String::new())) };
    report.step("undoing the changes in the target", undo).await
}
