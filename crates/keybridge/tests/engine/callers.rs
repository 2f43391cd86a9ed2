//! What is told of a client equals the truth, in each kind of container and beside it.

use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use keybridge::caller::CallerLookup;
use keybridge_proto::gate::{Caller, Place, Source, Text};
use tempfile::TempDir;

use serde_json::{Value, json};

use crate::lab::{
    Container, ContainerLab, Engine, Image, Lab, PATIENCE, Program, command, eventually, feed,
    local, run, set_mode, text,
};

/// Where containers see the folder with the socket.
const SHARED: &str = "/shared";

const CLIENT: &str = "gpg-connect-agent";

/// A socket that containers share with this machine.
struct Shared {
    folder: TempDir,
    listener: UnixListener,
}

/// gpg's own client, which stays connected until its input ends or its connection is shut down.
struct Client {
    child: Child,
    /// An argument by which its process is found.
    mark: String,
}

/// A client that is connected to a socket of ours, and the connection.
struct Connected {
    client: Client,
    socket: UnixStream,
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

    /// The client waits for a greeting, which doesn't come.
    fn connect(
        &self,
        path: &str,
        before: &[&str],
        command: impl FnOnce(&[&str]) -> Command,
    ) -> Connected {
        let client = Client::start(path, before, command);
        let mut accepted = None;
        eventually("the client connects", || {
            accepted = self.listener.accept().ok();
            accepted.is_some()
        });
        Connected { client, socket: accepted.unwrap().0 }
    }
}

impl Client {
    fn start(path: &str, before: &[&str], command: impl FnOnce(&[&str]) -> Command) -> Self {
        let mark = uuid::Uuid::new_v4().to_string();
        let words = [before, &[CLIENT, "--raw-socket", path, &mark]].concat();
        let mut client = command(&words);
        client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Self { child: client.spawn().unwrap(), mark }
    }

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
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

impl Connected {
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
        let pid = self.client.pid();
        assert_eq!((caller.source, caller.pid), (Source::Proven, Some(pid)), "{caller}");
        let (uid, gid) = (own_id(pid, "Uid:"), own_id(pid, "Gid:"));
        assert_eq!((caller.uid, caller.gid), (uid, gid), "{caller}");
        let told = caller.container.as_ref().map(|id| id.as_str());
        assert_eq!(told, container, "{caller}");
        let arguments: Vec<_> = caller.program.arguments.iter().map(Text::as_str).collect();
        assert_eq!((arguments[0], arguments[3]), (CLIENT, &*self.client.mark));
        let executable = caller.program.executable.as_ref().unwrap().as_str();
        assert!(executable.ends_with(CLIENT), "{caller}");
        caller.place
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
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
        assert_eq!(own_id(client.client.pid(), "Uid:"), uid);
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
        assert_eq!(own_id(client.client.pid(), "Uid:"), uid);
    }
}

/// The helper doesn't know the host's user there, so there is no direct path.
#[test]
fn through_the_engine_nobody_is_told_where_users_are_remapped() {
    let engine = Engine::start_remapped(300_000);
    engine.container(Image::Bookworm, "web", &[]);
    let scene = ContainerLab::new(Image::Bare, &[]);
    let (target, host) = ("docker://web", engine.host());
    run(scene.keybridge(["up", target, "--log", "debug"]).env("DOCKER_HOST", &host));
    eventually("the direct path is given up", || {
        text(&run(&mut scene.keybridge(["logs", target]))).contains("no direct path")
    });
    let status = || status_of(&scene, target);
    let socket = status()["lanes"]["gpg"]["socket"].as_str().unwrap().to_owned();
    let client = Client::start(&socket, &[], |words| {
        let mut client = engine.docker(["exec", "-i", "web"]);
        client.args(words);
        client
    });
    eventually("the client is served", || status()["lanes"]["gpg"]["open"] == 1);
    assert_eq!(
        (&status()["path"], &status()["lanes"]["gpg"]["callers"]),
        (&json!("exec"), &Value::Null)
    );
    drop(client);
    run(scene.keybridge(["down", target]).env("DOCKER_HOST", &host));
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
    leave_cgroups(below.client.pid());
    assert_eq!(below.checked(&lookup, None).await, Place::Target);
    // The same namespace alone doesn't show it: another container could have joined it.
    let beside = shared.connect_from(&target, None, &[]);
    leave_cgroups(beside.client.pid());
    assert_eq!(beside.checked(&lookup, None).await, Place::Unknown);
}

/// The status of a bridge to this target.
fn status_of(scene: &ContainerLab, target: &str) -> Value {
    scene.bridges().into_iter().find(|bridge| bridge["target"] == *target).unwrap_or_default()
}

/// Bridges a target, and waits until its clients are passed. Returns the socket of its gpg lane.
fn bridge(scene: &ContainerLab, target: &str, options: &[&str]) -> String {
    run(scene.keybridge(["up", target, "--log", "debug"]).args(options));
    eventually("clients are passed", || status_of(scene, target)["path"] == "passed");
    status_of(scene, target)["lanes"]["gpg"]["socket"].as_str().unwrap().to_owned()
}

/// What `status --json` tells of a client of a bridge has to be true; returns its place.
fn told_place(
    scene: &ContainerLab,
    target: &str,
    client: &Client,
    container: Option<&str>,
) -> String {
    let mut told = Value::Null;
    eventually("the client is known", || {
        let status = status_of(scene, target);
        let callers = status["lanes"]["gpg"]["callers"].as_array().cloned().unwrap_or_default();
        let mut ours = callers.into_iter();
        let ours = ours.find(|caller| caller["claimed"]["arguments"][3] == *client.mark);
        told = ours.unwrap_or_default();
        !told.is_null()
    });
    let pid = client.pid();
    assert_eq!((&told["source"], &told["pid"]), (&json!("proven"), &json!(pid)), "{told}");
    let (uid, gid) = (own_id(pid, "Uid:"), own_id(pid, "Gid:"));
    assert_eq!((&told["uid"], &told["gid"]), (&json!(uid), &json!(gid)), "{told}");
    assert_eq!(told["container"], json!(container), "{told}");
    assert_eq!(told["claimed"]["arguments"][0], CLIENT, "{told}");
    told["place"].as_str().unwrap().to_owned()
}

fn status_tells_in(engine: Program) {
    for (user, uid) in [("root", 0), ("dev", 1000)] {
        let scene = ContainerLab::new_in(engine, Image::Bookworm, &[]);
        let (target, id) = (scene.container.address(), &*scene.container.id);
        let socket = bridge(&scene, &target, &["--user", user]);
        let client =
            Client::start(&socket, &[], |words| scene.container.command(Some(user), words));
        assert_eq!(told_place(&scene, &target, &client, Some(id)), "target");
        assert_eq!(own_id(client.pid(), "Uid:"), uid);
        let pid = client.pid();
        let log = text(&run(&mut scene.keybridge(["logs", &target])));
        let line = log.lines().find(|line| line.contains(&format!("pid {pid}, uid {uid}, ")));
        let line = line.unwrap_or_else(|| panic!("{log}"));
        assert!(line.contains("DEBUG") && line.contains("proven") && line.contains(id), "{line}");
        drop(client);
        eventually("nobody is told of after the end", || {
            let gpg = &status_of(&scene, &target)["lanes"]["gpg"];
            gpg["open"] == 0 && gpg["callers"].is_null()
        });
    }
}

#[test]
fn status_tells_who_asks_in_docker() {
    status_tells_in(Program::Docker);
}

#[test]
fn status_tells_who_asks_in_podman() {
    status_tells_in(Program::Podman);
}

#[test]
fn status_tells_a_client_of_another_container_on_a_shared_volume_apart() {
    let folder = tempfile::tempdir().unwrap();
    set_mode(folder.path(), 0o700);
    let volume = ["-v", &format!("{}:/root/.gnupg", folder.path().display())];
    let scene = ContainerLab::new(Image::Bookworm, &volume);
    let other = Container::start(Image::Bookworm, &volume);
    let target = scene.container.address();
    let socket = bridge(&scene, &target, &[]);
    let client = Client::start(&socket, &[], |words| other.command(None, words));
    assert_eq!(told_place(&scene, &target, &client, Some(&other.id)), "other-container");
    let from_here = folder.path().join(socket.rsplit('/').next().unwrap());
    let client = Client::start(from_here.to_str().unwrap(), &[], here(&scene.lab));
    assert_eq!(told_place(&scene, &target, &client, None), "host");
    // It is told apart, and served as on the other paths.
    assert!(feed(&mut other.command(None, SIGN), b"words\n").status.success());
}

const SIGN: [&str; 3] = ["gpg", "--batch", "--clear-sign"];

#[test]
fn status_tells_who_asks_on_this_machine() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    let target = local(scene.lab.target.path());
    let socket = bridge(&scene, &target, &[]);
    let client = Client::start(&socket, &[], here(&scene.lab));
    assert_eq!(told_place(&scene, &target, &client, None), "target");
    drop(client);
    run(&mut scene.keybridge(["down", &target]));
}

/// A command on this machine, in the environment of the second home.
fn here(lab: &Lab) -> impl FnOnce(&[&str]) -> Command {
    |words| {
        let mut command = lab.target.command(words[0]);
        command.args(&words[1..]);
        command
    }
}
