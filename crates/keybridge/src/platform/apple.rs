//! Apple's systems. This compiles, and has never been run.

use keybridge_link::LocalStream;
use keybridge_proto::direct::{DirectOffer, Proof};

pub(crate) use super::polled_network::NetworkChanges;
use crate::{Error, Result};

/// There is no direct path: every container runs on the kernel of a virtual machine.
pub(crate) async fn connect_directly(_pid: i32, _: DirectOffer, _: Proof) -> Result<LocalStream> {
    Err(Error::failed("the helper's process isn't on this machine's kernel"))
}

/// Nothing: where the bytes are in the file isn't known, so those in memory are used.
pub(crate) const fn read_own_file(_: &'static [u8]) -> Option<Vec<u8>> {
    None
}
