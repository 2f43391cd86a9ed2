//! Whether other users can enter a folder.

/// Whether only this user can enter something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Privacy {
    /// A folder that only this user can enter.
    Private,
    /// A folder of this user's that others can enter.
    TooOpen,
    /// No folder, or another user's.
    NotOurs,
}
