//! What a link has to know before its first byte.

use std::fmt;

use crate::Lane;

/// How many streams a link can have: a parallel build signs with dozens of clients, and an agent can take
/// 256 connections.
pub const DEFAULT_MAX_STREAMS: usize = 256;

/// How a link is set up. Nothing in it is negotiated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Which end this is.
    pub end: End,
    /// Which version both ends speak.
    pub version: Version,
    /// The lanes that are served; a host refuses streams of others.
    pub lanes: Vec<Lane>,
    /// The public keys that a version 1 host begins with, if it sends any: a server takes them for all
    /// that there are. In version 2 they are written to their stream.
    pub version_1_keys: Option<Vec<u8>>,
    /// How many streams can be open at once.
    pub max_streams: usize,
}

impl Config {
    /// A link that serves these lanes, with defaults for the rest.
    pub fn new(end: End, version: Version, lanes: &[Lane]) -> Self {
        Self {
            end,
            version,
            lanes: lanes.to_vec(),
            version_1_keys: None,
            max_streams: DEFAULT_MAX_STREAMS,
        }
    }
}

/// The two ends of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Where the agents are. It sends keys and accepts streams.
    Host,
    /// Where the clients are. It opens streams and reports.
    Helper,
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host's",
            Self::Helper => "helper's",
        })
    }
}

/// The versions of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Without HELLO, credit and EOF.
    One,
    /// With HELLO, credit, EOF and PING.
    Two,
}
