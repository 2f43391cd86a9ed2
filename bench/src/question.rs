//! What the run asks of a client that stands in a target, and what it answers: lines of JSON.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// One thing to measure, or to get ready for it.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(crate) enum Question {
    /// Connects that many times and keeps the connections under a name.
    Open { name: String, socket: PathBuf, clients: usize },
    /// Closes the connections of a name.
    Close { name: String },
    /// Small commands, one after the other. Each is sent over all connections of a name at once, and has come
    /// back when all answers have.
    RoundTrips { name: String, count: usize },
    /// Bytes one way over a kept connection, which are decrypted with a key.
    Bulk { name: String, way: Way, bytes: usize, keygrip: String },
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
