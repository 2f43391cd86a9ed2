//! Windows. What has to be unsafe is in `system_calls`.

mod console;
mod files;
mod local_listener;
mod other_programs;
mod process;
mod signals;
mod system_calls;

pub use console::prepare_terminal;
pub(crate) use console::{TerminalDevice, TerminalModes, terminal_size};
pub(crate) use files::{
    FileStamp, PathKind, file_id, id_of_open_file, is_own, local_socket_exists,
    make_private_folder, path_kind, privacy_of, private_file, private_temporary_folder,
};
pub(crate) use local_listener::{LocalListener, PeerUser, ask_listener, connect_to_listener};
pub(crate) use other_programs::{installed_folders, native_path, pageant_pipe, ssh_agent_service};
pub use process::{close_inherited, forbid_core_dumps};
pub(crate) use process::{
    close_stdout, hide_window, ids, interrupt, is_root, lead_group, leave_terminal,
    raise_descriptor_limit, redirect_stderr, replace_process, runtime_folder, spawn_in_background,
    terminate, terminate_group, user_tag,
};
pub(crate) use signals::Signals;
