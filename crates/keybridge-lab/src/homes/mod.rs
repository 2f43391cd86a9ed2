//! Homes with real agents and keys.

mod gnupg;
mod ssh;

pub use gnupg::{Home, USER, gpg_version, version_answer};
pub use ssh::SshHome;
