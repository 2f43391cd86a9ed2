//! The files of ours that git is led to, in the folder of the lane: the settings, and for SSH keys the
//! program that signs.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use super::GitSigning;

const SETTINGS: &str = ".keybridge-git";

const SSH_KEYGEN: &str = ".keybridge-ssh-keygen";

/// git makes a file of a key that stands in its settings each time it signs, and leaves it in the
/// temporary folder.
const SSH_KEY: &str = ".keybridge-git.pub";

/// Writes the files, and tells where the settings are.
pub(super) fn write(signing: &GitSigning, folder: &Path, socket: &Path) -> io::Result<PathBuf> {
    remove(folder)?;
    let settings = match signing {
        GitSigning::Gpg(key) => {
            format!("[gpg]\n\tformat = openpgp\n[user]\n\tsigningKey = {key}\n")
        }
        GitSigning::Ssh(key) => {
            let program = folder.join(SSH_KEYGEN);
            create(&program, 0o700, &ssh_keygen(socket))?;
            // A file system can forbid programs.
            access(&program, Access::EXEC_OK)?;
            let public = folder.join(SSH_KEY);
            create(&public, 0o600, format!("{key}\n").as_bytes())?;
            let (program, public) = (as_value(program.as_os_str())?, as_value(public.as_os_str())?);
            format!(
                "[gpg]\n\tformat = ssh\n[gpg \"ssh\"]\n\tprogram = {program}\n\
                 [user]\n\tsigningKey = {public}\n"
            )
        }
    };
    let settings = settings + "[commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n";
    let path = folder.join(SETTINGS);
    create(&path, 0o600, settings.as_bytes())?;
    Ok(path)
}

/// Removes the files, if they are there.
pub(crate) fn remove(folder: &Path) -> io::Result<()> {
    for name in [SETTINGS, SSH_KEYGEN, SSH_KEY] {
        match std::fs::remove_file(folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Text between quotes, as a value in git's settings.
pub(super) fn as_value(text: &OsStr) -> io::Result<String> {
    let text = text.to_str().filter(|text| !text.chars().any(char::is_control));
    let text = text.ok_or_else(|| {
        let message = "the path can't be named in git's settings";
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    Ok(format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"")))
}

fn create(path: &Path, mode: u32, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text)
}

/// ssh-keygen with the agent of the bridge, where the environment names none. It knows no other way to
/// an agent.
fn ssh_keygen(socket: &Path) -> Vec<u8> {
    let quoted = socket.as_os_str().as_bytes().split(|&byte| byte == b'\'').collect::<Vec<_>>();
    let quoted = quoted.join(&b"'\\''"[..]);
    [
        &b"#!/bin/sh\n[ -n \"$SSH_AUTH_SOCK\" ] || SSH_AUTH_SOCK='"[..],
        &quoted,
        b"'\nexport SSH_AUTH_SOCK\nexec ssh-keygen \"$@\"\n",
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_program_names_the_socket_where_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let odd = Path::new("/it's $HOME `a` \"b\"\\/S");
        let signing = "ssh=ssh-ed25519 AAAA".parse().unwrap();
        write(&signing, folder.path(), odd).unwrap();
        // What it runs in the place of ssh-keygen says what it was given.
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let text = b"#!/bin/sh\nprintf '%s|' \"$SSH_AUTH_SOCK\" \"$@\"\n";
        create(&bin.join("ssh-keygen"), 0o700, text).unwrap();
        let run = |named: &str| {
            let mut command = Command::new(folder.path().join(SSH_KEYGEN));
            command.args(["-Y", "a b"]).env("PATH", &bin).env("SSH_AUTH_SOCK", named);
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        assert_eq!(run(""), format!("{}|-Y|a b|", odd.display()));
        assert_eq!(run("/mine"), "/mine|-Y|a b|");
    }

    #[test]
    fn values_come_back_from_git() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("settings");
        for text in ["/plain", "/a b;c#d", "/quo\"te\\n", "/ü"] {
            let value = as_value(OsStr::new(text)).unwrap();
            std::fs::write(&file, format!("[a]\n\tb = {value}\n")).unwrap();
            let mut git = Command::new("git");
            git.args(["config", "--file"]).arg(&file).args(["--get", "a.b"]);
            assert_eq!(git.output().unwrap().stdout, format!("{text}\n").as_bytes());
        }
        assert!(as_value(OsStr::new("/a\nb")).is_err());
    }

    #[test]
    fn nothing_is_left_and_nothing_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        std::fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, folder.path().join(SETTINGS)).unwrap();
        for signing in ["gpg=0123456789ABCDEF", "ssh=ssh-ed25519 AAAA", "gpg=0123456789ABCDEF"] {
            let path = write(&signing.parse().unwrap(), folder.path(), Path::new("/S")).unwrap();
            assert!(path.exists() && !path.is_symlink());
            let program = folder.path().join(SSH_KEYGEN);
            assert_eq!(program.exists(), signing.starts_with("ssh"));
        }
        remove(folder.path()).unwrap();
        remove(folder.path()).unwrap();
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
