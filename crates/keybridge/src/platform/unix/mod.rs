//! What all Unix systems have in common.

use std::path::{Path, PathBuf};

use super::ServiceState;

mod files;
mod limits;
mod local_listener;
mod process;
mod signals;
mod terminal;
mod user;

pub(crate) use files::{
    FileStamp, PathKind, file_id, id_of_open_file, is_own, local_socket_exists,
    make_private_folder, path_kind, privacy_of, private_file, private_temporary_folder,
};
pub use limits::forbid_core_dumps;
pub(crate) use limits::raise_descriptor_limit;
pub(crate) use local_listener::{LocalListener, PeerUser, ask_listener, connect_to_listener};
pub use process::close_inherited;
pub(crate) use process::{
    close_stdout, hide_window, lead_group, leave_terminal, redirect_stderr, replace_process,
    spawn_in_background, terminate, terminate_group,
};
pub(crate) use signals::Signals;
pub(crate) use terminal::{TerminalDevice, TerminalModes, terminal_size};

/// None: an ssh-agent is no service of the system.
pub(crate) const fn ssh_agent_service() -> Option<ServiceState> {
    None
}

/// A path that a program has printed.
pub(crate) fn native_path(_program: &Path, path: PathBuf) -> PathBuf {
    path
}

/// Does nothing: terminals act on escape sequences.
pub const fn prepare_terminal() {}

/// None: Pageant is for Windows.
pub(crate) const fn pageant_pipe() -> Option<PathBuf> {
    None
}

/// None: programs are where `PATH` leads, or in the usual folders.
pub(crate) const fn installed_folders() -> Vec<PathBuf> {
    Vec::new()
}

pub(crate) use user::{ids, is_root, runtime_folder, user_tag};
