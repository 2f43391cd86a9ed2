//! How Podman is found, followed and left, and which engine a name means.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::any_engine::life::pid_of;
use crate::any_engine::presence::{self, does, local, seen};
use crate::lab::{
    Container, ContainerLab, Image, PATIENCE, PodmanSocket, Program, eventually, gpg_version,
    is_alive, output, run, signal, text,
};
use keybridge::engine::{Engine, EngineKind};
use keybridge::target::Presence;
use rustix::process::Signal;
use tokio::time::timeout;

/// Where root's Podman answers if the machine has it as a service. Then none is started for us.
const SERVICE_OF_THE_MACHINE: &str = "/run/podman/podman.sock";

fn new(image: Image) -> ContainerLab {
    ContainerLab::new_in(Program::Podman, image, &[])
}

/// The service that a process has started for itself.
fn service_of(pid: u32) -> Option<u32> {
    assert!(
        std::os::unix::net::UnixStream::connect(SERVICE_OF_THE_MACHINE).is_err(),
        "this test needs a machine where nobody answers at {SERVICE_OF_THE_MACHINE}"
    );
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    children.split_whitespace().map(|child| child.parse().unwrap()).find(|child: &u32| {
        std::fs::read_to_string(format!("/proc/{child}/comm")).is_ok_and(|name| name == "podman\n")
    })
}

/// The folder that a service answers in.
fn folder_of(service: u32) -> String {
    let line = text(&std::fs::read(format!("/proc/{service}/cmdline")).unwrap());
    let socket = line.split('\0').find_map(|word| word.strip_prefix("unix://")).unwrap().to_owned();
    socket.strip_suffix("/sock").unwrap().to_owned()
}

/// Runs a command that has to be refused with a hint.
#[track_caller]
fn refused(command: &mut Command, status: i32, words: &[&str]) -> String {
    let output = output(command);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }
    assert!(said.contains("\n  → "), "{said}");
    assert!(!said.replace('\n', "").contains(char::is_control), "{said:?}");
    said
}

#[test]
fn a_service_that_a_bridge_has_started_is_its_own_and_ends_with_it() {
    use std::os::unix::fs::PermissionsExt;
    let scene = new(Image::Bookworm);
    scene.up(&[]);
    let bridge = pid_of(&scene.bridges()[0]);
    let service = service_of(bridge).expect("the bridge has a service");
    let folder = folder_of(service);
    let mode = std::fs::metadata(&folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    scene.down();
    eventually("the service has ended", || !is_alive(service));
    eventually("its folder is gone", || !Path::new(&folder).exists());
}

#[test]
fn a_service_ends_with_a_bridge_that_is_killed() {
    let scene = new(Image::Bookworm);
    scene.up(&[]);
    let bridge = pid_of(&scene.bridges()[0]);
    let service = service_of(bridge).expect("the bridge has a service");
    // The helper lives on, and the service would wait for its end.
    let folder = folder_of(service);
    signal(bridge, Signal::KILL);
    eventually("the service has ended", || !is_alive(service));
    assert_eq!(scene.helpers().len(), 1);
    // The next bridge takes over from it, and its folder is removed.
    scene.up(&[]);
    assert!(!Path::new(&folder).exists());
    assert!(scene.signs(None).status.success());
    scene.down();
    assert_eq!(scene.helpers(), Vec::<String>::new());
}

#[test]
fn a_service_that_is_killed_is_started_again() {
    let scene = new(Image::Bookworm);
    scene.up(&[]);
    let bridge = pid_of(&scene.bridges()[0]);
    let service = service_of(bridge).expect("the bridge has a service");
    signal(service, Signal::KILL);
    eventually("another one runs", || service_of(bridge).is_some_and(|other| other != service));
    eventually("gpg signs", || scene.signs(None).status.success());
    assert_eq!(pid_of(&scene.bridges()[0]), bridge);
    scene.down();
    assert_eq!(scene.helpers(), Vec::<String>::new());
}

#[test]
fn a_socket_that_is_named_is_used() {
    let scene = new(Image::Bookworm);
    let mut socket = PodmanSocket::open();
    let keybridge = |words: &[&str]| {
        let mut command = scene.keybridge(words.iter().copied());
        command.env("CONTAINER_HOST", socket.host());
        command
    };
    let name = scene.container.name.as_str();
    let shown = text(&run(&mut keybridge(&["up", name])));
    assert!(shown.contains(&format!("gpg-agent {} answers", gpg_version())), "{shown}");
    let bridge = pid_of(&scene.bridges()[0]);
    assert_eq!(service_of(bridge), None);
    assert!(scene.signs(None).status.success());
    run(&mut keybridge(&["down", name]));
    assert_eq!(scene.helpers(), Vec::<String>::new());
    // One that nobody answers at is not passed over: it was named.
    let mut up = keybridge(&["up", &scene.container.address()]);
    socket.kill();
    refused(&mut up, 3, &["Podman engine", "nothing answers there", "podman.socket"]);
}

#[test]
fn what_happens_to_a_container_is_seen() {
    let socket = PodmanSocket::open();
    local(async {
        let engine = Engine::connect_to(EngineKind::Podman, &socket.host()).await.unwrap();
        presence::what_happens_is_seen(&engine, Program::Podman).await;
    });
}

#[test]
fn a_service_that_goes_and_comes_back_is_followed() {
    let mut socket = PodmanSocket::open();
    let container = Container::start_in(Program::Podman, Image::Bare, &[]);
    local(async {
        let engine = Engine::connect_to(EngineKind::Podman, &socket.host()).await.unwrap();
        let (target, _) = engine.find(&container.name, None).await.unwrap();
        let mut following = target.follow().await;
        socket.kill();
        let is_away = |presence: &Presence| matches!(presence, Presence::Unreachable(_));
        let Ok(Presence::Unreachable(error)) = timeout(PATIENCE, following.wait_for(is_away)).await
        else {
            panic!("not seen: {:?}", following.now())
        };
        assert!(error.message.contains(&socket.host()), "{error}");
        // Containers don't care whether somebody serves them.
        does(Program::Podman, ["pause", &container.name]).await;
        socket.start_again();
        seen(&mut following, Presence::Paused).await;
        does(Program::Podman, ["unpause", &container.name]).await;
        seen(&mut following, Presence::Running).await;
    });
}

#[test]
fn a_name_that_both_engines_have_must_be_told_apart() {
    let scene = new(Image::Bookworm);
    let (name, address) = (scene.container.name.clone(), scene.container.address());
    let of_docker = Container::start_named(Program::Docker, name.clone(), Image::Bookworm, &[]);
    for verb in ["up", "down", "status", "sync", "logs"] {
        let words = ["both Docker and Podman", &of_docker.address(), &address];
        refused(&mut scene.keybridge([verb, &name]), 2, &words);
    }
    // By its id, or with its engine, each is one of them.
    let shown = text(&run(&mut scene.keybridge(["up", &scene.container.id[..12]])));
    assert!(shown.contains(" is bridged; "), "{shown}");
    let shown = text(&run(&mut scene.keybridge(["up", &address])));
    assert!(shown.contains("is bridged already"), "{shown}");
    let shown = text(&run(&mut scene.keybridge(["up", &of_docker.address()])));
    assert!(shown.contains(" is bridged; "), "{shown}");
    let mut targets: Vec<_> = scene
        .bridges()
        .iter()
        .map(|bridge| bridge["target"].as_str().unwrap().to_owned())
        .collect();
    targets.sort();
    assert_eq!(targets, [of_docker.address(), address.clone()]);
    run(&mut scene.keybridge(["down", &address]));
    assert_eq!(scene.helpers(), Vec::<String>::new());
    assert_eq!(of_docker.processes("keybridge-remote").len(), 1);
    run(&mut scene.keybridge(["down", &of_docker.address()]));
}

#[test]
fn a_container_that_is_not_there_or_does_not_run() {
    let scene = new(Image::Bare);
    let name = scene.container.name.as_str();
    let words = ["no container kbt-none in Docker or Podman", "docker ps", "podman ps"];
    refused(&mut scene.keybridge(["up", "kbt-none"]), 3, &words);
    let words = ["no container kbt-none in Podman", "podman ps"];
    refused(&mut scene.keybridge(["up", "podman://kbt-none"]), 3, &words);
    refused(&mut scene.keybridge(["up", &format!("docker://{name}")]), 3, &["in Docker"]);

    run(&mut Program::Podman.command(["pause", name]));
    let fix = format!("podman unpause {name}");
    refused(&mut scene.up_command(&[]), 3, &[name, "is paused", &fix]);
    run(&mut Program::Podman.command(["unpause", name]));

    let other = format!("{name}-2");
    let mut create = Program::Podman.command(["create", "--network", "none", "--name", &other]);
    let id = text(&run(create.args([Image::Bare.name(), "true"]))).trim().to_owned();
    let other = Container { name: other, id, engine: Program::Podman };
    let fix = format!("podman start {}", other.name);
    refused(&mut scene.keybridge(["up", &other.name]), 3, &["was never started", &fix]);
    run(&mut Program::Podman.command(["start", "--attach", &other.id]));
    refused(&mut scene.keybridge(["up", &other.name]), 3, &["isn't running", &fix]);
}

#[test]
fn a_prefix_of_two_ids() {
    let scene = new(Image::Bare);
    let mut others: Vec<Container> = Vec::new();
    // Two of seventeen share one of sixteen digits.
    let digit = loop {
        let other = Container::start_in(Program::Podman, Image::Bare, &[]);
        let digit = other.id[..1].to_owned();
        let is_shared = others.iter().any(|before| before.id.starts_with(&digit));
        others.push(other);
        if is_shared {
            break digit;
        }
    };
    let address = format!("podman://{digit}");
    refused(&mut scene.keybridge(["up", &address]), 3, &["more than one container"]);
}

#[test]
fn a_user_that_does_not_exist() {
    let scene = new(Image::Bookworm);
    let before = scene.container.listing();
    let words = ["no user nobody-here", "podman exec", "--user"];
    refused(&mut scene.up_command(&["--user", "nobody-here"]), 1, &words);
    scene.container.assert_unchanged(&before);
}

#[test]
fn a_podman_that_is_not_there_or_does_not_work() {
    let mut scene = new(Image::Bare);
    let address = scene.container.address();
    let mut up = scene.keybridge(["up", &address]);
    up.env("PATH", scene.lab.at("bin"));
    refused(&mut up, 3, &["no socket", "no program podman", "CONTAINER_HOST"]);
    for host in ["unix:///nowhere/podman.sock", "ssh://engine"] {
        let mut up = scene.keybridge(["up", &address]);
        refused(up.env("CONTAINER_HOST", host), 3, &[host, "CONTAINER_HOST"]);
    }
    let fails = "printf 'first\\nError: \\033[31mno storage\\n' >&2; exit 125";
    scene.lab.put_before("podman", fails);
    refused(
        &mut scene.keybridge(["up", &address]),
        3,
        &["ended at once", "no storage", "podman info"],
    );
    // Which is no reason not to find a container of Docker's.
    let of_docker = Container::start(Image::Bookworm, &[]);
    run(&mut scene.keybridge(["up", &of_docker.name]));
    run(&mut scene.keybridge(["down", &of_docker.name]));
}

/// A `keybridge watch` that runs. It is ended in the end.
struct Watch(Child);

impl Drop for Watch {
    fn drop(&mut self) {
        signal(self.0.id(), Signal::TERM);
        let _ = self.0.wait();
    }
}

#[test]
fn watch_bridges_containers_of_both_engines_as_they_come() {
    let label = format!("keybridge-test={}", uuid::Uuid::new_v4().simple());
    let options = ["--label", label.as_str()];
    let scene = ContainerLab::new_in(Program::Podman, Image::Bookworm, &options);
    let of_docker = Container::start(Image::Bookworm, &options);
    let mut watch = scene.keybridge(["watch", "--label", &label]);
    let watch = Watch(watch.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let mut containers = vec![of_docker];
    let signs = |container: &Container| {
        let sign = "echo words | gpg --batch --clear-sign";
        container.try_sh(None, sign).status.success()
    };
    eventually("both sign", || signs(&scene.container) && signs(&containers[0]));
    // Those that come later too.
    for engine in [Program::Podman, Program::Docker] {
        containers.push(Container::start_in(engine, Image::Bookworm, &options));
    }
    eventually("the new ones sign", || containers.iter().all(signs));
    let mut targets: Vec<_> = scene
        .bridges()
        .iter()
        .map(|bridge| bridge["target"].as_str().unwrap().to_owned())
        .collect();
    targets.sort();
    let mut addresses: Vec<_> = containers.iter().map(Container::address).collect();
    addresses.push(scene.container.address());
    addresses.sort();
    assert_eq!(targets, addresses);
    // One that is put down stays so while it runs.
    run(&mut scene.keybridge(["down", &scene.container.name]));
    assert_eq!(scene.bridges().len(), 3);
    let service = service_of(watch.0.id()).expect("one service for all");
    drop(watch);
    eventually("the service has ended", || !is_alive(service));
    assert_eq!(scene.bridges().len(), 0);
    for container in &containers {
        assert_eq!(container.processes("keybridge-remote"), Vec::<String>::new());
    }
}
