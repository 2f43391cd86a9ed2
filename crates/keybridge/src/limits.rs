//! Limits that this process sets itself.

pub use crate::platform::forbid_core_dumps;
