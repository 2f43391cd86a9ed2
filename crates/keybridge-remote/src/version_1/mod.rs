//! The helper under the name of an existing server: it speaks version 1 of the link, for hosts that support
//! no other.
//!
//! ```text
//! host ── PUBKEY ───────────▶ helper    the keys, before gpg is set up
//!      ◀── READY ────────────           the sockets are bound
//!      ◀── OPEN, DATA, CLOSE ──▶        clients
//!      ◀── ERROR ────────────           why it can't go on, as plain text
//! ```
//!
//! If the host sends no keys within two seconds, ssh is served without them, and gpg when they come.

mod socket_owner;
mod sockets_variable;

use std::process::ExitCode;
use std::time::Duration;

use keybridge_link::{Input, Link, LinkEnd, Notice, Output};
use keybridge_proto::Lane;
use keybridge_proto::mux::{self, End, Version};
use keybridge_remote::{Bridge, DiscoveredLane, Environment, Error, Settings, StopSignal};
use tokio::io::AsyncWriteExt;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{sleep, timeout};

use crate::command_line::serve::{FLUSH_TIME, Signals, link_result, open_process, run_to_end};
use sockets_variable::Sockets;

/// The name that an existing host starts the helper by.
pub(crate) const NAME: &str = "clawker-socket-server";

/// How long to wait for the keys.
const KEYS_TIME: Duration = Duration::from_secs(2);

/// Runs the helper to its end.
pub(crate) fn run() -> ExitCode {
    // Before anything is opened, since it may start the program again.
    let sockets = find_sockets();
    run_to_end(serve(sockets))
}

/// The sockets that the host asks for, as the user whom they are for.
fn find_sockets() -> Result<Sockets, Error> {
    let sockets = sockets_variable::read(std::env::var_os(sockets_variable::VARIABLE));
    let sockets = sockets.map_err(|error| Error::other(error.to_string()))?;
    socket_owner::become_owner(&sockets)?;
    Ok(sockets)
}

async fn serve(sockets: Result<Sockets, Error>) -> Result<(), Error> {
    let (signals, input, mut output) = open_process()?;
    let sockets = match sockets {
        Ok(sockets) => sockets,
        Err(error) => {
            send_last_error(&link_of(&[])?, &mut output, &error.one_line()).await;
            return Err(error);
        }
    };
    let lanes: Vec<Lane> =
        sockets.iter().filter(|(_, path)| path.is_some()).map(|(lane, _)| lane).collect();
    let (link, keys) = (link_of(&lanes)?, StopSignal::default());
    let ending =
        HelperEnd { running: run_link(link.clone(), input, output, keys.clone()), signals };
    let bridge = Bridge::new(Settings::default(), link.clone());
    let environment = Environment::of_process();
    Version1Helper { link, keys, bridge, sockets, environment }.serve(ending).await
}

/// What a helper of version 1 works with.
struct Version1Helper {
    link: Link,
    /// Set when the first keys have arrived.
    keys: StopSignal,
    bridge: Bridge,
    /// Those that aren't served yet.
    sockets: Sockets,
    environment: Environment,
}

impl Version1Helper {
    async fn serve(mut self, mut ending: HelperEnd) -> Result<(), Error> {
        let have_keys = tokio::select! {
            biased;
            () = self.keys.wait(), if self.waits_for(Lane::Gpg) => true,
            () = sleep(KEYS_TIME), if self.waits_for(Lane::Gpg) => false,
            end = ending.wait(), if self.waits_for(Lane::Gpg) => return self.stop(end).await,
            else => false,
        };
        let begun = match (have_keys, self.add(Lane::Ssh).await) {
            (true, Ok(())) => self.add(Lane::Gpg).await,
            (_, result) => result,
        };
        if let Err(error) = begun {
            self.tell(&error);
            let _ = timeout(FLUSH_TIME, self.link.flushed()).await;
            return self.stop(Err(error)).await;
        }
        if !have_keys {
            self.bridge.send_ready();
        }
        if !self.waits_for(Lane::Gpg) {
            self.bridge.receive_exports();
        }
        loop {
            tokio::select! {
                biased;
                end = ending.wait() => return self.stop(end).await,
                () = self.keys.wait(), if self.waits_for(Lane::Gpg) => {
                    if let Err(error) = self.add(Lane::Gpg).await {
                        tracing::error!("{error}; the ssh lane continues");
                        self.tell(&error);
                    }
                    self.bridge.receive_exports();
                }
            }
        }
    }

    fn waits_for(&self, lane: Lane) -> bool {
        self.sockets[lane].is_some()
    }

    /// Sets a lane up, if it is asked for.
    async fn add(&mut self, lane: Lane) -> Result<(), Error> {
        let Some(path) = self.sockets[lane].take() else { return Ok(()) };
        let home = DiscoveredLane::at(lane, &self.environment, path).await?;
        self.bridge.add(home).await
    }

    fn tell(&self, error: &Error) {
        if let Err(error) = self.link.with_mux(|mux| mux.fail(&error.one_line())) {
            tracing::debug!(%error, "can't send ERROR");
        }
    }

    async fn stop(self, end: Result<(), Error>) -> Result<(), Error> {
        self.bridge.stop().await?;
        end
    }
}

/// What ends a helper of version 1. It never outlives its link.
struct HelperEnd {
    running: JoinHandle<LinkEnd>,
    signals: Signals,
}

impl HelperEnd {
    async fn wait(&mut self) -> Result<(), Error> {
        tokio::select! {
            end = &mut self.running => link_result(end),
            _ = self.signals.next() => Ok(()),
        }
    }
}

fn link_of(lanes: &[Lane]) -> Result<Link, Error> {
    Link::new(mux::Config::new(End::Helper, Version::One, lanes))
        .map_err(|error| Error::other("can't set up the link").because(error))
}

fn run_link(link: Link, input: Input, mut output: Output, keys: StopSignal) -> JoinHandle<LinkEnd> {
    spawn_local(async move {
        let on_notice = |notice| match notice {
            Notice::KeysEnd => keys.set(),
            Notice::Hello(_)
            | Notice::Opened(..)
            | Notice::Ready(_)
            | Notice::Error(_)
            | Notice::Stop => tracing::debug!("ignored a notice that version 1 doesn't have"),
        };
        let end = link.run(&[], input, &mut output, on_notice).await;
        match &end {
            LinkEnd::Protocol(error) => {
                send_last_error(&link, &mut output, &error.to_string()).await;
            }
            LinkEnd::Eof | LinkEnd::Io(_) | LinkEnd::Silent => {}
        }
        end
    })
}

/// Sends ERROR over a link whose loops have ended or never started.
async fn send_last_error(link: &Link, output: &mut Output, text: &str) {
    let mut frame = Vec::new();
    let told = link.with_mux(|mux| {
        mux.fail(text)?;
        mux.transmit(&mut frame);
        Ok::<(), mux::LinkError>(())
    });
    if told.is_ok() {
        let _ = timeout(FLUSH_TIME, output.write_all(&frame)).await;
    }
}
