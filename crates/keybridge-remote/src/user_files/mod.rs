//! Edits of the user's own files: a marked block of lines, and what it says in each program's settings.

mod block_content;
pub(crate) mod git;
pub(crate) mod git_entry_files;
pub(crate) mod git_settings_files;
pub(crate) mod gpg_conf;
pub(crate) mod marked_block;
pub(crate) mod planned_edit;
pub(crate) mod signing_key;
