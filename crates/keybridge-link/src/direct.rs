//! The second path of a link: a socket that both ends reach without whoever carries the first one.
//!
//! Each end sends SWITCH on the first path and goes on by the second one. When that breaks, each goes
//! on by the first path where it was, after the number of bytes that the second one took: what the
//! other end got is compared with it, so nothing is lost without a word, and nothing comes twice.
//! The first path stays open all the time, and its end is the end of the link.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::AsFd;

use keybridge_proto::direct::{PROOF_SIZE, Proof};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::{Link, UnixSocket, UnixSocketWriter};

/// The size of the number that comes first when the first path is taken again.
pub(crate) const COUNT_SIZE: usize = 8;

/// The helper's last word on a new path: it takes frames there from now on.
const TAKEN: u8 = 1;

/// The second path, if there is one.
#[derive(Debug, Default)]
pub(crate) struct DirectPath {
    reader: RefCell<Option<UnixSocket>>,
    writer: RefCell<Option<UnixSocketWriter>>,
    /// What is sent takes it.
    in_use: Cell<bool>,
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

    /// It is broken, or was given up; both directions are.
    pub(crate) fn broke(&self, socket: impl AsFd) {
        self.in_use.set(false);
        // One that is closed needs no shutting down.
        let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
    }
}

impl Link {
    /// Goes on by a socket whose other end has proved to be the helper, and lets the helper do so.
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

    /// Lets the host go on by a socket whose other end has proved to be the host, and tells it. When it
    /// does, this end does so too.
    pub fn may_go_direct(&self, socket: UnixStream) -> io::Result<()> {
        let socket = UnixSocket::new(socket)?;
        let mut writer = socket.writer()?;
        self.with_mux(keybridge_proto::mux::Endpoint::may_switch);
        // Nothing was written before, so there is room.
        writer.try_write(&[TAKEN])?;
        self.0.direct.put(socket, writer);
        Ok(())
    }

    /// Whether what is sent takes the second path.
    pub fn is_direct(&self) -> bool {
        self.0.direct.in_use.get()
    }
}

/// Shows the host that this is the helper, and has the host show itself. [`Link::may_go_direct`] comes
/// next.
pub async fn prove_to_host(socket: &mut UnixStream, ours: &Proof, host: &Proof) -> io::Result<()> {
    socket.write_all(ours.expose()).await?;
    check(socket, host).await
}

/// Has the helper show itself, shows it that this is the host, and waits until it takes the path. Nothing is
/// said to whoever isn't the helper.
pub async fn prove_to_helper(
    socket: &mut UnixStream,
    ours: &Proof,
    helper: &Proof,
) -> io::Result<()> {
    check(socket, helper).await?;
    socket.write_all(ours.expose()).await?;
    let mut taken = [0];
    socket.read_exact(&mut taken).await?;
    if taken == [TAKEN] { Ok(()) } else { Err(stranger()) }
}

async fn check(socket: &mut UnixStream, proof: &Proof) -> io::Result<()> {
    let mut shown = [0; PROOF_SIZE];
    socket.read_exact(&mut shown).await?;
    if proof.is(&shown) { Ok(()) } else { Err(stranger()) }
}

fn stranger() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "the other end doesn't know the secret")
}
