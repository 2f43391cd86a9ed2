//! `keybridge watch` bridges what a person has asked for, each container by a process of its own.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use super::life::pid_of;
use crate::lab::{
    Container, ContainerLab, Image, Program, eventually, is_alive, run, signal, text,
};

/// A `keybridge watch` that runs, and what it says. It is ended in the end.
pub struct Watch {
    child: Child,
    said: std::path::PathBuf,
}

impl Watch {
    /// Watches for a label.
    pub fn start(scene: &ContainerLab, label: &str) -> Self {
        Self::run(scene.keybridge(["watch", "--label", label]), scene)
    }

    /// Watches for a label in the engine that answers there.
    pub fn start_at(scene: &ContainerLab, label: &str, docker_host: &str) -> Self {
        let mut watch = scene.keybridge(["watch", "--label", label]);
        watch.env("DOCKER_HOST", docker_host);
        Self::run(watch, scene)
    }

    fn run(mut watch: Command, scene: &ContainerLab) -> Self {
        let said = scene.lab.at(&format!("watch-{}", uuid::Uuid::new_v4().simple()));
        let file = File::create(&said).unwrap();
        watch.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Self { child: watch.spawn().unwrap(), said }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has said so far.
    pub fn said(&self) -> String {
        std::fs::read_to_string(&self.said).unwrap()
    }

    /// Kills it, so that it can do nothing more.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            signal(self.child.id(), Signal::TERM);
            let _ = self.child.wait();
        }
    }
}

/// An image with a label of its own. It is removed in the end.
struct LabelledImage {
    name: String,
    engine: Program,
}

impl LabelledImage {
    fn make(engine: Program, label: &str) -> Self {
        let name = format!("keybridge-test:{}", uuid::Uuid::new_v4().simple());
        let base = Container::start_in(engine, Image::Bookworm, &[]);
        let change = format!("LABEL {label}");
        run(&mut engine.command(["commit", "--change", &change, &base.name, &name]));
        Self { name, engine }
    }

    fn start(&self, options: &[&str]) -> Container {
        let name = format!("kbt-{}", uuid::Uuid::new_v4().simple());
        // It is started again by the test.
        let options = [&["--rm=false"], options].concat();
        Container::start_from(self.engine, name, &self.name, &options)
    }
}

impl Drop for LabelledImage {
    fn drop(&mut self) {
        let _ = self.engine.command(["rmi", "-f", &self.name]).output();
    }
}

fn new_label() -> String {
    format!("kbt-{}", uuid::Uuid::new_v4().simple())
}

fn is_bridged(scene: &ContainerLab, container: &Container) -> bool {
    scene
        .bridges()
        .iter()
        .any(|one| one["target"] == *container.address() && one["state"] == "ready")
}

#[track_caller]
pub fn a_label_that_the_image_carries_bridges_nothing(engine: Program) {
    let label = new_label();
    let (on, other) = (format!("{label}=on"), format!("{label}=mine"));
    let image = LabelledImage::make(engine, &on);
    // Declared before the containers of the image, which have to go before it does.
    let silent = image.start(&[]);
    let repeated = image.start(&["--label", &on]);
    let own_value = image.start(&["--label", &other]);
    let scene = ContainerLab::new_in(engine, Image::Bookworm, &["--label", &on]);

    let watch = Watch::start(&scene, &on);
    eventually("the one that a person labelled is bridged", || {
        is_bridged(&scene, &scene.container)
    });
    let skipped = |container: &Container| {
        let words = format!("{} is skipped", container.address());
        watch.said().lines().filter(|line| line.contains(&words)).count()
    };
    eventually("both are skipped", || skipped(&silent) + skipped(&repeated) == 2);
    // Another start is no reason to say it again. What comes after it is seen after it.
    run(&mut engine.command(["restart", "-t", "0", &silent.name]));
    let later = Container::start_in(engine, Image::Bookworm, &["--label", &on]);
    eventually("a later one is bridged", || is_bridged(&scene, &later));
    assert_eq!((skipped(&silent), skipped(&repeated)), (1, 1), "{}", watch.said());
    assert_eq!(skipped(&own_value), 0, "{}", watch.said());
    let line = watch.said();
    let line = line.lines().find(|line| line.contains("is skipped")).unwrap();
    assert!(line.contains("keybridge up ") && line.contains("another value"), "{line}");
    assert_eq!(scene.bridges().len(), 2);
    drop(watch);

    let watch = Watch::start(&scene, &other);
    eventually("the one with a value of its own is bridged", || is_bridged(&scene, &own_value));
    assert_eq!(scene.bridges().len(), 1, "{}", watch.said());
    drop(watch);

    // Any value: one of the image's own doesn't count either.
    let watch = Watch::start(&scene, &label);
    eventually("three are bridged", || {
        [&scene.container, &later, &own_value].into_iter().all(|one| is_bridged(&scene, one))
    });
    assert_eq!(scene.bridges().len(), 3, "{}", watch.said());
}

#[track_caller]
pub fn each_container_has_a_process_of_its_own_that_ends_with_watch(engine: Program) {
    let label = format!("{}=on", new_label());
    let options = ["--label", label.as_str()];
    let scene = ContainerLab::new_in(engine, Image::Bookworm, &options);
    let second = Container::start_in(engine, Image::Bookworm, &options);
    let are_bridged = || is_bridged(&scene, &scene.container) && is_bridged(&scene, &second);
    let watch = Watch::start(&scene, &label);
    eventually("both are bridged", are_bridged);
    let pids: Vec<u32> = scene.bridges().iter().map(pid_of).collect();
    assert!(pids[0] != pids[1] && !pids.contains(&watch.pid()), "{pids:?}");

    // One that starves or breaks doesn't harm the other, and comes back.
    let of_second =
        scene.bridges().iter().find(|one| one["target"] == *second.address()).map(pid_of);
    signal(of_second.unwrap(), Signal::KILL);
    assert!(scene.signs(None).status.success());
    eventually("it is bridged again", are_bridged);
    let log = text(&run(&mut scene.keybridge(["logs", &second.name])));
    assert!(log.contains(" ready\n"), "{log}");

    // What is killed can say nothing, and takes its bridges along.
    let pids: Vec<u32> = scene.bridges().iter().map(pid_of).collect();
    watch.kill();
    eventually("the bridges have ended", || !pids.iter().any(|&pid| is_alive(pid)));
    assert_eq!(scene.bridges().len(), 0);

    // The next one takes over, and ends well.
    let watch = Watch::start(&scene, &label);
    eventually("both are bridged again", are_bridged);
    drop(watch);
    assert_eq!(scene.bridges().len(), 0);
    for container in [&scene.container, &second] {
        assert_eq!(container.processes("keybridge-remote"), Vec::<String>::new());
    }
}

#[track_caller]
pub fn a_key_that_is_newer_than_watch_is_never_lent(engine: Program) {
    let label = format!("{}=on", new_label());
    let options = ["--label", label.as_str()];
    let scene = ContainerLab::new_in(engine, Image::Bookworm, &options);
    let watch = Watch::start(&scene, &label);
    eventually("it is bridged", || is_bridged(&scene, &scene.container));
    let lab = &scene.lab;
    let old = lab.host.keygrips()[1].clone();
    lab.host.add_key("new@x");
    let new = lab.host.keygrip_of("new@x");
    let later = Container::start_in(engine, Image::Bookworm, &options);
    eventually("the later one is bridged", || is_bridged(&scene, &later));
    let asked = |container: &Container, keygrip: &str| {
        let ask = format!("gpg-connect-agent --no-autostart 'HAVEKEY {keygrip}' /bye");
        text(&container.try_sh(None, &ask).stdout)
    };
    let check = || {
        for container in [&scene.container, &later] {
            assert_eq!(asked(container, &old), "OK\n");
            assert!(asked(container, &new).contains("No secret key"), "{}", container.name);
        }
        assert!(scene.bridges().iter().all(|one| one["lanes"]["gpg"]["held_back"] == 1));
    };
    check();
    // It is started again by itself.
    let of_later = scene.bridges().into_iter().find(|one| one["target"] == *later.address());
    let pid = of_later.as_ref().map(pid_of).unwrap();
    signal(pid, Signal::KILL);
    eventually("the process has ended", || !is_alive(pid));
    eventually("it is bridged again", || is_bridged(&scene, &later));
    check();
    // The next `watch` begins anew.
    drop(watch);
    let _watch = Watch::start(&scene, &label);
    eventually("both are bridged", || {
        is_bridged(&scene, &scene.container) && is_bridged(&scene, &later)
    });
    assert_eq!(asked(&later, &new), "OK\n");
}
