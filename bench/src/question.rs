//! What the run asks of a client that stands in a target, and what it answers: lines of JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::lane::Lane;

/// One thing to measure, or to get ready for it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(crate) enum Question {
    /// Connects and keeps the connection under a name.
    Open { name: String, socket: PathBuf, lane: Lane },
    /// Closes the connections of a name.
    Close { name: String },
    /// Small commands over a kept connection, one after the other.
    RoundTrips { name: String, count: usize },
    /// Connections that come and go: greeting, and a farewell where the lane has one.
    Connections { socket: PathBuf, lane: Lane, count: usize },
    /// Bytes one way over a kept connection; for gpg they are decrypted with a key.
    Bulk { name: String, way: Way, bytes: usize, keygrip: String },
    /// Many connections at once, each with a small command under way at any time.
    Crowd { socket: PathBuf, lane: Lane, clients: usize, commands: usize },
    /// As many idle connections, kept under a name.
    Idle { name: String, socket: PathBuf, lane: Lane, clients: usize },
    /// Asks for bulk and reads nothing of it; kept under a name.
    Stall { name: String, socket: PathBuf, lane: Lane, keygrip: String },
    /// Runs a program to its end, which has to be a good one; if a socket is named, as soon as somebody
    /// listens there.
    Run { socket: Option<PathBuf>, words: Vec<String>, env: Vec<(String, String)>, input: String },
}

/// Which way bulk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    ToAgent,
    FromAgent,
}

/// What a client says to a question.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "kebab-case")]
pub(crate) enum Answer {
    /// How long each took, in nanoseconds; nothing where there was nothing to measure.
    Took {
        nanos: Vec<u64>,
    },
    Failed {
        why: String,
    },
}
