//! A lane: its socket, our lines, its lock, and what would start another agent.

use std::path::{Path, PathBuf};

use keybridge_proto::inspection::{AgentStarter, LaneFacts, Listener, StarterKind};
use rustix::process::Pid;
use tokio::time::timeout;

use super::{PART_TIME, listener};
use crate::home::lock::{LaneLock, LockState};
use crate::user_files::gpg_conf;
use crate::{DiscoveredLane, Environment};

/// A lane that can't be looked at.
pub(super) fn unusable(socket: Option<PathBuf>) -> LaneFacts {
    let socket = socket.map(|socket| socket.to_string_lossy().into_owned());
    let listener = Listener::Unknown("it was not looked at".to_owned());
    LaneFacts { socket, listener, ..LaneFacts::default() }
}

/// Looks at a lane.
pub(super) async fn inspect(
    discovered: &DiscoveredLane,
    environment: &Environment,
    no_questions: bool,
) -> LaneFacts {
    let lock = LaneLock::look(&LaneLock::path_in(discovered.path()));
    let (socket, listener) = used_socket(discovered, lock.as_ref(), no_questions).await;
    let edits = discovered.edits(&socket);
    let present: Option<Vec<bool>> = edits.iter().map(|edit| edit.block.is_present()).collect();
    let is_set_up = present.filter(|present| !present.is_empty());
    LaneFacts {
        socket: Some(socket.to_string_lossy().into_owned()),
        listener,
        is_set_up: is_set_up.map(|present| present.into_iter().all(|is_present| is_present)),
        starters: starters(discovered, environment, &socket).await,
        problem: None,
    }
}

pub(super) fn number(pid: Pid) -> Option<u32> {
    u32::try_from(pid.as_raw_nonzero().get()).ok()
}

/// The socket of a helper, or else the one that clients try first.
async fn used_socket(
    discovered: &DiscoveredLane,
    lock: Option<&LockState>,
    no_questions: bool,
) -> (PathBuf, Listener) {
    let mut first = None;
    for path in discovered.sockets() {
        let listener = listener::find(&path, discovered, lock, no_questions).await;
        if matches!(listener, Listener::Helper { .. }) {
            return (path, listener);
        }
        first.get_or_insert((path, listener));
    }
    first.unwrap_or_default()
}

async fn starters(
    discovered: &DiscoveredLane,
    environment: &Environment,
    socket: &Path,
) -> Vec<AgentStarter> {
    let units = async {
        match discovered.user_units() {
            Some(units) => units.starting_at(socket).await,
            None => Vec::new(),
        }
    };
    // It comes after the listener.
    let units = timeout(PART_TIME / 2, units).await.unwrap_or_default();
    let mut starters: Vec<AgentStarter> = units
        .into_iter()
        .map(|(unit, fix)| AgentStarter {
            kind: StarterKind::SystemdUnit,
            name: unit.to_string(),
            fix,
        })
        .collect();
    match discovered {
        DiscoveredLane::Gpg(gnupg) => {
            let block = gpg_conf::block(gnupg.home(), gnupg.version());
            let shown = block.path().display();
            starters.extend(gpg_conf::overriding_lines(&block).into_iter().map(|line| {
                AgentStarter {
                    kind: StarterKind::GpgConf,
                    name: format!("{shown}: {line}"),
                    fix: gpg_conf::how_to_remove_overriding(block.path()),
                }
            }));
        }
        DiscoveredLane::Git(_) => {}
        DiscoveredLane::Ssh(_) => {
            let named = environment.ssh_auth_sock.as_ref().filter(|named| *named != socket);
            starters.extend(named.map(|named| AgentStarter {
                kind: StarterKind::SshAuthSock,
                name: named.to_string_lossy().into_owned(),
                fix: "unset SSH_AUTH_SOCK".to_owned(),
            }));
        }
    }
    starters
}
