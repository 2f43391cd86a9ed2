//! The lab of the tests and of the bench: real programs in folders of their own, and nothing left behind.
//!
//! Programs are started with [`command`], which names the package of one that is missing. What a test
//! waits for, it waits for with [`eventually`] or [`until`], which end a test that hangs.
#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a panic is how a test fails"
)]

mod agents;
mod clients;
mod engines;
mod folder;
mod homes;
mod process;
mod program;
mod waiting;

pub use agents::{
    Peer, Recorder, STAND_IN_VERSION, ScriptedAgent, StandIn, agreeable, is_allowed,
    native_socket_file,
};
pub use clients::{
    AsyncClient, Client, FAILURE, FORBIDDEN, NO_KEYS, SUCCESS, SshClient, dial, lines, send_all,
    verbs,
};
pub use engines::{Container, Engine, Flow, Image, Over, PodmanSocket, Program, Relay, docker};
pub use folder::{
    leave_dead_socket, make_private, need_root, noise, set_mode, set_owner, short_folder, snapshot,
    text, write_program,
};
pub use homes::{Home, SshHome, USER, gpg_version, version_answer};
pub use process::{
    allocated_by, as_user, descriptors_of, feed, is_alive, is_asleep, output, output_beside, run,
    run_with, signal, user_command,
};
pub use program::{command, program};
pub use waiting::{PATIENCE, eventually, on_this_thread, until, until_async, within};
