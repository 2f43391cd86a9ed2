//! The checks: a file for each, and the order of the chain.

mod bridge;
mod engine;
mod extra_socket;
mod gpg_agent;
mod helper;
mod home_gpg;
mod link;
mod other_bridges;
mod secret_keys;
mod shell;
mod ssh_agent;
mod state_folder;
mod target;
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
    &bridge::CHECK,
    &link::CHECK,
];

/// A check by its name.
pub(crate) fn named(name: &str) -> Option<&'static Check> {
    CHAIN.iter().copied().find(|check| check.name == name)
}
