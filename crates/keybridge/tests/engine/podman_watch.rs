//! `keybridge watch` and the labels of Podman's containers.

use crate::any_engine::watch;
use crate::lab::Program;

#[test]
fn a_label_that_the_image_carries_bridges_nothing() {
    watch::a_label_that_the_image_carries_bridges_nothing(Program::Podman);
}

#[test]
fn each_container_has_a_process_of_its_own_that_ends_with_watch() {
    watch::each_container_has_a_process_of_its_own_that_ends_with_watch(Program::Podman);
}
