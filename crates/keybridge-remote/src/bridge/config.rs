//! What a bridge has to know, and what it works with.

use std::io;
use std::path::Path;
use std::time::Duration;

use keybridge_proto::mux::DEFAULT_MAX_STREAMS;
use keybridge_proto::session::Limits;
use tokio::net::UnixListener;

use crate::{BridgeToken, Git};

/// The settings of a bridge in the target.
#[derive(Debug, Clone)]
pub struct Config {
    /// How many clients are served at once; the link has to allow as many streams.
    pub max_sessions: usize,
    /// How long a session waits for the host.
    pub limits: Limits,
    /// Take the socket over from whoever answers there.
    pub replace: bool,
    /// Which bridge this is, if it has a name: a newer helper of the same one takes its place.
    pub bridge: Option<BridgeToken>,
    /// How git is to sign, if it is.
    pub git: Option<Git>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_sessions: DEFAULT_MAX_STREAMS,
            limits: Limits {
                connect: Duration::from_secs(5),
                // The host has 5 s to reach its agent and 5 s for the greeting; both fit in.
                greeting: Duration::from_secs(12),
                response: None,
            },
            replace: false,
            bridge: None,
            git: None,
        }
    }
}

/// Makes a listener at a path where nothing is.
pub type Bind = Box<dyn Fn(&Path) -> io::Result<UnixListener>>;
