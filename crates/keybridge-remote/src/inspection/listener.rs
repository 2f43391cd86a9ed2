//! Who listens at a lane's socket.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use keybridge_proto::inspection::Listener;
use tokio::time::timeout;

use super::PART_TIME;
use super::lane::number;
use crate::DiscoveredLane;
use crate::home::lock::LockState;
use crate::home::safe_path::euid;
use crate::lanes::agent_check;
use crate::socket::current_listener::{Activity, CurrentListener, PeerProcess, SYSTEMD};
use crate::subprocess::{command, run};

/// What the kernel calls our program: it cuts names to 15 bytes.
const PROGRAM: &str = "keybridge-remot";

/// Finds out what is at the path.
pub(super) async fn find(
    path: &Path,
    discovered: &DiscoveredLane,
    lock: Option<&LockState>,
    no_questions: bool,
) -> Listener {
    let identify = async {
        if let Some(lock) = lock.filter(|lock| no_questions && lock.is_held) {
            return helper(lock).await;
        }
        // To connect would start the agent.
        if let Some(units) = discovered.user_units()
            && units.would_start_at(path).await
        {
            let program = Some(SYSTEMD.to_owned());
            return Listener::Agent { pid: None, program, has_secret_keys: None };
        }
        match CurrentListener::find(path, discovered).await {
            Ok(CurrentListener::Nobody | CurrentListener::Stale) => Listener::Nobody,
            Ok(CurrentListener::Foreign(what)) => Listener::Unknown(what),
            Ok(CurrentListener::AgentWithoutKeys(who)) => agent(&who, Some(false)),
            Ok(CurrentListener::Alive(who, activity, _)) => match lock {
                Some(lock) if is_helper(&who, activity, lock) => helper(lock).await,
                Some(_) | None => other(path, discovered, &who, activity).await,
            },
            Err(error) => Listener::Unknown(error.to_string()),
        }
    };
    let late = || Listener::Unknown(format!("no answer within {} ms", PART_TIME.as_millis()));
    timeout(PART_TIME, identify).await.unwrap_or_else(|_| late())
}

/// Whether that is the helper that holds the lock, by its process, or by its program where one of them has no
/// pid here.
fn is_helper(who: &PeerProcess, activity: Activity, lock: &LockState) -> bool {
    let is_ours = || match who.program.as_deref() {
        Some(program) => program == PROGRAM,
        None => activity != Activity::AcceptsNoConnection,
    };
    let holder = lock.pid.map(|pid| pid.as_raw_nonzero().get());
    lock.is_held && (who.pid.is_some() && who.pid == holder || is_ours())
}

/// The helper that holds the lock.
async fn helper(lock: &LockState) -> Listener {
    let pid = lock.pid.and_then(number);
    Listener::Helper { pid, version: version_of(pid).await }
}

/// The version of a helper that runs: its program is asked, which may have been replaced on disk.
async fn version_of(pid: Option<u32>) -> Option<String> {
    let program = program_of(&PathBuf::from(format!("/proc/{}", pid?)))?;
    // The very file that was checked: the process may end, and another one get its id.
    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
    let output = run(command(Path::new(&path)).arg("--version")).await.ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.strip_prefix("keybridge-remote ")?.trim_end().to_owned())
}

/// The program of a process, if it is ours: one of the same user, with the same files. A container can share
/// the lane's folder with its host, and its processes can have the same uid; the host must not run their
/// programs.
fn program_of(process: &Path) -> Option<File> {
    let link = process.join("exe");
    let name = std::fs::read_link(&link).ok()?;
    let program = File::open(&link).ok()?;
    let files = |process: &Path| std::fs::read_link(process.join("ns/mnt")).ok();
    let is_ours = name.file_name()?.as_encoded_bytes().starts_with(PROGRAM.as_bytes())
        && std::fs::metadata(process).ok()?.uid() == euid()
        && files(process)? == files(Path::new("/proc/self"))?;
    is_ours.then_some(program)
}

async fn other(
    path: &Path,
    discovered: &DiscoveredLane,
    who: &PeerProcess,
    activity: Activity,
) -> Listener {
    match activity {
        Activity::AcceptsNoConnection | Activity::IsNoGpgAgent => {
            Listener::Unknown(format!("{who} {activity}"))
        }
        Activity::HasSecretKeys => agent(who, Some(true)),
        Activity::StartsAgents | Activity::IsRestricted => agent(who, None),
        Activity::Answers => match agent_check::ask(discovered.lane(), path).await {
            Ok(count) => agent(who, Some(count != "0")),
            Err(error) => Listener::Unknown(format!("{who}: {error}")),
        },
    }
}

fn agent(who: &PeerProcess, has_secret_keys: Option<bool>) -> Listener {
    let pid = who.pid.and_then(|pid| u32::try_from(pid).ok());
    Listener::Agent { pid, program: who.program.clone(), has_secret_keys }
}
