//! `keybridge-remote remove`: removes this program from targets that have no other means to.

use std::io;

use keybridge_remote::remove_direct_folders;

/// Removes the program's file, and its folder if that is one of ours and empty then.
pub(crate) fn run() -> io::Result<()> {
    remove_direct_folders();
    let program = std::env::current_exe()?;
    std::fs::remove_file(&program)?;
    let folder = program.parent().filter(|folder| {
        let name = folder.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b"keybridge")
    });
    match folder.map(std::fs::remove_dir) {
        Some(Err(error)) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
        Some(Ok(()) | Err(_)) | None => Ok(()),
    }
}
