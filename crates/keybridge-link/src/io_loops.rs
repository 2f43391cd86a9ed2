//! The two loops of a link: one reads bytes into the mux, the other writes what the mux has ready.

use std::convert::Infallible;
use std::io;

use keybridge_proto::mux::{Event, LinkError, SILENCE_LIMIT};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::sleep_until;

use crate::direct::COUNT_SIZE;
use crate::{Link, LinkEnd, LocalSocket, LocalSocketWriter, Notice, now};

/// The size of one read: two DATA frames with their headers.
const READ_SIZE: usize = 64 * 1024;

/// How many reads empty the buffer of a socket.
const LAST_READS: usize = 16;

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
        let mut held = self.read_until_switched(reader, &mut buffer, on_notice).await?;
        let direct = self.0.direct.take_reader().ok_or(LinkError::UnexpectedSwitch)?;
        let came = self.read_direct(direct, reader, &mut held, &mut buffer, on_notice).await?;
        while held.len() < COUNT_SIZE {
            let count = read_some(reader, &mut buffer).await?;
            held.extend_from_slice(buffer.get(..count).unwrap_or_default());
        }
        self.0.liveness.borrow_mut().heard(now());
        let (sent, rest) = held.split_at(COUNT_SIZE);
        let sent = sent.try_into().map_or(0, u64::from_be_bytes);
        if sent != came {
            let message = format!("the direct path lost bytes: {sent} were sent, {came} came");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message).into());
        }
        self.receive(rest, on_notice)?;
        self.read_until_switched(reader, &mut buffer, on_notice).await?;
        // The mux allows one switch only.
        Err(LinkError::UnexpectedSwitch.into())
    }

    /// Reads on the first path until the peer switches to the second one. Returns what came after that.
    async fn read_until_switched(
        &self,
        reader: &mut (impl AsyncRead + Unpin),
        buffer: &mut [u8],
        on_notice: &mut impl FnMut(Notice),
    ) -> Result<Vec<u8>, LinkEnd> {
        loop {
            let count = read_some(reader, buffer).await?;
            self.0.liveness.borrow_mut().heard(now());
            let bytes = buffer.get(..count).unwrap_or_default();
            let (taken, has_switched) = self.receive(bytes, on_notice)?;
            if has_switched {
                return Ok(bytes.get(taken..).unwrap_or_default().to_vec());
            }
        }
    }

    /// Reads on the second path until it ends, and returns how many bytes came. What comes on the
    /// first path meanwhile is stored, and its end is the end of the link.
    async fn read_direct(
        &self,
        mut direct: LocalSocket,
        reader: &mut (impl AsyncRead + Unpin),
        held: &mut Vec<u8>,
        buffer: &mut [u8],
        on_notice: &mut impl FnMut(Notice),
    ) -> Result<u64, LinkEnd> {
        let mut came = 0;
        let mut beside = [0; 256];
        // A peer that returned to the first path has closed the second one.
        let shut_by = || tokio::time::Instant::now() + SILENCE_LIMIT;
        let mut until = (!held.is_empty()).then(shut_by);
        let end = loop {
            let count = tokio::select! {
                biased;
                read = direct.read(buffer) => match read {
                    Ok(0) | Err(_) => break None,
                    Ok(count) => count,
                },
                read = read_some(reader, &mut beside), if held.is_empty() => match read {
                    Ok(count) => {
                        held.extend_from_slice(beside.get(..count).unwrap_or_default());
                        until = Some(shut_by());
                        continue;
                    }
                    Err(end) => break Some(end),
                },
                () = sleep_until(until.unwrap_or_else(shut_by)), if until.is_some() => {
                    break None;
                }
            };
            self.0.liveness.borrow_mut().heard(now());
            came += u64::try_from(count).unwrap_or(u64::MAX);
            self.receive(buffer.get(..count).unwrap_or_default(), on_notice)?;
        };
        if let Some(end) = end {
            // The peer's last bytes are still in the socket's buffer. More than fits there would mean
            // that it goes on writing.
            for _ in 0..LAST_READS {
                let Ok(count @ 1..) = direct.try_read(buffer) else { break };
                self.receive(buffer.get(..count).unwrap_or_default(), on_notice)?;
            }
            return Err(end);
        }
        direct.close();
        self.0.direct.broke();
        Ok(came)
    }

    /// Passes bytes to the mux and handles the events. Returns how many were taken, and whether the
    /// peer switches to the second path after them.
    fn receive(
        &self,
        bytes: &[u8],
        on_notice: &mut impl FnMut(Notice),
    ) -> Result<(usize, bool), LinkError> {
        let result = self.0.mux.borrow_mut().receive(bytes);
        self.0.dispatching.set(true);
        let mut has_switched = false;
        // Events from before a fault are handled first.
        loop {
            let Some(event) = self.0.mux.borrow_mut().poll_event() else { break };
            if event == Event::Switched {
                has_switched = true;
                self.0.mux.borrow_mut().switch();
            } else {
                self.dispatch(event, on_notice);
            }
        }
        self.0.dispatching.set(false);
        self.0.transmit.notify_one();
        result.map(|taken| (taken, has_switched))
    }

    /// Writes what the mux has ready, until writing fails.
    pub(crate) async fn write(&self, mut writer: impl AsyncWrite + Unpin) -> LinkEnd {
        let mut frames = Vec::new();
        let mut direct: Option<DirectWriter> = None;
        loop {
            frames.clear();
            let has_switched = {
                let mut mux = self.0.mux.borrow_mut();
                mux.transmit(&mut frames);
                self.wake_streams(&mut mux);
                mux.has_switched()
            };
            self.0.writing.set(!frames.is_empty());
            if frames.is_empty() {
                self.0.idle.notify_waiters();
                self.0.transmit.notified().await;
                continue;
            }
            if let Some(path) = &mut direct {
                let sent = path.write(&frames).await;
                if sent < frames.len() {
                    tracing::info!("the direct path broke; the link goes on without it");
                    path.writer.close();
                    self.0.direct.broke();
                    frames.splice(..sent, path.sent.to_be_bytes());
                    direct = None;
                } else {
                    continue;
                }
            }
            let written = async {
                writer.write_all(&frames).await?;
                writer.flush().await
            };
            if let Err(error) = written.await {
                return error.into();
            }
            if has_switched && let Some(writer) = self.0.direct.take_writer() {
                direct = Some(DirectWriter { writer, sent: 0 });
            }
        }
    }
}

/// The writing side of the second path.
struct DirectWriter {
    writer: LocalSocketWriter,
    /// How many bytes were written.
    sent: u64,
}

impl DirectWriter {
    /// Writes all bytes, or as many as it can before the path breaks. Returns how many.
    async fn write(&mut self, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.writer.write(rest).await {
                Ok(0) | Err(_) => break,
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
            }
        }
        let count = bytes.len() - rest.len();
        self.sent += u64::try_from(count).unwrap_or(u64::MAX);
        count
    }
}

async fn read_some(
    reader: &mut (impl AsyncRead + Unpin),
    buffer: &mut [u8],
) -> Result<usize, LinkEnd> {
    match reader.read(buffer).await {
        Ok(0) => Err(LinkEnd::Eof),
        Ok(count) => Ok(count),
        Err(error) => Err(error.into()),
    }
}
