//! The user of this process.

use std::ffi::OsString;

/// Nobody is: an administrator is a user like others here.
pub(crate) const fn is_root() -> bool {
    false
}

/// What tells this user from others, in a name. The folders that it is used in belong to one user anyway.
pub(crate) fn user_tag() -> String {
    std::env::var("USERNAME").unwrap_or_default()
}

/// The ids of user and group. Cygwin derives its own from Windows', and its sockets don't check them.
pub(crate) const fn ids() -> (u32, u32) {
    (0, 0)
}

/// There is none.
pub(crate) const fn runtime_folder() -> Option<OsString> {
    None
}
