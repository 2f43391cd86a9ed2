//! The lines of gpg-agent's protocol, as far as client and stand-in need them.

/// A request that costs the agent next to nothing.
pub(crate) const SMALL_REQUEST: &[u8] = b"NOP\n";

/// The longest `D` line: 1000 bytes and its end.
const DATA_LINE: usize = 1001;

/// How many `D` lines are written at once: as many as a Unix socket takes without waiting.
const LINES_AT_ONCE: usize = 64;

/// `D` lines, together as long as one write should be.
pub(crate) fn data_lines() -> Vec<u8> {
    let mut line = b"D ".to_vec();
    line.resize(DATA_LINE - 1, b'x');
    line.push(b'\n');
    line.repeat(LINES_AT_ONCE)
}
