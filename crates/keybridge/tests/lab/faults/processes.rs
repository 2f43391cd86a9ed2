//! The processes of a bridge, as the kernel and the engine see them.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use serde_json::Value;

use crate::lab::{PATIENCE, text};

/// The helper's processes that serve, in a container with this id.
pub fn helpers(container: &str) -> Vec<u32> {
    in_container(container).into_iter().filter(|pid| is_helper(*pid)).collect()
}

fn is_helper(pid: u32) -> bool {
    let words = command_line(pid);
    program(&words).starts_with("keybridge-remote")
        && words.get(1).is_some_and(|verb| verb == "serve")
}

/// The process that the engine started for the helper, by the engine's own word.
pub fn exec(engine: &Path, container: &str) -> Option<u32> {
    let container = ask(engine, &format!("/containers/{container}/json"));
    let execs = container["ExecIDs"].as_array()?.clone();
    let execs = execs.iter().filter_map(Value::as_str);
    let mut running = execs
        .map(|id| ask(engine, &format!("/exec/{id}/json")))
        .filter(|exec| exec["Running"] == true)
        .filter_map(|exec| u32::try_from(exec["Pid"].as_u64()?).ok());
    // The engine started a shell, which became the helper.
    running.find(|pid| is_helper(*pid))
}

/// What carries the streams of a container's processes between them and the engine.
pub fn shim(container: &str) -> Option<u32> {
    all().into_iter().find(|pid| {
        let words = command_line(*pid);
        program(&words).starts_with("containerd-shim") && words.iter().any(|word| word == container)
    })
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

/// Asks an engine by its API.
fn ask(engine: &Path, path: &str) -> Value {
    let mut stream = UnixStream::connect(engine).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}
