//! Finds programs that `PATH` doesn't lead to.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use tokio::process::Command;

use super::{System, expand, installed_folders, variable};

/// What to start for a program: its name, or its path if `PATH` doesn't lead to it.
pub(crate) fn program(name: &str) -> PathBuf {
    find_program(name).unwrap_or_else(|| name.into())
}

/// The same, and nothing if the program isn't there.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let system = System::here();
    let mut folders = installed_folders();
    folders.extend(expand(system.program_folders, variable));
    find(&system.program_file(name), &variable("PATH").unwrap_or_default(), &folders)
}

/// A command for such a program, with an environment that says where the user's files are and nothing else.
pub(crate) fn clean_command(program: &Path) -> Command {
    let path = variable("PATH").unwrap_or_default();
    let places = env::split_paths(&path).map(|folder| folder.join(program));
    // Without a variable that says so, the system would look elsewhere.
    let found = places.filter(|_| program.components().count() == 1).find(|place| place.is_file());
    let mut command = Command::new(found.unwrap_or_else(|| program.to_owned()));
    command.env_clear();
    for name in System::here().home_variables {
        command.envs(variable(name).map(|value| (name, value)));
    }
    command
}

fn find(name: &str, path: &OsStr, folders: &[impl AsRef<Path>]) -> Option<PathBuf> {
    let is_in = |folder: &Path| folder.join(name).is_file();
    if env::split_paths(path).any(|folder| is_in(&folder)) {
        return Some(name.into());
    }
    let folder = folders.iter().map(AsRef::as_ref).find(|folder| is_in(folder));
    folder.map(|folder| folder.join(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_where_path_does_not_lead() {
        let root = tempfile::tempdir().unwrap();
        // As below a root of their own, so that nothing of the host is found.
        let below = |folder: &&str| root.path().join(folder.trim_start_matches('/'));
        let folders: Vec<PathBuf> = System::of("macos").program_folders.iter().map(below).collect();
        let path = env::join_paths([below(&"/usr/bin"), below(&"/bin")]).unwrap();
        let put = |file: &str| {
            let file = below(&file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "").unwrap();
            file
        };
        let gpgconf = || find("gpgconf", &path, &folders);
        assert_eq!(gpgconf(), None);
        std::fs::create_dir_all(below(&"/usr/local/bin/gpgconf")).unwrap();
        assert_eq!(gpgconf(), None, "a folder is no program");
        let suite = put("/usr/local/MacGPG2/bin/gpgconf");
        assert_eq!(gpgconf(), Some(suite));
        let homebrew = put("/opt/homebrew/bin/gpgconf");
        assert_eq!(gpgconf(), Some(homebrew));
        put("/usr/bin/gpgconf");
        assert_eq!(gpgconf(), Some("gpgconf".into()), "what PATH leads to comes first");
        assert_eq!(find("gpgconf", OsStr::new(""), &[""; 0]), None);
    }
}
