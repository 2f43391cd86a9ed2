//! `keybridge watch` and the labels of Docker's containers.

use crate::any_engine::watch::{self, Watch};
use crate::lab::{Container, Docker, Image, Program, Relay, eventually};

#[test]
fn a_label_that_the_image_carries_bridges_nothing() {
    watch::a_label_that_the_image_carries_bridges_nothing(Program::Docker);
}

#[test]
fn each_container_has_a_process_of_its_own_that_ends_with_watch() {
    watch::each_container_has_a_process_of_its_own_that_ends_with_watch(Program::Docker);
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
