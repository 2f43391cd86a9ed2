//! `keybridge link`: the host's end of a link whose bytes an editor carries.
//!
//! Standard input and output are JSON-RPC 2.0, one object on each line, as those of `keybridge rpc`.
//! What the program tells, in this order:
//!
//! | notification | what it says |
//! |---|---|
//! | `shared` | another window has the bridge of this target; this one takes over when that ends |
//! | `step` | a step that a person waits for |
//! | `helper` | start the helper in the target with these arguments, and carry its bytes |
//! | `bytes` | bytes for the helper, in base64 |
//! | `ready` | what was set up |
//! | `status` | how the bridge is, whenever that has changed |
//! | `ended` | why it ended; nothing comes after it |
//!
//! What it takes: `bytes` and `complaint`, what the helper wrote to its standard output and error, in
//! base64; `helperEnded`; `stop`; and the call `sync`, with the keys to send. The end of the input is
//! the end of the bridge.

mod control;
mod sharing;
mod window;
mod wire;

use std::rc::Rc;

use clap::Args;
use keybridge_proto::printable;
use serde::Serialize;
use serde_json::json;

use crate::bridge::{Bridge, BridgeEnd};
use crate::config::{ConfigFile, Options, Settings};
use crate::gnupg::Gnupg;
use crate::lend;
use crate::signals::Signals;
use crate::supervisor::state::StateRoot;
use crate::{Error, ErrorKind, Result};
use control::Control;
use window::Window;
use wire::{HelperStreams, Wire};

/// Be the host's end of a link whose bytes an editor carries
#[derive(Debug, Args)]
pub(crate) struct Link {
    /// The target: vscode:AUTHORITY
    #[arg(long, value_name = "ADDRESS")]
    target: String,
    #[command(flatten)]
    options: Options,
}

/// How a link came to its end.
#[derive(Debug, Serialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
enum Ended {
    /// It was asked to.
    Stopped,
    /// It worked until the link or the helper broke; another try may work.
    Broken(Error),
    /// It can't be set up, or the helper said why it can't go on.
    Failed(Error),
}

impl Link {
    pub(crate) async fn run(self, config: &ConfigFile) -> Result<()> {
        let wire = Wire::default();
        let ended = self.serve(config, &wire).await.unwrap_or_else(Ended::Failed);
        wire.tell("ended", &ended).await;
        match ended {
            Ended::Stopped => Ok(()),
            Ended::Broken(error) | Ended::Failed(error) => Err(error),
        }
    }

    async fn serve(&self, config: &ConfigFile, wire: &Wire) -> Result<Ended> {
        check(&self.target)?;
        let settings = config.settings(&self.target, &self.options)?;
        let mut signals = Signals::new()?;
        let window = Rc::new(Window::new(self.target.clone(), settings.clone()));
        let (streams, input) = wire::listen(wire.clone(), Rc::clone(&window));
        let folder = StateRoot::open()?.folder(&self.target);
        let lock = tokio::select! {
            lock = sharing::wait_for_turn(&folder, &window, wire) => lock?,
            () = window.stop_asked() => return Ok(Ended::Stopped),
            () = signals.received() => return Ok(Ended::Stopped),
        };
        folder.name(&self.target)?;
        let control = Control::listen(&folder, &window)?;
        let stopping = async {
            tokio::select! {
                () = window.stop_asked() => {}
                () = signals.received() => window.ask_stop(),
            }
        };
        let ended = bridge(&window, &settings, wire, streams, stopping).await;
        window.over(&ended);
        control.finish().await;
        folder.clear();
        input.abort();
        drop(lock);
        ended
    }
}

/// The longest address that makes sense: an editor puts the whole description of a container there.
const MAX_ADDRESS: usize = 4096;

fn check(target: &str) -> Result<()> {
    let authority = target.strip_prefix("vscode:").unwrap_or_default();
    if authority.is_empty() || target.len() > MAX_ADDRESS {
        let message = format!("{}: not the address of an editor's remote", printable(target));
        return Err(Error::new(ErrorKind::Usage, message).hint("write vscode:AUTHORITY"));
    }
    Ok(())
}

/// Sets the bridge up, and keeps it until it ends or is to.
async fn bridge(
    window: &Window,
    settings: &Settings,
    wire: &Wire,
    streams: HelperStreams,
    stopping: impl Future<Output = ()>,
) -> Result<Ended> {
    tokio::pin!(stopping);
    let mut starting = Box::pin(start(window, settings, wire, streams));
    let bridge = tokio::select! {
        bridge = &mut starting => bridge?,
        () = &mut stopping => {
            // Not dropped half-way: the helper could not undo what it has done by then.
            if let Ok(bridge) = starting.await {
                bridge.stop().await?;
            }
            return Ok(Ended::Stopped);
        }
    };
    let bridge = Rc::new(bridge);
    window.ready(Rc::clone(&bridge));
    wire.tell("ready", &ready(window, &bridge)).await;
    tokio::select! {
        end = bridge.ended() => Ok(match end {
            BridgeEnd::Stopped => Ended::Stopped,
            BridgeEnd::Failed(error) => Ended::Failed(error),
            end @ (BridgeEnd::Closed | BridgeEnd::Broken(_)) => {
                Ended::Broken(window.explain(end.into()))
            }
        }),
        () = stopping => bridge.stop().await.map(|()| Ended::Stopped),
        never = tell_changes(window, wire) => never,
    }
}

async fn start(
    window: &Window,
    settings: &Settings,
    wire: &Wire,
    streams: HelperStreams,
) -> Result<Bridge> {
    let gnupg = Gnupg::new(settings.gnupg_home.clone());
    let dialer = wire.step("your gpg-agent", lend::find_agent(&gnupg, settings)).await?;
    let keys = wire.step("public keys to send", lend::export(&gnupg, settings)).await?;
    for warning in &keys.warnings {
        wire.warn(warning).await;
    }
    let cookie = lend::new_cookie()?;
    let mut arguments = lend::serve_command("", &gnupg, settings).await?;
    // Whoever starts the helper knows where its program is.
    arguments.remove(0);
    arguments.extend(["--cookie".to_owned(), cookie.hex()]);
    let HelperStreams { output, input, mut log } = streams;
    let start = async {
        window.expect_bytes();
        wire.tell("helper", &json!({ "arguments": arguments })).await;
        let settings = lend::bridge_settings(window.target().to_owned(), settings);
        match Bridge::start(output, input, &cookie, settings, dialer, &keys).await {
            Ok(bridge) => {
                let changes = lend::describe(bridge.ready().keys.unwrap_or_default());
                Ok((bridge, changes))
            }
            Err(error) => {
                log.finish().await;
                Err(log.explain(error))
            }
        }
    };
    let bridge = wire.step("the bridge", start).await?;
    log.set_loud();
    window.keep_log(log);
    for warning in &bridge.ready().warnings {
        wire.warn(&printable(warning).to_string()).await;
    }
    Ok(bridge)
}

/// What was set up. The texts are the target's own, and only for showing but for the sockets, which
/// are asked through by the helper there.
fn ready(window: &Window, bridge: &Bridge) -> serde_json::Value {
    let ready = bridge.ready();
    json!({
        "status": window.status(),
        "user": printable(&ready.user).to_string(),
        "gnupg": printable(&ready.gnupg).to_string(),
        "socket": ready.gpg_socket,
        "keys": window::as_json(ready.keys.unwrap_or_default()),
        "warnings": ready.warnings.iter().map(|text| printable(text).to_string()).collect::<Vec<_>>(),
        "version": env!("CARGO_PKG_VERSION"),
    })
}

/// Tells how the bridge is, whenever that has changed.
async fn tell_changes<T>(window: &Window, wire: &Wire) -> T {
    let mut ticks = tokio::time::interval(sharing::LOOK);
    let mut told = None;
    loop {
        ticks.tick().await;
        let status = Some(window.status());
        if status != told {
            wire.tell("status", &status).await;
            told = status;
        }
    }
}
