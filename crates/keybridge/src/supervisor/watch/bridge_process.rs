//! The process of one bridge that `watch` has started.

use crate::output::Report;
use crate::supervisor::manager::BridgeManager;
use crate::supervisor::process::{BridgeProcess, ProcessGuard, ProcessMessage};
use crate::supervisor::state::StateFolder;
use crate::target::{Engine, EngineKind, TargetAddress};
use crate::{Error, Result};

/// How the process of a bridge ended.
pub(super) enum Ended {
    /// It was stopped, by `down` or by us.
    Asked,
    /// The container was removed.
    Removed,
    /// Another process has the bridge.
    Busy,
    /// It failed, and said why.
    Failed(Error),
    /// It was killed or crashed.
    Died(String),
}

/// Starts the process that bridges a container. The future calls `begun` once it runs, and returns how
/// it ended.
pub(super) async fn start<B: FnOnce()>(
    manager: &BridgeManager,
    engine: &Engine,
    id: &str,
    folder: &StateFolder,
    begun: B,
) -> Result<(ProcessGuard, impl Future<Output = Ended> + use<B>)> {
    // By its id: a name can move to another container.
    let address = match engine.kind() {
        EngineKind::Docker => TargetAddress::Docker(id.to_owned()),
        EngineKind::Podman => TargetAddress::Podman(id.to_owned()),
    };
    let mut command = manager.serve_command(&address);
    command.arg("--watched");
    if let Some(host) = engine.own_service() {
        command.env("CONTAINER_HOST", host);
    }
    let (process, guard) = manager.start_process(&mut command, folder).await?;
    Ok((guard, ended(process, begun)))
}

async fn ended(mut process: BridgeProcess, begun: impl FnOnce()) -> Ended {
    let silent = Report::silent();
    let mut begun = Some(begun);
    let mut last = None;
    while let Ok(Some(message)) = process.message(&silent).await {
        if matches!(message, ProcessMessage::Begun)
            && let Some(begun) = begun.take()
        {
            begun();
        }
        last = Some(message);
    }
    match (last, process.ended().await) {
        (Some(ProcessMessage::Removed), _) => Ended::Removed,
        (Some(ProcessMessage::Busy), _) => Ended::Busy,
        (Some(ProcessMessage::Failed(error)), _) => Ended::Failed(error),
        (Some(ProcessMessage::Begun | ProcessMessage::Ready(_)) | None, status) => match status {
            Ok(status) if status.success() => Ended::Asked,
            Ok(status) => Ended::Died(status.to_string()),
            Err(error) => Ended::Died(error.to_string()),
        },
    }
}
