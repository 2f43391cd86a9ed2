//! The half of keybridge that runs in a target: it listens where gpg looks for its agent, and gives
//! every client a stream of the link to the host.
//!
//! [`Gnupg::find`] looks at the target and changes nothing. [`start`] then edits gpg.conf, binds
//! the socket and serves it, and [`Handle::stop`] undoes all of that; [`undo`] does so after a helper
//! that was killed. Everything runs on one thread,
//! inside a [`tokio::task::LocalSet`].
#![forbid(unsafe_code)]

mod accept;
mod block_text;
mod bridge_token;
mod client_socket;
mod command;
mod config;
mod error;
mod folder;
mod gnupg;
mod guard;
mod handover;
mod home_lock;
mod import;
mod keys;
mod leftovers;
mod listening;
mod marked_block;
mod occupant;
mod quoted;
mod registered;
mod session;
mod socket_address;
mod start;
mod stdio;
mod stopping;

pub use bridge_token::BridgeToken;
pub use config::{Bind, Config, Deps, FileId};
pub use error::{Problem, StartError, StopError};
pub use gnupg::{Environment, Gnupg};
pub use leftovers::{Undone, undo};
pub use listening::bind;
pub use marked_block::{EditError, MarkedBlock};
pub use start::{Handle, start};
pub use stdio::{Input, Output, let_go};
pub use stopping::Stopping;
