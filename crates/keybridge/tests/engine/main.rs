//! Containers of real engines: `scripts/lab` starts one and makes the images.
//!
//! One program, so that the images are looked for once and what takes its time runs beside the rest.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "a panic is how a test fails"
)]

mod any_engine;
#[path = "../lab/mod.rs"]
mod lab;
mod ssh_lab;

mod chooser;
mod docker_commands;
mod docker_confirm;
mod docker_doctor;
mod docker_git;
mod docker_guard;
mod docker_heal;
mod docker_life;
mod docker_pinentry;
mod docker_presence;
mod docker_purge;
mod docker_refusals;
mod docker_settings;
mod docker_signs;
mod docker_version_1;
mod docker_watch;
mod gate;
mod podman_engine;
mod podman_git;
mod podman_signs;
mod podman_watch;
mod ssh_constraints;
mod ssh_env;
mod ssh_keys;
mod ssh_lanes;
mod ssh_logins;
mod ssh_refusals;
mod ssh_signs;
mod ssh_undo;
mod ssh_waiting;
mod systemd;
