//! What systems have in common on which no target can run: containers run on the kernel of a virtual
//! machine, so there is no direct path, and no client is passed.
#![allow(
    clippy::unused_async,
    clippy::needless_pass_by_value,
    reason = "functions have the form that they have on Linux"
)]

use std::convert::Infallible;
use std::io;
use std::task::{Context, Poll};

use keybridge_link::{ClientStream, ReadOutcome, SendQueue};
use keybridge_proto::Lane;
use keybridge_proto::direct::{DirectOffer, Proof};
use keybridge_proto::gate::Caller;

use super::HelperProcess;
use crate::bridge::DirectConnection;
use crate::{Error, Result};

/// There is no direct path: every container runs on the kernel of a virtual machine.
pub(crate) async fn connect_directly(
    _: HelperProcess,
    _: DirectOffer,
    _: Proof,
    _passes: bool,
) -> Result<DirectConnection> {
    Err(Error::failed("the helper's process isn't on this machine's kernel"))
}

/// No client is passed: there is no value of this type.
#[derive(Debug)]
pub enum PassedClients {}

impl PassedClients {
    /// Never called.
    pub(crate) async fn next(&mut self) -> Result<Received> {
        match *self {}
    }
}

/// The connection of a client that was passed.
#[derive(Debug)]
pub(crate) struct PassedSocket {
    /// The connection.
    pub(crate) socket: ClientStream,
    never: Infallible,
}

impl PassedSocket {
    /// Never called.
    pub(crate) const fn refuse(self, _reply: &[u8]) {
        match self.never {}
    }
}

/// The connection of a passed client that is served, of which there is none.
#[derive(Debug)]
pub(crate) enum PassedConnection {}

impl PassedConnection {
    /// Never called, like the others.
    pub(crate) const fn new(socket: PassedSocket) -> io::Result<Self> {
        match socket.never {}
    }

    /// Reads what is there.
    pub(crate) const fn read(&mut self, _: &mut [u8]) -> io::Result<ReadOutcome> {
        match *self {}
    }

    /// Writes what the socket takes.
    pub(crate) const fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    /// Has small messages wait in a queue.
    pub(crate) const fn join(&mut self, _: &SendQueue) {
        match *self {}
    }

    /// Sends what waits in the queue.
    pub(crate) const fn flush(&self) -> bool {
        match *self {}
    }

    /// Ready when something is new.
    pub(crate) const fn poll_changed(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match *self {}
    }

    /// The client is gone both ways.
    pub(crate) const fn hung_up(&self) -> bool {
        match *self {}
    }
}

/// What the helper has passed.
#[derive(Debug)]
#[expect(dead_code, reason = "nothing is passed")]
pub(crate) enum Received {
    /// A client of a lane.
    Client(PassedSocket, Lane),
    /// A client that isn't to be served, and is closed already.
    Refused,
    /// Nothing more comes.
    End,
}

/// None: there are few clients, and they come over the link.
pub(crate) const fn send_queue() -> Option<SendQueue> {
    None
}

/// Nothing: where the bytes are in the file isn't known, so those in memory are used.
pub(crate) const fn read_own_file(_: &'static [u8]) -> Option<Vec<u8>> {
    None
}

/// Nothing is known of a client here: none comes over a path on which it is passed.
#[derive(Debug)]
pub(crate) enum Peer {}

impl Peer {
    /// An error always.
    pub(crate) fn of(_: &ClientStream) -> Result<Self> {
        Err(Error::failed("this system doesn't say who a client is"))
    }
}

/// The processes of a target, of which nothing is known here.
#[derive(Debug)]
pub(crate) enum TargetProcesses {}

impl TargetProcesses {
    /// An error always.
    pub(crate) fn of_container(_helper: i32) -> Result<Self> {
        Err(Error::failed("the helper's process isn't on this machine's kernel"))
    }

    /// An error always.
    pub(crate) fn of_this_machine() -> Result<Self> {
        Err(Error::failed("no client is passed on this system"))
    }

    /// Never called, for there is no value of this type.
    pub(crate) const fn identify(&self, _: &Peer) -> (Caller, Option<CallerProcess>) {
        match *self {}
    }
}

/// A caller's process, of which there is none here.
#[derive(Debug)]
pub(crate) enum CallerProcess {}

impl CallerProcess {
    /// Never called, for there is no value of this type.
    pub(crate) const fn command_line(&self) -> Option<Vec<u8>> {
        match *self {}
    }
}
