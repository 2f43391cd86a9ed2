//! The signals that the helper handles.

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals, from now on.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

/// What a signal asks for.
pub(crate) enum SignalRequest {
    /// The end of the bridge, as the host's STOP does.
    End,
    /// The end of the link: the process at its other end has gone.
    HangUp,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::End,
            _ = self.interrupt.recv() => SignalRequest::End,
            _ = self.hangup.recv() => SignalRequest::HangUp,
        }
    }

    /// Waits for one that ends the bridge. Without a link a hang-up means nothing.
    pub(crate) async fn end(&mut self) {
        loop {
            match self.next().await {
                SignalRequest::End => return,
                SignalRequest::HangUp => {}
            }
        }
    }
}
