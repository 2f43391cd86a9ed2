//! Public keys and ownertrust: received from the host, imported by the target's gpg,
//! and removed again when that is asked for.

mod import;
mod import_record;
pub(crate) mod purge;
pub(crate) mod receive;
