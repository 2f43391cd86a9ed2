//! Folders that only the target's user may change: without following links, without changing them.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

use crate::error::{Problem, StartError};

/// What is wrong with a folder, or its metadata; `None` if it isn't there.
pub(crate) fn check(what: &str, path: &Path) -> Result<Option<Metadata>, StartError> {
    let shown = path.display();
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StartError::io(&format!("looking at {what}"), path, &error)),
    };
    let problem = if metadata.is_symlink() {
        Problem::new(format!("{what} {shown} is a link; a folder is expected"))
            .hint("set GNUPGHOME to the folder that it leads to")
    } else if !metadata.is_dir() {
        Problem::new(format!("{what} {shown} is not a folder")).hint(format!("remove {shown}"))
    } else if metadata.uid() != euid() {
        let (owner, euid) = (metadata.uid(), euid());
        Problem::new(format!("{what} {shown} belongs to uid {owner}, and this is uid {euid}"))
            .hint(format!("bridge as uid {owner}, or: chown {euid} {shown}"))
    } else if metadata.mode() & 0o022 != 0 {
        let mode = metadata.mode() & 0o7777;
        Problem::new(format!("{what} {shown} can be written by others (mode {mode:04o})"))
            .hint(format!("chmod 700 {shown}"))
    } else {
        return Ok(Some(metadata));
    };
    Err(StartError::NotPermitted(problem))
}

/// Makes a folder for the target's user alone.
pub(crate) fn make_private(path: &Path) -> Result<(), StartError> {
    DirBuilder::new()
        .mode(0o700)
        .create(path)
        .map_err(|error| StartError::io("creating", path, &error))
}

/// Who we are, to the kernel.
pub(crate) fn euid() -> u32 {
    rustix::process::geteuid().as_raw()
}
