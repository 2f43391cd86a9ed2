//! Random bytes from the kernel.

use std::io;

/// Bytes that nobody can guess.
pub fn random<const SIZE: usize>() -> io::Result<[u8; SIZE]> {
    let mut bytes = [0; SIZE];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
