//! A path as one word of a shell's command line, for hints that a person may copy.

use std::fmt::Write;
use std::path::Path;

/// The path, quoted if it has to be.
pub(crate) fn quoted(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+:,@%=".contains(byte);
    match path.to_str() {
        Some(text) if !text.is_empty() && bytes.iter().all(plain) => text.to_owned(),
        Some(text) if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        Some(_) | None => {
            let mut word = String::from("$'");
            for &byte in bytes {
                // Writing to a string doesn't fail.
                let _ = if plain(&byte) {
                    word.write_char(char::from(byte))
                } else {
                    write!(word, "\\x{byte:02x}")
                };
            }
            word.push('\'');
            word
        }
    }
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
