//! `keybridge watch` and the labels of Docker's containers.

use rustix::process::Signal;

use crate::any_engine::life::pid_of;
use crate::any_engine::watch::{self, Watch};
use crate::lab::{
    self, Container, Docker, Image, Program, Relay, eventually, is_alive, run, signal,
};

#[test]
fn a_label_that_the_image_carries_bridges_nothing() {
    watch::a_label_that_the_image_carries_bridges_nothing(Program::Docker);
}

#[test]
fn each_container_has_a_process_of_its_own_that_ends_with_watch() {
    watch::each_container_has_a_process_of_its_own_that_ends_with_watch(Program::Docker);
}

#[test]
fn a_key_that_is_newer_than_watch_is_never_lent() {
    watch::a_key_that_is_newer_than_watch_is_never_lent(Program::Docker);
}

#[test]
fn what_is_to_be_undone_is_never_forgotten_by_a_watch_that_has_reached_nothing() {
    let label = format!("kbt-{}=on", uuid::Uuid::new_v4().simple());
    let docker = Docker::new(Image::Bookworm, &["--label", &label]);
    docker.up(&[]);
    let pause = |word: &str| run(&mut lab::docker([word, docker.container.id.as_str()]));
    pause("pause");
    docker.down();
    pause("unpause");
    let set_mode = |mode| docker.container.sh(None, &format!("chmod {mode} /root/.gnupg"));
    set_mode("777");
    let watch = Watch::start(&docker, &label);
    let has_failed = |bridge: &serde_json::Value| bridge["state"] == "failed";
    eventually("it makes no link", || docker.bridges().iter().any(has_failed));
    drop(watch);
    eventually("its bridge has ended", || docker.bridges().is_empty());
    set_mode("700");
    assert!(docker.down().contains("undone"));
    assert!(docker.down().contains("is not bridged"));
}

#[test]
fn a_bridge_whose_settings_are_lost_is_never_started_by_watch() {
    let label = format!("kbt-{}=on", uuid::Uuid::new_v4().simple());
    let docker = Docker::new(Image::Bookworm, &["--label", &label]);
    docker.up(&["--uses", "sign"]);
    let pid = pid_of(&docker.bridges()[0]);
    signal(pid, Signal::KILL);
    eventually("it has ended", || !is_alive(pid));
    let folders = std::fs::read_dir(docker.lab.at("state")).unwrap().flatten();
    let mut files = folders.map(|folder| folder.path().join("settings.json"));
    std::fs::remove_file(files.find(|file| file.exists()).unwrap()).unwrap();
    let watch = Watch::start(&docker, &label);
    eventually("it says who can start it", || {
        watch.said().contains("run `keybridge up` again, which shows what is lent")
    });
    assert_eq!(docker.bridges().len(), 0);
}

#[test]
fn a_container_whose_image_cannot_be_seen_is_skipped() {
    let label = format!("kbt-{}=on", uuid::Uuid::new_v4().simple());
    let docker = Docker::new(Image::Bookworm, &["--label", &label]);
    let relay = Relay::refusing("/var/run/docker.sock".as_ref(), "/images/");
    let watch = Watch::start_at(&docker, &label, &relay.host());
    let skipped = |container: &Container| {
        let words = format!("{} is skipped", container.address());
        watch.said().lines().filter(|line| line.contains(&words)).count()
    };
    eventually("it is skipped", || skipped(&docker.container) == 1);
    let later = Container::start(Image::Bookworm, &["--label", &label]);
    eventually("a later one too", || skipped(&later) == 1);
    assert!(watch.said().contains("no image"), "{}", watch.said());
    assert_eq!(skipped(&docker.container), 1);
    assert_eq!(docker.bridges().len(), 0);
}
