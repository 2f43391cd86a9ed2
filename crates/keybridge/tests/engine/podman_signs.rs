//! What holds for containers of Docker's holds for Podman's. Nobody runs a service of Podman's here:
//! each bridge has its own.

use crate::any_engine::signs::fresh_containers;
use crate::any_engine::{life, signs};
use crate::lab::{Image, Program};

#[track_caller]
fn fresh(image: Image, start: &[&str], up: &[&str], user: Option<&str>, home: &str) {
    signs::fresh(Program::Podman, image, start, up, user, home);
}

fresh_containers!();

#[test]
fn ten_shells_at_once_make_one_bridge() {
    life::ten_shells_at_once_make_one_bridge(Program::Podman);
}

#[test]
fn up_returns_to_a_shell_that_reads_its_output_and_the_bridge_lives_on() {
    life::up_returns_to_a_shell_that_reads_its_output_and_the_bridge_lives_on(Program::Podman);
}

#[test]
fn up_of_a_bridged_container_says_so() {
    life::up_of_a_bridged_container_says_so(Program::Podman);
}
