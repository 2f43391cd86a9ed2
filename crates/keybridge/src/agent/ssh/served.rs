//! Sockets that must not be dialled.

use std::path::{Path, PathBuf};

/// A socket that leads back to a bridge of ours: dialled, it would ask itself without end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Served {
    /// What stands at this path, whenever it is looked at, links followed.
    Path(PathBuf),
    /// The socket with this identity, as a target on this machine's disks knows it.
    Inode {
        /// The number of the device.
        device: u64,
        /// The number on that device.
        inode: u64,
    },
}

impl Served {
    /// Whether a path leads to this socket now.
    pub(super) fn is(&self, path: &Path) -> bool {
        match self {
            // The same path is ours also while nothing stands there.
            Self::Path(ours) => {
                path == ours || identity(path).is_some_and(|there| identity(ours) == Some(there))
            }
            Self::Inode { device, inode } => identity(path) == Some((*device, *inode)),
        }
    }
}

#[cfg(unix)]
fn identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn identity(_: &Path) -> Option<(u64, u64)> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_socket_is_known_by_any_path_that_leads_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name| dir.path().join(name);
        let (socket, link, hard, other) = (file("s"), file("l"), file("h"), file("o"));
        let served = Served::Path(socket.clone());
        assert!(served.is(&socket), "before it is bound");
        assert!(!served.is(&other));
        let _bound = UnixListener::bind(&socket).unwrap();
        let _another = UnixListener::bind(&other).unwrap();
        symlink(&socket, &link).unwrap();
        std::fs::hard_link(&socket, &hard).unwrap();
        std::fs::create_dir(file("d")).unwrap();
        let metadata = socket.metadata().unwrap();
        let inode = Served::Inode { device: metadata.dev(), inode: metadata.ino() };
        for served in [served, inode] {
            for path in [&socket, &link, &hard, &file("d/../s")] {
                assert!(served.is(path), "{served:?} {}", path.display());
            }
            assert!(!served.is(&other) && !served.is(&file("nothing")));
        }
    }
}
