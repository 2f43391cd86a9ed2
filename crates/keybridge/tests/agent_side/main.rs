//! The agent side in the process of a test, with real agents: finding and dialling them, the bridge
//! with a helper in the same process, and the command interface.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "a panic is how a test fails"
)]

mod agent_home;
mod bridge_helper;
mod ssh_wire;

mod agent_dial;
mod agent_ssh;
mod bridge_dialogs;
mod bridge_gpg;
mod bridge_hostile;
mod bridge_ssh;
mod bridge_ssh_changes;
mod bridge_ssh_keys;
mod bridge_version_1;
mod git_lane;
mod git_signer;
mod interface_calls;
mod interface_disconnect;
mod interface_keys;
mod interface_rpc;
