//! Users that have no number in this process's user namespace.

/// The uid that stands for all that aren't mapped.
pub fn overflow_uid() -> u32 {
    const DEFAULT: u32 = 65534;
    std::fs::read_to_string("/proc/sys/kernel/overflowuid")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(DEFAULT)
}
