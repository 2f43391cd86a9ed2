//! The processes of a bridge, as the kernel sees them.

use std::path::Path;

use crate::lab::text;

/// The helper's processes that serve, in a container with this id.
pub fn helpers(container: &str) -> Vec<u32> {
    in_container(container).into_iter().filter(|pid| is_helper(*pid)).collect()
}

fn is_helper(pid: u32) -> bool {
    let words = command_line(pid);
    program(&words).starts_with("keybridge-remote")
        && words.get(1).is_some_and(|verb| verb == "serve")
}

/// The processes of `keybridge` whose bridges are in this folder, whatever became of their parents.
pub fn of_bridges(state: &Path) -> Vec<u32> {
    let is_ours = |pid: &u32| program(&command_line(*pid)).starts_with("keybridge");
    with_setting("KEYBRIDGE_STATE", state).into_iter().filter(is_ours).collect()
}

/// The processes that have a setting in their environment. The agent that a bridge has started has it
/// too, and is left out: it is the host's.
pub fn with_setting(name: &str, value: &Path) -> Vec<u32> {
    let setting = format!("{name}={}", value.display());
    let has_it = |pid: &u32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut environment = environment.split(|byte| *byte == 0);
        environment.any(|one| one == setting.as_bytes())
            && !program(&command_line(*pid)).starts_with("gpg-agent")
    };
    all().into_iter().filter(has_it).collect()
}

/// All processes of a container, those that have ended and were not waited for left out.
pub fn in_container(container: &str) -> Vec<u32> {
    let is_there = |pid: &u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .is_ok_and(|groups| groups.contains(container))
            && !command_line(*pid).is_empty()
    };
    all().into_iter().filter(is_there).collect()
}

/// The first process of a container, which is there as long as it is.
pub fn first_of(container: &str) -> Option<u32> {
    let is_first = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        numbers.and_then(|numbers| numbers.split_whitespace().next_back()) == Some("1")
    };
    in_container(container).into_iter().find(is_first)
}

fn all() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

fn command_line(pid: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).map(text).collect()
}

fn program(words: &[String]) -> &str {
    words.first().and_then(|path| path.rsplit('/').next()).unwrap_or_default()
}
