//! `keybridge-remote remove`: removes this program from targets that have no other means to.

use std::io;

/// Removes the program's file, its folder if that is one of ours and empty then, and a cache folder that is
/// empty after that.
pub(crate) fn run() -> io::Result<()> {
    let program = std::env::current_exe()?;
    std::fs::remove_file(&program)?;
    let folder = program.parent().filter(|folder| {
        let name = folder.file_name().unwrap_or_default();
        name.as_encoded_bytes().starts_with(b"keybridge")
    });
    let Some(folder) = folder else { return Ok(()) };
    match std::fs::remove_dir(folder) {
        Err(error) if error.kind() != io::ErrorKind::DirectoryNotEmpty => Err(error),
        Err(_) => Ok(()),
        Ok(()) => {
            // The host has made it for the program, if it was missing.
            let cache = folder.parent().filter(|cache| cache.ends_with(".cache"));
            let _ = cache.map(std::fs::remove_dir);
            Ok(())
        }
    }
}
