//! The half of keybridge that runs in a target: it listens where gpg and ssh look for their agents, and
//! gives every client a stream of the link to the host.
//!
//! [`DiscoveredLane::find`] looks at the target and changes nothing. [`Bridge::add`] then edits the user's
//! files, binds the lane's socket and serves it, and [`Bridge::stop`] undoes all of that; [`undo`] does so
//! after a helper that was killed. [`set_up`] sets up all lanes, and knows which of them a bridge can do
//! without. Everything runs on one thread, inside a [`tokio::task::LocalSet`].
#![forbid(unsafe_code)]

mod bridge;
mod clients;
mod entry;
mod environment;
mod error;
mod footprint;
mod home;
mod inspection;
mod keys;
mod lanes;
mod settings;
mod socket;
mod subprocess;
mod systemd;
mod user_files;

pub use bridge::{Bridge, BridgeToken};
pub use entry::Entry;
pub use environment::{Environment, PasswdEntry};
pub use error::Error;
pub use home::acquire_lock::MAKE_WAY;
pub use home::lane_folder::FileId;
pub use inspection::{InspectionRequest, inspect};
pub use keys::purge::purge;
pub use lanes::discovery::DiscoveredLane;
pub use lanes::gnupg::Gnupg;
pub use lanes::set_up::set_up;
pub use lanes::ssh_folder::SshFolder;
pub use lanes::undo_lane::{UndoOutcome, undo};
pub use settings::{ServeOption, Settings};

pub use keybridge_link::StopSignal;

use lanes::discovery::GitFolder;
use user_files::git::Git;
use user_files::marked_block::{EditError, MarkedBlock};
use user_files::signing_key::{GitSigning, OpenPgpKeyId};
