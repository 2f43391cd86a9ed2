//! Apple's systems. This compiles, and has never been run.

use std::os::unix::net::UnixStream;

use keybridge_proto::direct::{DirectOffer, Proof};

pub(crate) use super::polled_network::NetworkChanges;
use super::{HelperProcess, Passed};
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
    pub(crate) async fn next(&mut self) -> Result<Passed> {
        match *self {}
    }
}

/// The connection of a client that was passed.
#[derive(Debug)]
pub(crate) struct PassedSocket {
    /// The connection.
    pub(crate) socket: UnixStream,
    /// To be held for as long as the client is served.
    pub(crate) in_use: InUse,
}

/// There is no value of this type.
#[derive(Debug)]
pub(crate) enum InUse {}

/// Nothing: where the bytes are in the file isn't known, so those in memory are used.
pub(crate) const fn read_own_file(_: &'static [u8]) -> Option<Vec<u8>> {
    None
}
