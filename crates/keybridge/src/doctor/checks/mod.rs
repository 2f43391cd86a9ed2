//! The checks: a file for each, and the order of the chain.
#![allow(clippy::unnecessary_wraps, reason = "some checks don't concern every target")]

mod agent_starters;
mod bridge;
mod engine;
mod extra_socket;
mod git_email;
mod git_signing;
mod gpg_agent;
mod helper;
mod home_gpg;
mod link;
mod other_bridges;
mod ownertrust;
mod public_keys;
mod secret_keys;
mod shell;
mod signature;
mod ssh_agent;
mod state_folder;
mod target;
mod target_gpg;
mod target_home;
mod target_socket;
mod target_ssh;
mod transport;
mod user;

use super::{Check, Outcome, Part, Problem};

/// Every check, in the order of the chain. What makes `up` fail comes before the bridge itself.
pub(crate) const CHAIN: &[&Check] = &[
    &home_gpg::CHECK,
    &gpg_agent::CHECK,
    &extra_socket::CHECK,
    &secret_keys::CHECK,
    &ssh_agent::CHECK,
    &state_folder::CHECK,
    &other_bridges::CHECK,
    &engine::CHECK,
    &transport::CHECK,
    &target::CHECK,
    &user::CHECK,
    &shell::CHECK,
    &helper::CHECK,
    &target_gpg::CHECK,
    &target_home::CHECK,
    &agent_starters::CHECK,
    &target_socket::CHECK,
    &bridge::CHECK,
    &link::CHECK,
    &target_ssh::CHECK,
    &public_keys::CHECK,
    &ownertrust::CHECK,
    &git_signing::CHECK,
    &git_email::CHECK,
    &signature::CHECK,
];

/// A check by its name.
pub(crate) fn named(name: &str) -> Option<&'static Check> {
    CHAIN.iter().copied().find(|check| check.name == name)
}
