//! Limits of this process: core dumps and file descriptors.

#[cfg(target_os = "linux")]
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors for everything but sessions: the link, the log, the control socket and its clients, the
/// engine, programs that are run.
const BASE_DESCRIPTORS: u64 = 256;

/// Descriptors of a session: the agent's connection, and another one while it is dialled or its buffer is full.
const SESSION_DESCRIPTORS: u64 = 2;

/// Switches core dumps off: they could contain passphrases and nonces. Programs that are started from
/// here can raise the limit again. On Linux no other process of the user can read our memory either, as with
/// gpg-agent and ssh-agent.
pub fn forbid_core_dumps() {
    #[cfg(target_os = "linux")]
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "can't close this process to debuggers");
    }
    let limit = getrlimit(Resource::Core);
    // One byte is too little for a file. Zero would not keep Linux from piping a dump to a program.
    let current = limit.maximum.map_or(1, |maximum| maximum.min(1));
    let limit = Rlimit { current: Some(current), ..limit };
    if let Err(error) = setrlimit(Resource::Core, limit) {
        tracing::warn!(%error, "can't switch core dumps off");
    }
}

/// Raises the limit of file descriptors to what these sessions need. No further: some programs that are
/// started from here try every possible descriptor.
pub(crate) fn raise_descriptor_limit(sessions: usize) {
    let sessions = u64::try_from(sessions).unwrap_or(u64::MAX);
    let needed = sessions.saturating_mul(SESSION_DESCRIPTORS).saturating_add(BASE_DESCRIPTORS);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return;
    }
    let possible = maximum.map_or(needed, |maximum| maximum.min(needed));
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(possible), maximum });
    if raised.is_err() || possible < needed {
        tracing::warn!(
            "{sessions} sessions need {needed} file descriptors, but only {} are allowed (see ulimit -Hn)",
            getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
        );
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn no_other_process_of_the_user_reads_our_memory() {
        forbid_core_dumps();
        assert_eq!(rustix::process::dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    }
}
