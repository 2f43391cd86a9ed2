//! The two loops of a link: one reads bytes into the mux, the other writes what the mux has ready.

use std::convert::Infallible;

use keybridge_proto::mux::LinkError;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{Link, LinkEnd, Notice, now};

/// The size of one read: two DATA frames with their headers.
const READ_SIZE: usize = 64 * 1024;

impl Link {
    /// Reads until the link ends. `first` was read before.
    pub(crate) async fn read(
        &self,
        first: &[u8],
        mut reader: impl AsyncRead + Unpin,
        on_notice: &mut impl FnMut(Notice),
    ) -> LinkEnd {
        match self.read_all(first, &mut reader, on_notice).await {
            Ok(never) => match never {},
            Err(end) => end,
        }
    }

    async fn read_all(
        &self,
        first: &[u8],
        reader: &mut (impl AsyncRead + Unpin),
        on_notice: &mut impl FnMut(Notice),
    ) -> Result<Infallible, LinkEnd> {
        let mut buffer = vec![0; READ_SIZE];
        self.receive(first, on_notice)?;
        loop {
            let count = match reader.read(&mut buffer).await? {
                0 => return Err(LinkEnd::Eof),
                count => count,
            };
            self.0.liveness.borrow_mut().heard(now());
            self.receive(buffer.get(..count).unwrap_or_default(), on_notice)?;
        }
    }

    /// Passes bytes to the mux and handles the events.
    fn receive(&self, bytes: &[u8], on_notice: &mut impl FnMut(Notice)) -> Result<(), LinkError> {
        self.0.mux.borrow_mut().pass_time(now());
        let result = self.0.mux.borrow_mut().receive(bytes);
        self.0.dispatching.set(true);
        // Events from before a fault are handled first.
        loop {
            let Some(event) = self.0.mux.borrow_mut().poll_event() else { break };
            self.dispatch(event, on_notice);
        }
        self.0.dispatching.set(false);
        self.0.transmit.notify_one();
        result
    }

    /// Writes what the mux has ready, until writing fails.
    pub(crate) async fn write(&self, mut writer: impl AsyncWrite + Unpin) -> LinkEnd {
        let mut frames = Vec::new();
        loop {
            frames.clear();
            {
                let mut mux = self.0.mux.borrow_mut();
                mux.transmit(&mut frames);
                self.wake_streams(&mut mux);
            }
            self.0.writing.set(!frames.is_empty());
            if frames.is_empty() {
                self.0.idle.notify_waiters();
                self.0.transmit.notified().await;
                continue;
            }
            let written = async {
                writer.write_all(&frames).await?;
                writer.flush().await
            };
            if let Err(error) = written.await {
                return error.into();
            }
        }
    }
}
