//! The process of the bridge of an editor's window.
//!
//! Standard input and output are JSON-RPC 2.0, one object on each line, as those of `keybridge rpc`.
//! What this process tells:
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
//! What it takes: `output` and `complaint`, what a process wrote to its standard output and error, in
//! base64; `exited`; `stop`; and the call `sync`, with the keys to send. The end of
//! the input is the end of the bridge.

mod remote_processes;
mod sharing;
mod window;
mod wire;

use std::rc::Rc;
use std::time::Duration;

use keybridge_link::Input;
use serde::Serialize;

use super::managed_bridge::ManagedBridge;
use super::serve::keep;
use super::state::StateRoot;
use crate::config::Settings;
use crate::limits::fit_descriptors;
use crate::report::Report;
use crate::signals::Signals;
use crate::target::{EditorTarget, Target};
use crate::{Error, Result};
use remote_processes::Processes;
use window::Window;
use wire::Wire;

/// How often it is looked how a bridge is: often enough for a person who watches a number.
const LOOK: Duration = Duration::from_secs(1);

/// How a bridge came to its end.
#[derive(Debug, Serialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
enum Ended {
    /// It was asked to.
    Stopped,
    /// It can't be set up.
    Failed(Error),
}

/// Bridges the remote of a window until the window is closed or says so.
pub async fn serve(authority: &str, settings: &Settings) -> Result<()> {
    let input = Input::open().map_err(|error| Error::failed(error.to_string()))?;
    let wire = Wire::open()?;
    let processes = Rc::new(Processes::new(wire.clone()));
    let target = Target::Editor(EditorTarget::new(authority, Rc::clone(&processes) as Rc<_>));
    let window = Rc::new(Window::default());
    let listening = tokio::task::spawn_local(wire::listen(
        input,
        wire.clone(),
        Rc::clone(&processes),
        Rc::clone(&window),
    ));
    let result = Box::pin(bridge(&target, settings, &window, &wire)).await;
    let ended = match &result {
        Ok(()) => Ended::Stopped,
        Err(error) => Ended::Failed(error.clone()),
    };
    wire.tell("ended", &ended);
    wire.flushed().await;
    listening.abort();
    result
}

async fn bridge(
    target: &Target,
    settings: &Settings,
    window: &Rc<Window>,
    wire: &Wire,
) -> Result<()> {
    fit_descriptors(settings.max_sessions);
    let mut signals = Signals::new()?;
    let root = StateRoot::open()?;
    let folder = root.folder(&target.key());
    let _lock = tokio::select! {
        lock = sharing::wait_for_turn(&folder, window, wire) => lock?,
        () = window.stop_asked() => return Ok(()),
        () = signals.received() => return Ok(()),
    };
    let token = root.token(&target.key())?;
    let bridge = Rc::new(ManagedBridge::new(target.address().to_string(), settings.clone()));
    window.has(&bridge);
    let report = Report::to({
        let wire = wire.clone();
        move |event| wire.tell("step", event)
    });
    let life = keep(&bridge, target, &folder, &token, async |life| {
        let live = life.begin(&report).await?;
        wire.tell("ready", &bridge.status());
        Ok(Some(live))
    });
    let mut life = std::pin::pin!(life);
    let mut changes = std::pin::pin!(tell_changes(&bridge, wire));
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

/// Tells how the bridge is, whenever that has changed.
async fn tell_changes(bridge: &ManagedBridge, wire: &Wire) {
    let mut ticks = tokio::time::interval(LOOK);
    let mut told = bridge.status();
    loop {
        ticks.tick().await;
        let status = bridge.status();
        if status != told {
            wire.tell("status", &status);
            told = status;
        }
    }
}
