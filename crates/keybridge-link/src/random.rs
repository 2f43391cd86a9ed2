//! Random bytes from the kernel.

use std::io;

/// Bytes that nobody can guess.
pub fn random<const SIZE: usize>() -> io::Result<[u8; SIZE]> {
    let mut bytes = [0; SIZE];
    let count = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if count == SIZE {
        Ok(bytes)
    } else {
        Err(io::Error::other("the kernel returned too few random bytes"))
    }
}
