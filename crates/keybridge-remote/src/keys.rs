//! Public keys and ownertrust: received from the host, imported by the target's gpg.

mod import;
pub(crate) mod receive;
