//! Socket paths that are longer than an address holds.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// `sun_path` holds 108 bytes with its NUL.
pub(crate) const MAX_PATH: usize = 107;

/// A path for `bind` and `connect` that leads to the same socket as the one it was made of.
pub(crate) struct ShortSocketPath {
    path: PathBuf,
    /// A long path goes by way of its folder, which has to stay open.
    _folder: Option<File>,
}

impl ShortSocketPath {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if path.as_os_str().len() <= MAX_PATH {
            return Ok(Self { path: path.to_owned(), _folder: None });
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let folder = OpenOptions::new()
            .read(true)
            .custom_flags(i32::try_from(flags.bits()).unwrap_or_default())
            .open(folder)?;
        let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(name);
        Ok(Self { path, _folder: Some(folder) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_path_of_any_length_can_be_bound_and_reached() {
        let folder = tempfile::tempdir().unwrap();
        let deep = folder.path().join("d".repeat(100)).join("d".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        for path in [folder.path().join("S"), deep.join("S")] {
            let _listener = UnixListener::bind(ShortSocketPath::of(&path).unwrap().path()).unwrap();
            assert!(path.exists());
            UnixStream::connect(ShortSocketPath::of(&path).unwrap().path()).unwrap();
        }
    }
}
