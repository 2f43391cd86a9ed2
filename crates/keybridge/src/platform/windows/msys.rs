//! Paths as programs of Cygwin and MSYS print them, such as the GnuPG of Git for Windows.

use std::env;
use std::path::{Path, PathBuf};

use crate::platform::{System, variable};

/// A path that a program has printed, as Windows writes it. Those of native programs stay as they are.
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
