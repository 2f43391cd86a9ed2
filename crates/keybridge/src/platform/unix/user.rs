//! The user of this process.

use std::ffi::OsString;

use rustix::process::{geteuid, getgid, getuid};

/// Whether this is root.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// What tells this user from others, in a name.
pub(crate) fn user_tag() -> String {
    geteuid().as_raw().to_string()
}

/// The ids of user and group.
pub(crate) fn ids() -> (u32, u32) {
    (getuid().as_raw(), getgid().as_raw())
}

/// Where the sockets of this user's services are, if no variable says so.
#[expect(clippy::unnecessary_wraps, reason = "as on other systems")]
pub(crate) fn runtime_folder() -> Option<OsString> {
    Some(format!("/run/user/{}", user_tag()).into())
}
