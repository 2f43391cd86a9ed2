//! What a process holds.

use super::Bridge;

/// The memory of a process in bytes, what it shares counted in proportion.
pub fn pss(pid: u32) -> u64 {
    rollup(pid, "Pss:")
}

/// The memory of both programs.
pub fn pss_of_both(bridge: &Bridge) -> u64 {
    pss(bridge.host_pid()) + pss(bridge.helper_pid())
}

/// What both programs have allocated. Unlike the whole it doesn't depend on how many other bridges
/// share the pages of the programs' files, and so on which tests run beside this one.
pub fn allocated(bridge: &Bridge) -> u64 {
    [bridge.host_pid(), bridge.helper_pid()].map(allocated_by).iter().sum()
}

/// What a process has allocated.
pub fn allocated_by(pid: u32) -> u64 {
    rollup(pid, "Pss_Anon:")
}

fn rollup(pid: u32, name: &str) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// How many descriptors the programs have open together.
pub fn descriptors(bridge: &Bridge) -> usize {
    let count = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    count(bridge.host_pid()) + count(bridge.helper_pid())
}
