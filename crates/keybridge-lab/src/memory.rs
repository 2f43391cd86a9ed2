//! What a process holds.

/// What a process has allocated, in bytes. Unlike the whole it doesn't depend on how many others share the
/// pages of the program's file, and so on which tests run beside this one.
pub fn allocated_by(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss_Anon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// How many descriptors a process has open.
pub fn descriptors_of(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}
