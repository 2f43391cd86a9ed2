//! The identity of a file, whatever its path.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

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
        parse().ok_or("expected a device and an inode as decimal numbers, DEVICE:INODE")
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.inode)
    }
}
