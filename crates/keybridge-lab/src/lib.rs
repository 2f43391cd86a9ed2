//! The lab of the tests: real programs in folders of their own, and nothing left behind.
//!
//! Programs are started with [`command`], which names the package of one that is missing. What a test
//! waits for, it waits for with [`eventually`] or [`until`], which end a test that hangs.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a panic is how a test fails"
)]

mod folder;
mod gnupg;
mod home;
mod process;
mod program;
mod waiting;

pub use folder::{
    make_private, need_root, noise, set_mode, set_owner, short_folder, snapshot, text,
};
pub use gnupg::{gpg_version, version_answer};
pub use home::{Home, USER};
pub use process::{as_user, feed, is_alive, output, run, run_with, signal};
pub use program::{command, program};
pub use waiting::{PATIENCE, eventually, on_this_thread, until};
