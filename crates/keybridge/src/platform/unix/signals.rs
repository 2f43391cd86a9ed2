//! The signals that end a bridge.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{Error, Result};

/// Catches SIGINT, SIGTERM and SIGHUP.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn new() -> Result<Self> {
        let catch = |kind| {
            signal(kind).map_err(|error| Error::failed("can't catch signals").caused_by(error))
        };
        Ok(Self {
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            hang_up: catch(SignalKind::hangup())?,
        })
    }

    /// Waits for one of them.
    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
}
