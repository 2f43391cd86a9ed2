//! The half of keybridge that runs in a target: it listens where gpg and ssh look for their agents,
//! and gives every client a stream of the link to the host.
//!
//! [`LaneHome::find`] looks at the target and changes nothing. [`Bridge::add`] then edits the user's
//! files, binds the lane's socket and serves it, and [`Bridge::stop`] undoes all of that; [`undo`] does
//! so after a helper that was killed. [`set_up`] does it for all lanes, and knows which of them a
//! bridge can do without. Everything runs on one thread, inside a [`tokio::task::LocalSet`].
#![forbid(unsafe_code)]

mod accept;
mod admission;
mod block_text;
mod bridge;
mod bridge_token;
mod client_socket;
mod command;
mod config;
mod direct;
mod environment;
mod error;
mod folder;
mod git;
mod gnupg;
mod guard;
mod handover;
mod home_folder;
mod home_lock;
mod import;
mod keys;
mod lane_home;
mod lanes;
mod leftovers;
mod listening;
mod marked_block;
mod occupant;
mod place;
mod probe;
mod quoted;
mod session;
mod socket_address;
mod ssh_folder;
mod stopping;

pub use bridge::Bridge;
pub use bridge_token::BridgeToken;
pub use config::{Bind, Config, FileId};
pub use direct::{offer_direct_path, remove_direct_folders};
pub use environment::Environment;
pub use error::{Problem, StartError, StopError};
pub use git::{Git, GitSigning, NoGit, SigningKey, SshPublicKey};
pub use gnupg::Gnupg;
pub use lane_home::{HostFolders, LaneHome};
pub use lanes::{Lanes, set_up};
pub use leftovers::{Undone, undo};
pub use listening::bind;
pub use marked_block::{EditError, MarkedBlock};
pub use ssh_folder::SshFolder;
pub use stopping::Stopping;
