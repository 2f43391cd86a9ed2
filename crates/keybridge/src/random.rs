//! Random bytes of the system.

use crate::{Error, Result};

/// Bytes that nobody can guess.
pub(crate) fn random<const SIZE: usize>() -> Result<[u8; SIZE]> {
    let mut bytes = [0; SIZE];
    let drawn = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match drawn {
        Ok(count) if count == SIZE => Ok(bytes),
        Ok(count) => Err(Error::failed(format!("the system gave {count} random bytes of {SIZE}"))),
        Err(error) => Err(Error::failed(format!("random bytes: {error}"))),
    }
}
