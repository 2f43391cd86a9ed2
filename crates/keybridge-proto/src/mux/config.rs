//! What a link has to know before its first byte.

use std::fmt;
use std::time::Duration;

use super::IDLE_PING;
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
    /// How many streams can be open at once.
    pub max_streams: usize,
    /// The version of this program, for HELLO.
    pub program: String,
    /// What this program can do, for HELLO.
    pub features: Vec<String>,
    /// After how much silence a PING is sent; with `None` only an OPEN sends one. Used by the owner
    /// of the link's [`Liveness`](super::Liveness).
    pub idle_ping: Option<Duration>,
}

impl Config {
    /// A link that serves these lanes, with defaults for the rest. Only the host sends PINGs when the
    /// link is idle, since it is the end that can reconnect.
    pub fn new(end: End, version: Version, lanes: &[Lane]) -> Self {
        let idle_ping = match end {
            End::Host => Some(IDLE_PING),
            End::Helper => None,
        };
        Self {
            end,
            version,
            lanes: lanes.to_vec(),
            max_streams: DEFAULT_MAX_STREAMS,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            features: Vec::new(),
            idle_ping,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Without HELLO, credit and EOF.
    One,
    /// With HELLO, credit, EOF and PING.
    Two,
}
