//! The record of what was done with the user's keys: a line of JSON for each operation, of all bridges.
//!
//! Each line has the hash of the line before it. The last hash and the count are kept in a file beside the
//! lines, so that a line that is changed or removed is found, also the last one. Neither has anything of what
//! was signed but its name.

mod head;
mod journal;
#[cfg(test)]
mod journal_tests;
mod line;
mod recorder;
mod verify;

use std::path::PathBuf;
use std::str::FromStr;

use crate::platform::{System, expand, variable};
use crate::supervisor::state::StateRoot;

pub(crate) use journal::Journal;
pub(crate) use line::{Line, Signed, What};
pub(crate) use recorder::BridgeRecorder;
pub(crate) use verify::Verified;

/// Whether operations are recorded: the setting `record`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RecordMode {
    /// They are. Where that fails, there is a warning.
    #[default]
    On,
    /// They are, or they are refused.
    Required,
    /// They aren't.
    Off,
}

/// A word that isn't a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected on, required or off")]
pub(crate) struct UnknownMode;

impl FromStr for RecordMode {
    type Err = UnknownMode;

    fn from_str(word: &str) -> Result<Self, UnknownMode> {
        match word {
            "on" => Ok(Self::On),
            "required" => Ok(Self::Required),
            "off" => Ok(Self::Off),
            _ => Err(UnknownMode),
        }
    }
}

/// Where the record is. The folder of running programs is emptied when the user logs out.
pub(crate) fn record_folder() -> PathBuf {
    if let Some(named) = variable("KEYBRIDGE_STATE") {
        return PathBuf::from(named);
    }
    let folders = expand(System::here().record_folders, variable);
    let folder = folders.into_iter().next().map(|folder| folder.join("keybridge"));
    folder.unwrap_or_else(StateRoot::path)
}
