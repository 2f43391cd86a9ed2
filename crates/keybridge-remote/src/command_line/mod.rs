//! The program's command line: its commands, their arguments, and its log.

pub(crate) mod arguments;
pub(crate) mod serve;
pub(crate) mod stderr_log;
pub(crate) mod undo;

use std::io;

use arguments::InspectArguments;
use keybridge_remote::Environment;

/// `keybridge-remote inspect`: the text of what is in the target for a bridge.
pub(crate) fn inspect(arguments: &InspectArguments) -> Result<Vec<u8>, String> {
    if arguments.remove {
        // At once: the host may be killed, and nobody else would do it.
        remove_program().map_err(|error| format!("can't remove this program: {error}"))?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("can't start: {error}"))?;
    let environment = Environment::of_process();
    Ok(runtime.block_on(keybridge_remote::inspect(&environment, &arguments.request)).to_bytes())
}

/// `keybridge-remote remove`, for targets that have no other means to: removes the program's file, its folder
/// if that is one of ours and empty then, and a cache folder that is empty after that.
pub(crate) fn remove_program() -> io::Result<()> {
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
