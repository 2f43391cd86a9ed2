//! The process of one bridge that `watch` has started.

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, ChildStdin};

use crate::supervisor::control::LINE_LIMIT;
use crate::supervisor::manager::{BridgeManager, Told};
use crate::supervisor::state::StateFolder;
use crate::target::{Engine, EngineKind, TargetAddress};
use crate::{Error, Result};

/// Holds the process of a bridge. It ends when this is dropped, also by our own end.
pub(super) struct Held(#[allow(dead_code, reason = "held, not written to")] ChildStdin);

/// How the process of a bridge came to its end.
pub(super) enum Ended {
    /// It was told to, by `down` or by us.
    Asked,
    /// The container was removed.
    Gone,
    /// Another process has the bridge.
    Busy,
    /// It said why it can't go on.
    Failed(Error),
    /// Without a word.
    Died(String),
}

/// Starts the process that bridges a container. The second half shows that it has begun, and tells how
/// it ends.
pub(super) fn start<B: FnOnce()>(
    manager: &BridgeManager,
    engine: &Engine,
    id: &str,
    folder: &StateFolder,
    begun: B,
) -> Result<(Held, impl Future<Output = Ended> + use<B>)> {
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
    let mut child = manager.spawn(&mut command, folder)?;
    let input = child.stdin.take();
    let held = input.ok_or_else(|| Error::failed("a bridge without an input"))?;
    Ok((Held(held), ended(child, begun)))
}

async fn ended(mut child: Child, begun: impl FnOnce()) -> Ended {
    let mut begun = Some(begun);
    let mut told = None;
    if let Some(output) = child.stdout.take() {
        let mut lines = BufReader::new(output);
        let mut line = Vec::new();
        while (&mut lines)
            .take(LINE_LIMIT)
            .read_until(b'\n', &mut line)
            .await
            .is_ok_and(|count| count > 0)
        {
            told = serde_json::from_slice(&line).ok().or(told);
            line.clear();
            if matches!(told, Some(Told::Begun))
                && let Some(begun) = begun.take()
            {
                begun();
            }
        }
    }
    match (told, child.wait().await) {
        (Some(Told::Gone), _) => Ended::Gone,
        (Some(Told::Busy), _) => Ended::Busy,
        (Some(Told::Failed(error)), _) => Ended::Failed(error),
        (Some(Told::Begun | Told::Ready(_)) | None, Ok(status)) if status.success() => Ended::Asked,
        (Some(Told::Begun | Told::Ready(_)) | None, Ok(status)) => Ended::Died(status.to_string()),
        (Some(Told::Begun | Told::Ready(_)) | None, Err(error)) => Ended::Died(error.to_string()),
    }
}
