//! The process of one bridge that `watch` has started.

use crate::engine::{Engine, EngineKind};
use crate::keyring::Ceiling;
use crate::output::Report;
use crate::supervisor::manager::BridgeManager;
use crate::supervisor::process::{BridgeProcess, ProcessGuard, ProcessMessage};
use crate::supervisor::state::StateFolder;
use crate::target::TargetAddress;
use crate::{Error, Result};

/// How the process of a bridge ended.
pub(crate) enum ProcessEnd {
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
pub(crate) async fn start<B: FnOnce()>(
    manager: &BridgeManager,
    engine: &Engine,
    id: &str,
    folder: &StateFolder,
    ceiling: Ceiling,
    begun: B,
) -> Result<(ProcessGuard, impl Future<Output = ProcessEnd> + use<B>)> {
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
    let (process, guard) = manager.start_process(&mut command, folder, Some(ceiling)).await?;
    Ok((guard, ended(process, begun)))
}

async fn ended(mut process: BridgeProcess, begun: impl FnOnce()) -> ProcessEnd {
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
        (Some(ProcessMessage::Removed), _) => ProcessEnd::Removed,
        (Some(ProcessMessage::Busy), _) => ProcessEnd::Busy,
        (Some(ProcessMessage::Failed(error)), _) => ProcessEnd::Failed(error),
        (Some(ProcessMessage::Begun | ProcessMessage::Ready(_)) | None, status) => match status {
            Ok(status) if status.success() => ProcessEnd::Asked,
            Ok(status) => ProcessEnd::Died(status.to_string()),
            Err(error) => ProcessEnd::Died(error.to_string()),
        },
    }
}
