//! What a bridge has to know, and what it works with.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;
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

/// Which file or folder it is, whatever its path: its device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId {
    /// The device.
    pub device: u64,
    /// The inode.
    pub inode: u64,
}

impl FileId {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

impl FromStr for FileId {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (device, inode) = text.split_once(':')?;
            Some(Self { device: device.parse().ok()?, inode: inode.parse().ok()? })
        };
        parse().ok_or("a device and an inode as decimal numbers, DEVICE:INODE, are expected")
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.inode)
    }
}
