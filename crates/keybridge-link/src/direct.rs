//! The second path of a link: a socket between both ends that bypasses the engine.
//!
//! Each end sends SWITCH on the first path and continues on the second one. When that breaks, each
//! continues on the first path: it sends how many bytes it wrote to the second one, and the other end
//! compares that with how many it got. So nothing is lost unnoticed, and nothing arrives twice. The
//! first path stays open all the time, and its end is the end of the link.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use keybridge_proto::Lane;
use keybridge_proto::direct::{PROOF_SIZE, Proof, passed_as};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::UnixStream;

use crate::{Link, UnixSocket, UnixSocketWriter, now, receive_descriptors, send_descriptors};

/// The size of the byte count that is sent first when an end returns to the first path.
pub(crate) const COUNT_SIZE: usize = 8;

/// Sent by the helper when it is ready for frames on the second path.
const READY: u8 = 1;

/// The same, if the helper also passes its clients.
const READY_AND_PASSING: u8 = 2;

/// The second path, if there is one.
#[derive(Debug, Default)]
pub(crate) struct DirectPath {
    reader: RefCell<Option<UnixSocket>>,
    writer: RefCell<Option<UnixSocketWriter>>,
    /// It is used for sending.
    in_use: Cell<bool>,
    /// Over which the helper passes its clients to the host.
    passing: RefCell<Option<OwnedFd>>,
}

impl DirectPath {
    fn put(&self, reader: UnixSocket, writer: UnixSocketWriter) {
        self.reader.replace(Some(reader));
        self.writer.replace(Some(writer));
    }

    pub(crate) fn take_reader(&self) -> Option<UnixSocket> {
        self.reader.take()
    }

    pub(crate) fn take_writer(&self) -> Option<UnixSocketWriter> {
        let writer = self.writer.take();
        self.in_use.set(writer.is_some());
        writer
    }

    /// It is broken or given up, in both directions.
    pub(crate) fn broke(&self, socket: impl AsFd) {
        self.in_use.set(false);
        // An error means that it is closed already.
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
    }
}

impl Link {
    /// Switches to a socket whose other end has proved to be the helper, and lets the helper switch too.
    pub fn go_direct(&self, socket: UnixStream) -> io::Result<()> {
        let socket = UnixSocket::new(socket)?;
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
    pub fn may_go_direct(&self, socket: UnixStream, passing: Option<OwnedFd>) -> io::Result<()> {
        let socket = UnixSocket::new(socket)?;
        let mut writer = socket.writer()?;
        self.with_mux(keybridge_proto::mux::Endpoint::may_switch);
        // Nothing was written before, so this doesn't block.
        writer.try_write(&[if passing.is_some() { READY_AND_PASSING } else { READY }])?;
        self.0.direct.put(socket, writer);
        self.0.direct.passing.replace(passing);
        Ok(())
    }

    /// Passes a client's connection to the host, which serves it from then on. False if the link has to
    /// carry it, or if nothing has come from the host for a while: one that is held up serves no client.
    pub fn pass(&self, lane: Lane, client: impl AsFd) -> bool {
        let mut passing = self.0.direct.passing.borrow_mut();
        let is_alive = !self.is_over() && self.0.liveness.borrow().is_fresh(now());
        let Some(host) = passing.as_ref().filter(|_| is_alive) else { return false };
        match send_descriptors(host, &[passed_as(lane)], &[client.as_fd()]) {
            Ok(_) => true,
            // So many wait already that this one isn't slower on the link.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            Err(error) => {
                tracing::debug!(%error, "clients are no longer passed");
                *passing = None;
                false
            }
        }
    }

    /// The same, after the host has answered a PING. False if the link has to carry the client, or is
    /// over.
    pub async fn pass_if_alive(&self, lane: Lane, client: impl AsFd) -> bool {
        if self.0.direct.passing.borrow().is_none() {
            return false;
        }
        let before = self.0.last_pong.get();
        self.ping_now();
        while self.0.last_pong.get() == before && !self.is_over() {
            self.0.ponged.notified().await;
        }
        self.pass(lane, client)
    }

    /// Whether the second path is used for sending.
    pub fn is_direct(&self) -> bool {
        self.0.direct.in_use.get()
    }
}

/// Proves to the host that this is the helper, and checks the host's proof. [`Link::may_go_direct`]
/// comes next, with the socket over which the host wants clients to be passed, if it has sent one.
pub async fn prove_to_host(
    socket: &mut UnixStream,
    ours: &Proof,
    host: &Proof,
) -> io::Result<Option<OwnedFd>> {
    socket.write_all(ours.expose()).await?;
    let (mut shown, mut filled, mut descriptors) = ([0; PROOF_SIZE], 0, Vec::new());
    while let Some(rest) = shown.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let receive = || receive_descriptors(&*socket, &mut *rest, &mut descriptors);
        filled += match socket.async_io(Interest::READABLE, receive).await {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => count,
            // A sandbox can forbid descriptors.
            Err(_) => socket.read_exact(rest).await?,
        };
    }
    if host.is(&shown) { Ok(descriptors.pop()) } else { Err(wrong_secret()) }
}

/// Checks the helper's proof, proves that this is the host, and waits until the helper is ready.
/// Nothing is sent to a peer that isn't the helper. Returns whether the helper passes its clients over
/// the other end of `passing`.
pub async fn prove_to_helper(
    socket: &mut UnixStream,
    ours: &Proof,
    helper: &Proof,
    passing: Option<OwnedFd>,
) -> io::Result<bool> {
    let mut shown = [0; PROOF_SIZE];
    socket.read_exact(&mut shown).await?;
    if !helper.is(&shown) {
        return Err(wrong_secret());
    }
    let sent = match &passing {
        // Nothing was written before, so this doesn't block. A sandbox can forbid it.
        Some(passing) => send_descriptors(&*socket, ours.expose(), &[passing.as_fd()]).unwrap_or(0),
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
