//! What all Unix systems have in common.

use std::path::{Path, PathBuf};

use super::ServiceState;

mod files;
mod local_listener;
mod process;
mod signals;
mod terminal;

pub(crate) use files::{
    FileStamp, PathKind, file_id, id_of_open_file, is_own, local_socket_exists,
    make_private_folder, path_kind, privacy_of, private_file, private_temporary_folder,
};
pub(crate) use local_listener::{LocalListener, PeerUser, ask_listener, connect_to_listener};
pub use process::{close_inherited, forbid_core_dumps};
pub(crate) use process::{
    close_stdout, hide_window, ids, interrupt, is_root, lead_group, leave_terminal,
    raise_descriptor_limit, redirect_stderr, replace_process, runtime_folder, spawn_in_background,
    terminate, terminate_group, user_tag,
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
