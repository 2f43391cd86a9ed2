//! Finds out who a client is, while its session already runs.

use std::sync::Arc;
use std::time::Duration;

use keybridge_link::ClientStream;
use keybridge_proto::gate::{Caller, CallerSlot};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::{spawn_blocking, spawn_local};
use tokio::time::timeout;
use tracing::Instrument;

use crate::Result;
use crate::platform::{CallerProcess, Peer, TargetProcesses};

/// How many clients may wait for being looked up; each needs a descriptor. More stay unknown.
const MOST_WAITING: usize = 256;
static WAITING: Semaphore = Semaphore::const_new(MOST_WAITING);

/// How many are looked up at once. A lookup takes a fraction of a millisecond.
static LOOKUPS: Semaphore = Semaphore::const_new(2);

/// How many command lines are read at once. A process can make that block for as long as it likes, so this
/// bounds the threads that it can hold.
static COMMAND_LINES: Semaphore = Semaphore::const_new(4);

/// How long a command line may take; without it, the other facts still count.
const COMMAND_LINE_TIME: Duration = Duration::from_millis(250);

/// Looks up the clients of one target.
#[derive(Debug, Clone)]
pub struct CallerLookup {
    target: Arc<TargetProcesses>,
}

impl CallerLookup {
    /// For clients of the container in which the helper with this pid runs.
    pub fn of_container(helper: i32) -> Result<Self> {
        Ok(Self { target: Arc::new(TargetProcesses::of_container(helper)?) })
    }

    /// For clients of a target that is this machine itself.
    pub fn of_this_machine() -> Result<Self> {
        Ok(Self { target: Arc::new(TargetProcesses::of_this_machine()?) })
    }

    /// Begins to look up the peer of a connected Unix socket. Nothing waits for the result. Must be called
    /// where local tasks can be spawned.
    pub fn begin(&self, client: &ClientStream) -> CallerSlot {
        let slot = CallerSlot::default();
        let Ok(place) = WAITING.try_acquire() else {
            tracing::debug!("too many clients wait for being looked up");
            return slot;
        };
        // Now, because the client may end at any time.
        match Peer::of(client) {
            Ok(peer) => {
                let (target, filled) = (Arc::clone(&self.target), slot.clone());
                let looking = async move {
                    let _place = place;
                    if let Some(caller) = look_up(target, peer).await {
                        tracing::debug!(%caller, "a client is known");
                        filled.fill(caller);
                    }
                };
                spawn_local(looking.in_current_span());
            }
            Err(error) => tracing::debug!(%error, "a client can't be looked up"),
        }
        slot
    }
}

/// None if the program is ending.
async fn look_up(target: Arc<TargetProcesses>, peer: Peer) -> Option<Caller> {
    let turn = LOOKUPS.acquire().await.ok()?;
    let (mut caller, process) = spawn_blocking(move || {
        let _turn = turn;
        target.identify(&peer)
    })
    .await
    .ok()?;
    if let Some(process) = process
        && let Ok(Some(line)) = timeout(COMMAND_LINE_TIME, command_line(process)).await
    {
        caller.program.set_arguments(&line);
    }
    Some(caller)
}

async fn command_line(process: CallerProcess) -> Option<Vec<u8>> {
    let turn = COMMAND_LINES.acquire().await.ok()?;
    let reading = spawn_blocking(move || {
        let _turn = turn;
        process.command_line()
    });
    reading.await.ok()?
}

/// The caller as `status --json` shows it, each fact with its source.
pub(crate) fn to_json(caller: &Caller) -> Value {
    let Caller { source, pid, uid, gid, container, place, program } = caller;
    let parents = program.parents.iter();
    let parents = parents.map(|parent| json!({ "pid": parent.pid, "name": parent.name.as_str() }));
    let claimed = json!({
        "executable": program.executable.as_ref().map(|path| path.as_str()),
        "arguments": program.arguments.iter().map(|text| text.as_str()).collect::<Vec<_>>(),
        "folder": program.folder.as_ref().map(|path| path.as_str()),
        "parents": parents.collect::<Vec<_>>(),
    });
    json!({
        "source": source.word(),
        "pid": pid,
        "uid": uid,
        "gid": gid,
        "container": container.as_ref().map(|id| id.as_str()),
        "place": place.word(),
        "claimed": claimed,
    })
}

crate::platform::tests_on_unix! {
    #[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    mod tests {
        use std::os::unix::net::{UnixListener, UnixStream};

        use keybridge_proto::gate::{Place, Program, Source, Text};
        use tokio::task::LocalSet;

        use super::*;

        /// Looks up the peer of a socket as a bridge does.
        async fn caller_of(socket: &UnixStream) -> Caller {
            let looking = async {
                let slot = CallerLookup::of_this_machine().unwrap().begin(socket);
                while slot.caller().is_none() {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                slot.caller().unwrap().clone()
            };
            timeout(Duration::from_secs(30), LocalSet::new().run_until(looking)).await.unwrap()
        }

        fn texts(texts: &[Text]) -> Vec<&str> {
            texts.iter().map(Text::as_str).collect()
        }

        /// One of these tests takes what the others need.
        static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

        #[tokio::test]
        async fn a_client_is_known_even_if_no_command_line_can_be_read() {
            let _turn = TURN.lock().await;
            let (socket, _other) = UnixStream::pair().unwrap();
            let caller = caller_of(&socket).await;
            assert_eq!(caller.pid, Some(std::process::id()));
            assert_eq!(caller.uid, rustix::process::getuid().as_raw());
            assert_eq!(caller.gid, rustix::process::getgid().as_raw());
            assert_eq!((caller.place, &caller.container), (Place::Target, &None), "{caller}");
            let own_file = std::env::current_exe().unwrap();
            let executable = caller.program.executable.as_ref().map(Text::as_str);
            assert_eq!(executable, own_file.to_str());
            let own_folder = std::env::current_dir().unwrap();
            assert_eq!(caller.program.folder.as_ref().map(Text::as_str), own_folder.to_str());
            let parent = std::os::unix::process::parent_id();
            assert_eq!(caller.program.parents.first().map(|parent| parent.pid), Some(parent));
            let own_words: Vec<String> = std::env::args().collect();
            assert_eq!(texts(&caller.program.arguments), own_words);

            let _held = COMMAND_LINES.acquire_many(4).await.unwrap();
            let without = caller_of(&socket).await;
            let program = Program { arguments: Vec::new(), ..caller.program.clone() };
            assert_eq!(without, Caller { program, ..caller });
        }

        #[tokio::test]
        async fn of_a_process_that_is_gone_the_kernel_still_knows_pid_and_user() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("S");
            let listener = UnixListener::bind(&path).unwrap();
            let mut child = std::process::Command::new("ssh-add");
            let child = child.arg("-l").env("SSH_AUTH_SOCK", &path);
            let mut child = child.stderr(std::process::Stdio::null()).spawn().unwrap();
            let (socket, _) = listener.accept().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            let caller = caller_of(&socket).await;
            assert_eq!(caller.pid, Some(child.id()));
            assert_eq!(caller.uid, rustix::process::getuid().as_raw());
            assert_eq!((caller.place, caller.container), (Place::Unknown, None));
            assert_eq!(caller.program, Program::default());
        }

        #[tokio::test]
        async fn a_name_of_a_program_is_claimed_and_cannot_control_a_terminal() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("S");
            let listener = UnixListener::bind(&path).unwrap();
            let _turn = TURN.lock().await;
            let program = folder.path().join("evil\u{1b}[31m\n");
            std::os::unix::fs::symlink("/usr/bin/ssh-add", &program).unwrap();
            let mut child = std::process::Command::new(&program);
            let child = child.arg("-l").env("SSH_AUTH_SOCK", &path).current_dir(folder.path());
            let mut child = child.stderr(std::process::Stdio::null()).spawn().unwrap();
            let (socket, _) = listener.accept().unwrap();
            let caller = caller_of(&socket).await;
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(caller.pid, Some(child.id()));
            assert!(texts(&caller.program.arguments)[0].ends_with("evil\\u{1b}[31m\\u{a}"), "{caller}");
            let shown = to_json(&caller);
            assert_eq!(shown["pid"], child.id());
            assert_eq!(shown["claimed"]["arguments"][1], "-l");
            assert_eq!(shown["place"], "target");
            assert!(!shown.to_string().contains(char::is_control), "{shown}");
            let told = if is_proven_here() { Source::Proven } else { Source::Claimed };
            assert_eq!(caller.source, told);
        }

        /// Whether the kernel has `SO_PEERPIDFD`.
        fn is_proven_here() -> bool {
            let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
            let mut numbers = release.split(['.', '-']).map(|number| number.parse::<u32>());
            let version = (numbers.next().unwrap().unwrap(), numbers.next().unwrap().unwrap());
            version >= (6, 5)
        }
    }
}
