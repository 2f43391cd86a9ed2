//! The second path of a link: a socket between both ends that bypasses the engine.
//!
//! Each end sends SWITCH on the first path and continues on the second one. When that breaks, each
//! continues on the first path: it sends how many bytes it wrote to the second one, and the other end
//! compares that with how many it got. So nothing is lost unnoticed, and nothing arrives twice. The
//! first path stays open all the time, and its end is the end of the link.

use std::cell::{Cell, RefCell};
use std::io;

use keybridge_proto::direct::{PROOF_SIZE, Proof};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::platform::{read_with_passing, write_with_passing};
use crate::{Link, LocalSocket, LocalSocketWriter, LocalStream, PassingSocket};

/// The size of the byte count that is sent first when an end returns to the first path.
pub(crate) const COUNT_SIZE: usize = 8;

/// Sent by the helper when it is ready for frames on the second path.
const READY: u8 = 1;

/// The same, if the helper also passes its clients.
const READY_AND_PASSING: u8 = 2;

/// The second path, if there is one.
#[derive(Debug, Default)]
pub(crate) struct DirectPath {
    reader: RefCell<Option<LocalSocket>>,
    writer: RefCell<Option<LocalSocketWriter>>,
    /// It is used for sending.
    in_use: Cell<bool>,
    /// Over which the helper passes its clients to the host.
    pub(crate) passing: RefCell<Option<PassingSocket>>,
}

impl DirectPath {
    fn put(&self, reader: LocalSocket, writer: LocalSocketWriter) {
        self.reader.replace(Some(reader));
        self.writer.replace(Some(writer));
    }

    pub(crate) fn take_reader(&self) -> Option<LocalSocket> {
        self.reader.take()
    }

    pub(crate) fn take_writer(&self) -> Option<LocalSocketWriter> {
        let writer = self.writer.take();
        self.in_use.set(writer.is_some());
        writer
    }

    /// It is broken or given up, and closed in both directions.
    pub(crate) fn broke(&self) {
        self.in_use.set(false);
    }
}

impl Link {
    /// Switches to a socket whose other end has proved to be the helper, and lets the helper switch too.
    pub fn go_direct(&self, socket: LocalStream) -> io::Result<()> {
        let socket = LocalSocket::new(socket)?;
        let writer = socket.writer()?;
        self.0.direct.put(socket, writer);
        self.with_mux(|mux| {
            mux.may_switch();
            mux.switch();
        });
        Ok(())
    }

    /// Tells the host that it may switch to this socket, whose other end has proved to be the host.
    /// When it does, this end switches too. Clients are passed over `passing`, if the host has sent that.
    pub fn may_go_direct(
        &self,
        socket: LocalStream,
        passing: Option<PassingSocket>,
    ) -> io::Result<()> {
        let socket = LocalSocket::new(socket)?;
        let mut writer = socket.writer()?;
        self.with_mux(keybridge_proto::mux::Endpoint::may_switch);
        // Nothing was written before, so this doesn't block.
        writer.try_write(&[if passing.is_some() { READY_AND_PASSING } else { READY }])?;
        self.0.direct.put(socket, writer);
        self.0.direct.passing.replace(passing);
        Ok(())
    }

    /// Whether the second path is used for sending.
    pub fn is_direct(&self) -> bool {
        self.0.direct.in_use.get()
    }
}

/// Proves to the host that this is the helper, and checks the host's proof. [`Link::may_go_direct`]
/// comes next, with the socket over which the host wants clients to be passed, if it has sent one.
pub async fn prove_to_host(
    socket: &mut LocalStream,
    ours: &Proof,
    host: &Proof,
) -> io::Result<Option<PassingSocket>> {
    socket.write_all(ours.expose()).await?;
    let mut shown = [0; PROOF_SIZE];
    let passing = read_with_passing(socket, &mut shown).await?;
    if host.is(&shown) { Ok(passing) } else { Err(wrong_secret()) }
}

/// Checks the helper's proof, proves that this is the host, and waits until the helper is ready.
/// Nothing is sent to a peer that isn't the helper. Returns whether the helper passes its clients over
/// the other end of `passing`.
pub async fn prove_to_helper(
    socket: &mut LocalStream,
    ours: &Proof,
    helper: &Proof,
    passing: Option<PassingSocket>,
) -> io::Result<bool> {
    let mut shown = [0; PROOF_SIZE];
    socket.read_exact(&mut shown).await?;
    if !helper.is(&shown) {
        return Err(wrong_secret());
    }
    let sent = match &passing {
        // Nothing was written before, so this doesn't block.
        Some(passing) => write_with_passing(socket, ours.expose(), passing),
        None => 0,
    };
    socket.write_all(ours.expose().get(sent..).unwrap_or_default()).await?;
    let mut ready = [0];
    socket.read_exact(&mut ready).await?;
    match ready {
        [READY] => Ok(false),
        [READY_AND_PASSING] if passing.is_some() => Ok(true),
        _ => Err(wrong_secret()),
    }
}

fn wrong_secret() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the other end doesn't know the secret")
}
