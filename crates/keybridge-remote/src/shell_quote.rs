//! A path as one word of a shell's command line, for hints that a person may copy.

use std::path::Path;

use keybridge_proto::posix_word;

/// The path, quoted if it has to be.
pub(crate) fn quoted(path: &Path) -> String {
    posix_word(path.as_os_str().as_encoded_bytes())
}

/// The command that creates a folder for its owner alone, with those above it.
pub(crate) fn how_to_make(folder: &Path) -> String {
    format!("mkdir -p -m 700 {}", quoted(folder))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_plain_path_stays_as_it_is() {
        assert_eq!(quoted(Path::new("/home/a-b/.gnupg")), "/home/a-b/.gnupg");
        assert_eq!(quoted(Path::new("/home/my files")), "'/home/my files'");
    }

    #[test]
    fn a_shell_reads_the_path_again() {
        for bytes in [
            &b"/plain"[..],
            b"/with space",
            b"/it's; rm -rf $HOME `x` \"y\" \\ *?[a]",
            b"/new\nline\x1b[2Jab",
            b"/raw\xff\xfe'ab",
            "/größe ü".as_bytes(),
            b"/~tilde",
        ] {
            let word = quoted(Path::new(OsStr::from_bytes(bytes)));
            assert!(!word.chars().any(char::is_control), "{word}");
            let output =
                Command::new("bash").args(["-c", &format!("printf %s {word}")]).output().unwrap();
            assert_eq!(output.stdout, bytes, "{word}");
        }
    }
}
