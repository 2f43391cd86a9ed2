//! Reads parts of this program from its file.

use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;

/// Reads bytes of this program from its file instead of from memory.
pub(crate) fn read_own_file(bytes: &'static [u8]) -> Option<Vec<u8>> {
    let address = u64::try_from(bytes.as_ptr().addr()).ok()?;
    let maps = read_to_string("/proc/self/maps").ok()?;
    let offset = maps.lines().find_map(|line| offset_in(line, address))?;
    let mut read = vec![0; bytes.len()];
    File::open("/proc/self/exe").ok()?.read_exact_at(&mut read, offset).ok()?;
    Some(read)
}

/// The file offset of an address, if this line of `/proc/self/maps` covers it.
fn offset_in(line: &str, address: u64) -> Option<u64> {
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end, offset) = (hex(start)?, hex(end)?, hex(fields.nth(1)?)?);
    (start..end).contains(&address).then(|| offset + (address - start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_this_program_carries_can_be_read_from_its_file() {
        static CARRIED_HERE: &[u8] = b"some bytes that stand in this program's own file";
        assert_eq!(read_own_file(CARRIED_HERE).as_deref(), Some(CARRIED_HERE));
        assert_eq!(offset_in("1000-3000 r--p 00000200 08:01 7 /x", 0x1010), Some(0x210));
        assert_eq!(offset_in("1000-3000 r--p 00000200 08:01 7 /x", 0x3000), None);
    }
}
