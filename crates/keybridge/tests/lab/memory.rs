//! What a process holds.

use super::Bridge;

/// The memory of a process in bytes, what it shares counted in proportion.
pub fn pss(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// The memory of both programs.
pub fn at_rest(bridge: &Bridge) -> u64 {
    pss(bridge.host_pid()) + pss(bridge.helper_pid())
}

/// How many descriptors each program has open.
pub fn descriptors(bridge: &Bridge) -> (usize, usize) {
    let count = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    (count(bridge.host_pid()), count(bridge.helper_pid()))
}
