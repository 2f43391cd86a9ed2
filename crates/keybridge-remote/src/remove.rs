//! Removes this program from the target: a target may have no other means to.

use std::io;
use std::path::Path;

use keybridge_remote::DIRECT_FOLDER;

/// Removes the program's file, and its folder if that is one of ours and empty then.
pub(crate) fn run() -> io::Result<()> {
    let program = std::env::current_exe()?;
    std::fs::remove_file(&program)?;
    let folder = program.parent().filter(|folder| {
        let name = folder.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b"keybridge")
    });
    if let Some(folder) = folder {
        remove_meetings(folder)?;
    }
    match folder.map(std::fs::remove_dir) {
        Some(Err(error)) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
        Some(Ok(()) | Err(_)) | None => Ok(()),
    }
}

/// Removes what a helper that was killed while it waited for the host has left.
fn remove_meetings(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().as_encoded_bytes().starts_with(DIRECT_FOLDER.as_bytes()) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}
