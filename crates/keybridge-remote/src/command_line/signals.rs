//! The signals that the helper handles.

use keybridge_remote::MAKE_WAY;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::serve::ServeEnd;

/// The signals, from now on.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    make_way: Signal,
}

/// What a signal asks for.
pub(crate) enum SignalRequest {
    /// The end of the bridge, as the host's STOP does.
    End,
    /// The end of the link: the process at its other end has gone.
    HangUp,
    /// The end of the process alone: a newer helper of the same bridge takes its place.
    MakeWay,
}

impl Signals {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            make_way: signal(SignalKind::from_raw(MAKE_WAY.as_raw()))?,
        })
    }

    pub(crate) async fn next(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.terminate.recv() => SignalRequest::End,
            _ = self.interrupt.recv() => SignalRequest::End,
            _ = self.hangup.recv() => SignalRequest::HangUp,
            _ = self.make_way.recv() => SignalRequest::MakeWay,
        }
    }

    /// Waits for one that ends the process. Without a link a hang-up means nothing.
    pub(crate) async fn end(&mut self) -> ServeEnd {
        loop {
            match self.next().await {
                SignalRequest::End => return ServeEnd::Stop,
                SignalRequest::MakeWay => return ServeEnd::MakeWay,
                SignalRequest::HangUp => {}
            }
        }
    }
}
