//! keybridge's own ssh sockets, which must not be dialled.

use std::path::{Path, PathBuf};

use crate::platform::file_id;

/// A socket of one of our own bridges. A bridge that dialled it would ask itself, without end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OwnSocket {
    /// Whatever is at this path at the moment of dialling; links are followed.
    Path(PathBuf),
    /// The socket with this identity, as reported by a target that shares a file system with us.
    Inode {
        /// The device number.
        device: u64,
        /// The inode number.
        inode: u64,
    },
}

impl OwnSocket {
    /// Whether a path leads to this socket now.
    pub(super) fn is(&self, path: &Path) -> bool {
        match self {
            // The same path is ours even before the socket exists.
            Self::Path(ours) => {
                path == ours || file_id(path).is_some_and(|there| file_id(ours) == Some(there))
            }
            Self::Inode { device, inode } => file_id(path) == Some((*device, *inode)),
        }
    }
}

crate::platform::tests_on_unix! {
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_known_by_any_path_that_leads_to_it() {
        use std::os::unix::fs::{MetadataExt, symlink};
        use std::os::unix::net::UnixListener;
        let dir = tempfile::tempdir().unwrap();
        let file = |name| dir.path().join(name);
        let (socket, link, hard, other) = (file("s"), file("l"), file("h"), file("o"));
        let own = OwnSocket::Path(socket.clone());
        assert!(own.is(&socket), "before it is bound");
        assert!(!own.is(&other));
        let _bound = UnixListener::bind(&socket).unwrap();
        let _another = UnixListener::bind(&other).unwrap();
        symlink(&socket, &link).unwrap();
        std::fs::hard_link(&socket, &hard).unwrap();
        std::fs::create_dir(file("d")).unwrap();
        let metadata = socket.metadata().unwrap();
        let inode = OwnSocket::Inode { device: metadata.dev(), inode: metadata.ino() };
        for own in [own, inode] {
            for path in [&socket, &link, &hard, &file("d/../s")] {
                assert!(own.is(path), "{own:?} {}", path.display());
            }
            assert!(!own.is(&other) && !own.is(&file("nothing")));
        }
    }
}
}
