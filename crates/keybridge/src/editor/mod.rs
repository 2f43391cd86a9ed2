//! The process of the bridge of an editor's window.
//!
//! Standard input and output are JSON-RPC 2.0, one object on each line, as those of `keybridge rpc`.
//! This process sends:
//!
//! | notification | what it says |
//! |---|---|
//! | `shared` | another window has the bridge of this remote; this one takes over when that ends |
//! | `step` | a step that a person waits for |
//! | `run` | run the helper in the remote with these arguments, as a process of this number |
//! | `input`, `endInput` | bytes for such a process, in base64, and their end |
//! | `end` | such a process is not needed any more |
//! | `ready` | the first link works |
//! | `status` | how the bridge is, whenever that has changed |
//! | `ended` | why it ended; nothing comes after it |
//!
//! It receives `output` and `complaint` (what a process wrote to its standard output and error, in
//! base64), `exited`, `stop`, and the call `sync` with the keys to send. The end of the input ends the
//! bridge.

mod connection;
mod other_window;
mod remote_processes;
mod window;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use keybridge_link::Input;
use serde::Serialize;

use crate::config::{LaneScope, Settings};
use crate::keyring::{Keyring, SharedCeiling};
use crate::output::Report;
use crate::platform::{Signals, raise_descriptor_limit};
use crate::supervisor::managed_bridge::ManagedBridge;
use crate::supervisor::serve::run_bridge;
use crate::supervisor::state::StateRoot;
use crate::target::{EditorTarget, Target};
use crate::{Error, Result};
use connection::EditorConnection;
use remote_processes::Processes;
use window::Window;

/// How often the status is compared: often enough for a person who watches it.
const STATUS_INTERVAL: Duration = Duration::from_secs(1);

/// How the bridge ended.
#[derive(Debug, Serialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
enum Ended {
    /// It was asked to.
    Stopped,
    /// It can't be set up.
    Failed(Error),
}

/// Bridges the remote of a window until the window is closed or asks to stop.
pub(crate) async fn serve(
    authority: &str,
    settings: &Settings,
    ceiling_file: Option<PathBuf>,
) -> Result<()> {
    let input = Input::open().map_err(|error| Error::failed(error.to_string()))?;
    let editor = EditorConnection::open()?;
    let processes = Rc::new(Processes::new(editor.clone()));
    let target = Target::Editor(EditorTarget::new(authority, Rc::clone(&processes) as Rc<_>));
    let window = Rc::new(Window::default());
    let listening = tokio::task::spawn_local(connection::listen(
        input,
        editor.clone(),
        Rc::clone(&processes),
        Rc::clone(&window),
    ));
    let result = async {
        let ceiling = ceiling_in(ceiling_file);
        set_ceiling(&ceiling, settings).await;
        Box::pin(bridge(&target, settings, ceiling, &window, &editor)).await
    };
    let result = result.await;
    let ended = match &result {
        Ok(()) => Ended::Stopped,
        Err(error) => Ended::Failed(error.clone()),
    };
    editor.tell("ended", &ended);
    editor.flushed().await;
    listening.abort();
    result
}

async fn bridge(
    target: &Target,
    settings: &Settings,
    ceiling: SharedCeiling,
    window: &Rc<Window>,
    editor: &EditorConnection,
) -> Result<()> {
    raise_descriptor_limit(settings.max_sessions);
    let mut signals = Signals::new()?;
    let root = StateRoot::open()?;
    let folder = root.folder(&target.key());
    let _lock = tokio::select! {
        lock = other_window::wait_for_turn(&folder, window, editor) => lock?,
        () = window.stop_asked() => return Ok(()),
        () = signals.received() => return Ok(()),
    };
    let token = root.token(&target.key())?;
    let bridge = Rc::new(ManagedBridge::new(target.clone(), settings.clone(), ceiling));
    window.use_own(&bridge);
    let report = Report::to({
        let editor = editor.clone();
        move |event| editor.tell("step", event)
    });
    let life = run_bridge(&bridge, target, &folder, &token, async |life| {
        let live = life.begin(&report).await?;
        editor.tell("ready", &bridge.status());
        Ok(Some(live))
    });
    let mut life = std::pin::pin!(life);
    let mut changes = std::pin::pin!(tell_changes(&bridge, editor));
    loop {
        tokio::select! {
            result = &mut life => return result.map(|_| ()),
            () = signals.received() => bridge.stop(),
            () = window.stop_asked() => {
                bridge.stop();
                return life.await.map(|_| ());
            }
            () = &mut changes => {}
        }
    }
}

/// What may be lent at most: what a file of the editor's says, which is there from the person's consent on.
/// Without such a file it is set when the process starts.
pub(crate) fn ceiling_in(file: Option<PathBuf>) -> SharedCeiling {
    file.map_or_else(SharedCeiling::default, SharedCeiling::following)
}

/// Writes what can be lent now to such a file, for a person who has just agreed to it.
pub(crate) async fn raise_ceiling(settings: &Settings, file: &Path) -> Result<()> {
    let ceiling = SharedCeiling::default();
    Keyring::open(settings.gnupg(), settings.lending.clone(), &ceiling).await?;
    ceiling.get().write(file)
}

/// Sets what may be lent at most, when the process starts: another window may have the bridge for long.
async fn set_ceiling(ceiling: &SharedCeiling, settings: &Settings) {
    if ceiling.is_set() || !settings.lends_openpgp(LaneScope::Target) {
        return;
    }
    let opened = Keyring::open(settings.gnupg(), settings.lending.clone(), ceiling).await;
    // The first link lists them, or says why it can't.
    if let Err(error) = opened {
        tracing::info!(%error, "the keys can't be listed yet");
    }
}

/// Sends the status whenever it has changed.
async fn tell_changes(bridge: &ManagedBridge, editor: &EditorConnection) {
    let mut ticks = tokio::time::interval(STATUS_INTERVAL);
    let mut told = bridge.status();
    loop {
        ticks.tick().await;
        let status = bridge.status_now().await;
        if status != told {
            editor.tell("status", &status);
            told = status;
        }
    }
}
