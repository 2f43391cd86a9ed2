//! What is told of a client equals the truth, in each kind of container and beside it.

use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use keybridge::caller::CallerLookup;
use keybridge_proto::gate::{Caller, Place, Source, Text};
use tempfile::TempDir;

use crate::lab::{Container, Engine, Image, PATIENCE, Program, command, eventually, run, text};

/// Where containers see the folder with the socket.
const SHARED: &str = "/shared";

const CLIENT: &str = "gpg-connect-agent";

/// A socket that containers share with this machine.
struct Shared {
    folder: TempDir,
    listener: UnixListener,
}

/// A client that is connected.
struct Connected {
    child: Child,
    socket: UnixStream,
    mark: String,
}

impl Shared {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("S")).unwrap();
        listener.set_nonblocking(true).unwrap();
        for path in [folder.path().to_owned(), folder.path().join("S")] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
        }
        Self { folder, listener }
    }

    fn volume(&self) -> String {
        format!("{}:{SHARED}", self.folder.path().display())
    }

    fn container(&self, engine: Program, options: &[&str]) -> Container {
        let volume = self.volume();
        let options = [&["-v", &*volume], options].concat();
        Container::start_in(engine, Image::Bookworm, &options)
    }

    fn connect_from(
        &self,
        container: &Container,
        user: Option<&str>,
        before: &[&str],
    ) -> Connected {
        let path = format!("{SHARED}/S");
        self.connect(&path, before, |words| container.command(user, words))
    }

    fn connect_from_here(&self) -> Connected {
        let path = self.folder.path().join("S").to_str().unwrap().to_owned();
        self.connect(&path, &[], |words| {
            let mut client = command(words[0]);
            client.args(&words[1..]).env("GNUPGHOME", self.folder.path());
            client
        })
    }

    /// Has gpg's own client connect. It waits for a greeting, which doesn't come.
    fn connect(
        &self,
        path: &str,
        before: &[&str],
        command: impl FnOnce(&[&str]) -> Command,
    ) -> Connected {
        let mark = uuid::Uuid::new_v4().to_string();
        let words = [before, &[CLIENT, "--raw-socket", path, &mark]].concat();
        let child = command(&words).stderr(Stdio::null()).spawn().unwrap();
        let mut accepted = None;
        eventually("the client connects", || {
            accepted = self.listener.accept().ok();
            accepted.is_some()
        });
        Connected { child, socket: accepted.unwrap().0, mark }
    }
}

impl Connected {
    /// Its pid on this machine, found by its arguments alone.
    fn pid(&self) -> u32 {
        let has_mark = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            text(&line).starts_with(&format!("{CLIENT}\0")) && text(&line).contains(&self.mark)
        };
        let all = std::fs::read_dir("/proc").unwrap();
        let pids = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
        let found: Vec<u32> = pids.filter(has_mark).collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found[0]
    }

    async fn caller(&self, lookup: &CallerLookup) -> Caller {
        let looking = async {
            let slot = lookup.begin(&self.socket);
            while slot.caller().is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            slot.caller().unwrap().clone()
        };
        let tasks = tokio::task::LocalSet::new();
        tokio::time::timeout(PATIENCE, tasks.run_until(looking)).await.unwrap()
    }

    /// What is told has to be true; returns where the client is said to run.
    async fn checked(&self, lookup: &CallerLookup, container: Option<&str>) -> Place {
        let caller = self.caller(lookup).await;
        let pid = self.pid();
        assert_eq!((caller.source, caller.pid), (Source::Proven, Some(pid)), "{caller}");
        let (uid, gid) = (own_id(pid, "Uid:"), own_id(pid, "Gid:"));
        assert_eq!((caller.uid, caller.gid), (uid, gid), "{caller}");
        let told = caller.container.as_ref().map(|id| id.as_str());
        assert_eq!(told, container, "{caller}");
        let arguments: Vec<_> = caller.program.arguments.iter().map(Text::as_str).collect();
        assert_eq!((arguments[0], arguments[3]), (CLIENT, &*self.mark));
        let executable = caller.program.executable.as_ref().unwrap().as_str();
        assert!(executable.ends_with(CLIENT), "{caller}");
        caller.place
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = self.child.wait();
    }
}

/// The real id in this line of a process's status.
fn own_id(pid: u32, line: &str) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let ids = status.lines().find_map(|found| found.strip_prefix(line)).unwrap();
    ids.split_whitespace().next().unwrap().parse().unwrap()
}

/// Looks up callers as for a target whose helper is the first process of this container.
fn lookup(container: &Container) -> CallerLookup {
    lookup_in(&mut container.engine.command(["inspect", "-f", PID, &container.name]))
}

fn lookup_in(inspect: &mut Command) -> CallerLookup {
    CallerLookup::of_container(text(&run(inspect)).trim().parse().unwrap()).unwrap()
}

/// What engines print for this is the first process of a container.
const PID: &str = "{{.State.Pid}}";

async fn is_told_in(engine: Program) {
    let shared = Shared::new();
    let target = shared.container(engine, &[]);
    let other = shared.container(engine, &[]);
    let lookup = lookup(&target);
    for (user, uid) in [(None, 0), (Some("dev"), 1000)] {
        let client = shared.connect_from(&target, user, &[]);
        assert_eq!(client.checked(&lookup, Some(&target.id)).await, Place::Target);
        assert_eq!(own_id(client.pid(), "Uid:"), uid);
    }
    let client = shared.connect_from(&other, None, &[]);
    assert_eq!(client.checked(&lookup, Some(&other.id)).await, Place::OtherContainer);
    let client = shared.connect_from_here();
    assert_eq!(client.checked(&lookup, None).await, Place::Host);
    let this_machine = CallerLookup::of_this_machine().unwrap();
    assert_eq!(client.checked(&this_machine, None).await, Place::Target);
    let client = shared.connect_from(&target, None, &[]);
    assert_eq!(client.checked(&this_machine, Some(&target.id)).await, Place::OtherContainer);
}

#[tokio::test]
async fn callers_are_told_in_docker() {
    is_told_in(Program::Docker).await;
}

#[tokio::test]
async fn callers_are_told_in_podman() {
    is_told_in(Program::Podman).await;
}

#[tokio::test]
async fn callers_are_told_where_users_are_remapped() {
    let first = 200_000;
    let engine = Engine::start_remapped(first);
    let shared = Shared::new();
    let volume = shared.volume();
    let id = engine.container(Image::Bookworm, "web", &["-v", &volume]);
    let lookup = lookup_in(&mut engine.docker(["inspect", "-f", PID, "web"]));
    for (user, uid) in [("root", first), ("dev", first + 1000)] {
        let path = format!("{SHARED}/S");
        let client = shared.connect(&path, &[], |words| {
            let mut client = engine.docker(["exec", "-i", "--user", user, "web"]);
            client.args(words);
            client
        });
        assert_eq!(client.checked(&lookup, Some(&id)).await, Place::Target);
        assert_eq!(own_id(client.pid(), "Uid:"), uid);
    }
}

#[tokio::test]
async fn a_container_that_shares_the_pid_namespace_is_another_one() {
    let shared = Shared::new();
    let target = shared.container(Program::Docker, &[]);
    let namespace = format!("container:{}", target.name);
    let beside = shared.container(Program::Docker, &["--pid", &namespace]);
    let client = shared.connect_from(&beside, None, &[]);
    assert_eq!(client.checked(&lookup(&target), Some(&beside.id)).await, Place::OtherContainer);
    let of_the_machine = shared.container(Program::Docker, &["--pid", "host"]);
    let client = shared.connect_from(&of_the_machine, None, &[]);
    assert_eq!(
        client.checked(&lookup(&target), Some(&of_the_machine.id)).await,
        Place::OtherContainer
    );
    let own = lookup(&of_the_machine);
    assert_eq!(client.checked(&own, Some(&of_the_machine.id)).await, Place::Target);
    assert_eq!(shared.connect_from_here().checked(&own, None).await, Place::Host);
}

/// Moves a process out of its container's cgroups, as an engine in the container could do with those of
/// the machine at hand.
fn leave_cgroups(pid: u32) {
    let root = std::path::Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    let files = hierarchies.chain([root.to_owned()]).map(|folder| folder.join("cgroup.procs"));
    let moved = files.filter(|file| std::fs::write(file, pid.to_string()).is_ok()).count();
    assert!(moved > 0);
}

#[tokio::test]
async fn a_pid_namespace_below_the_target_is_in_it() {
    let shared = Shared::new();
    let may_unshare = ["--cap-add", "SYS_ADMIN", "--security-opt", "seccomp=unconfined"];
    let target = shared.container(Program::Docker, &may_unshare);
    let lookup = lookup(&target);
    let below = shared.connect_from(&target, None, &["unshare", "--pid", "--fork"]);
    assert_eq!(below.checked(&lookup, Some(&target.id)).await, Place::Target);
    leave_cgroups(below.pid());
    assert_eq!(below.checked(&lookup, None).await, Place::Target);
    // The same namespace alone doesn't show it: another container could have joined it.
    let beside = shared.connect_from(&target, None, &[]);
    leave_cgroups(beside.pid());
    assert_eq!(beside.checked(&lookup, None).await, Place::Unknown);
}
