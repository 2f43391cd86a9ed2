//! Other programs: where GnuPG is installed, how the ssh-agents run, and the paths that MSYS prints.

use std::env;
use std::path::{Path, PathBuf};

use super::files::{pipe_names, pipe_path};
use super::system_calls::{registry_number, registry_text};
use crate::platform::{ServiceState, System, variable};

/// Where the programs of GnuPG were installed, by 64-bit and by 32-bit installers, alone or with Gpg4win.
pub(crate) fn installed_folders() -> Vec<PathBuf> {
    let keys = [
        r"Software\GnuPG",
        r"Software\WOW6432Node\GnuPG",
        r"Software\Gpg4win",
        r"Software\WOW6432Node\Gpg4win",
    ];
    let folders = keys.iter().filter_map(|key| registry_text(key, "Install Directory"));
    folders.map(|folder| PathBuf::from(folder).join("bin")).collect()
}

/// How the service of OpenSSH's agent is set, which is disabled on a new machine. None if it isn't
/// installed.
pub(crate) fn ssh_agent_service() -> Option<ServiceState> {
    const DISABLED: u32 = 4;
    let start = registry_number(r"SYSTEM\CurrentControlSet\Services\ssh-agent", "Start")?;
    Some(if start == DISABLED { ServiceState::Disabled } else { ServiceState::Enabled })
}

/// The pipe of `PuTTY`'s agent, if it runs: `pageant.USER.HASH`, with another name in each session.
pub(crate) fn pageant_pipe() -> Option<PathBuf> {
    let user = env::var("USERNAME").ok()?;
    pipe_names().iter().find(|name| is_pageant_of(&user, name)).map(|name| pipe_path(name))
}

/// Whether a pipe is that of a user's Pageant. A user's name may have dots.
fn is_pageant_of(user: &str, name: &str) -> bool {
    let hash = name.strip_prefix("pageant.").and_then(|rest| {
        let (start, hash) = rest.split_at_checked(user.len())?;
        start.eq_ignore_ascii_case(user).then(|| hash.strip_prefix('.'))?
    });
    hash.is_some_and(|hash| !hash.is_empty() && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// A path that a program has printed, as Windows writes it. Programs of Cygwin and MSYS, such as the GnuPG of
/// Git for Windows, print their own; those of native programs stay as they are.
pub(crate) fn native_path(program: &Path, path: PathBuf) -> PathBuf {
    let Some(inside) = path.to_str().and_then(|path| path.strip_prefix('/')) else { return path };
    if let Some(on_drive) = on_drive(inside.strip_prefix("cygdrive/").unwrap_or(inside)) {
        return on_drive;
    }
    match root_of(program) {
        Some(root) => root.join(inside.replace('/', r"\")),
        None => path,
    }
}

/// `c/Users` is `C:\Users`.
fn on_drive(path: &str) -> Option<PathBuf> {
    let (drive, rest) = path.split_once('/').unwrap_or((path, ""));
    let mut letters = drive.chars();
    let (Some(letter), None) = (letters.next(), letters.next()) else { return None };
    let rest = rest.replace('/', r"\");
    letter.is_ascii_alphabetic().then(|| format!(r"{}:\{rest}", letter.to_ascii_uppercase()).into())
}

/// The folder that such programs call `/`. They are in `usr\bin` or `bin` there.
fn root_of(program: &Path) -> Option<PathBuf> {
    let named = program.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = if let Some(folder) = named {
        folder.to_owned()
    } else {
        let file = System::here().program_file(program.to_str()?);
        let path = variable("PATH")?;
        env::split_paths(&path).find(|folder| folder.join(&file).is_file())?
    };
    let above = folder.parent()?;
    let is_usr = above.file_name().is_some_and(|name| name.eq_ignore_ascii_case("usr"));
    Some(if is_usr { above.parent()? } else { above }.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipe_of_this_user_is_told_from_others() {
        let hash = "24b2b1d5b2b5b6d3f9ab0a9a1f7d3f0f";
        assert!(is_pageant_of("ann", &format!("pageant.ann.{hash}")));
        assert!(is_pageant_of("Ann Lee", &format!("pageant.ann lee.{hash}")));
        assert!(is_pageant_of("a.b", &format!("pageant.a.b.{hash}")));
        for other in [
            "pageant.ann",
            "pageant.ann.",
            "pageant.ann.x",
            "pageant.anna.0",
            "pageant.bob.0",
            "ann.0",
            "",
        ] {
            assert!(!is_pageant_of("ann", other), "{other}");
        }
    }

    #[test]
    fn a_path_of_msys_is_written_as_windows_does() {
        let program = Path::new(r"C:\Program Files\Git\usr\bin\gpgconf.exe");
        for (printed, native) in [
            ("/c/Users/ann/.gnupg/S.gpg-agent", r"C:\Users\ann\.gnupg\S.gpg-agent"),
            ("/cygdrive/d/x y", r"D:\x y"),
            ("/c", r"C:\"),
            ("/usr/bin", r"C:\Program Files\Git\usr\bin"),
            ("/home/ann/.gnupg", r"C:\Program Files\Git\home\ann\.gnupg"),
            (r"C:\Users\ann", r"C:\Users\ann"),
            ("relative", "relative"),
        ] {
            let path = native_path(program, printed.into());
            assert_eq!(path, Path::new(native), "{printed}");
        }
        let cygwin = Path::new(r"C:\cygwin64\bin\gpgconf.exe");
        assert_eq!(native_path(cygwin, "/tmp/x".into()), Path::new(r"C:\cygwin64\tmp\x"));
    }
}
