//! Homes with real agents and keys.

mod gnupg;
mod ssh;
mod version;

pub use gnupg::{Home, USER};
pub use ssh::SshHome;
pub use version::{gpg_version, version_answer};
