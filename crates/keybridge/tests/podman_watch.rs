//! `keybridge watch` and the labels of Podman's containers.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    reason = "a panic is how a test fails"
)]

mod any_engine;
mod lab;

use any_engine::watch;
use lab::Program;

#[test]
fn a_label_that_the_image_carries_bridges_nothing() {
    watch::a_label_that_the_image_carries_bridges_nothing(Program::Podman);
}

#[test]
fn each_container_has_a_process_of_its_own_that_ends_with_watch() {
    watch::each_container_has_a_process_of_its_own_that_ends_with_watch(Program::Podman);
}
