//! The files of ours that git's settings name, in the folder of the lane: the settings to include, and for
//! SSH keys the program that signs.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use keybridge_proto::in_single_quotes;

use crate::GitSigning;
use crate::user_files::planned_edit::PlannedFile;

const SETTINGS: &str = ".keybridge-git";

const SSH_KEYGEN: &str = ".keybridge-ssh-keygen";

/// git makes a file of a key that stands in its settings each time it signs, and leaves it in the
/// temporary folder.
const SSH_KEY: &str = ".keybridge-git.pub";

/// The files that have git sign, the settings last.
pub(crate) fn plan(
    signing: &GitSigning,
    folder: &Path,
    socket: &Path,
) -> io::Result<Vec<PlannedFile>> {
    let [path, program, public] = paths_in(folder);
    let mut files = Vec::new();
    let settings = match signing {
        GitSigning::Gpg(key) => {
            format!("[gpg]\n\tformat = openpgp\n[user]\n\tsigningKey = {key}\n")
        }
        GitSigning::Ssh(key) => {
            let settings = format!(
                "[gpg]\n\tformat = ssh\n[gpg \"ssh\"]\n\tprogram = {}\n\
                 [user]\n\tsigningKey = {}\n",
                as_value(program.as_os_str())?,
                as_value(public.as_os_str())?,
            );
            files.push(PlannedFile::program(program, ssh_keygen(socket)));
            files.push(PlannedFile::new(public, format!("{key}\n")));
            settings
        }
        // They have the git lane alone.
        GitSigning::Sandboxes => return Ok(files),
    };
    let settings = settings + "[commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n";
    files.push(PlannedFile::new(path, settings));
    Ok(files)
}

/// Every file that there can be: the settings, the program, the public key.
pub(crate) fn paths_in(folder: &Path) -> [PathBuf; 3] {
    [SETTINGS, SSH_KEYGEN, SSH_KEY].map(|name| folder.join(name))
}

/// Text between quotes, as a value in git's settings.
pub(crate) fn as_value(text: &OsStr) -> io::Result<String> {
    let text = text.to_str().filter(|text| !text.chars().any(char::is_control));
    let text = text.ok_or_else(|| {
        let message = "git's settings can't name this path";
        io::Error::new(io::ErrorKind::InvalidInput, message)
    })?;
    Ok(format!("\"{}\"", text.replace('\\', r"\\").replace('"', "\\\"")))
}

/// ssh-keygen with the agent of the bridge, where the environment names none. It knows no other way to
/// an agent.
fn ssh_keygen(socket: &Path) -> Vec<u8> {
    [
        &b"#!/bin/sh\n[ -n \"$SSH_AUTH_SOCK\" ] || SSH_AUTH_SOCK="[..],
        &in_single_quotes(socket.as_os_str().as_bytes()),
        b"\nexport SSH_AUTH_SOCK\nexec ssh-keygen \"$@\"\n",
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::process::Command;

    use super::*;

    fn write(signing: &GitSigning, folder: &Path, socket: &Path) {
        for file in plan(signing, folder, socket).unwrap() {
            file.create().unwrap();
        }
    }

    #[test]
    fn the_program_names_the_socket_where_nothing_else_does() {
        let folder = tempfile::tempdir().unwrap();
        let odd = Path::new("/it's $HOME `a` \"b\"\\/S");
        let signing = "ssh=ssh-ed25519 AAAA".parse().unwrap();
        write(&signing, folder.path(), odd);
        // What it runs in the place of ssh-keygen says what it was given.
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        let text = b"#!/bin/sh\nprintf '%s|' \"$SSH_AUTH_SOCK\" \"$@\"\n";
        keybridge_lab::write_program(&bin.join("ssh-keygen"), text);
        let run = |named: &str| {
            let mut command = Command::new(folder.path().join(SSH_KEYGEN));
            command.args(["-Y", "a b"]).env("PATH", &bin).env("SSH_AUTH_SOCK", named);
            // A process that another test starts just now may have the file open for a moment.
            let output = loop {
                match command.output() {
                    Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => {}
                    output => break output.unwrap(),
                }
            };
            String::from_utf8(output.stdout).unwrap()
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
    fn nothing_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let precious = folder.path().join("precious");
        std::fs::write(&precious, "precious").unwrap();
        let [settings, program, _] = paths_in(folder.path());
        for signing in ["gpg=0123456789ABCDEF", "ssh=ssh-ed25519 AAAA"] {
            let _ = std::fs::remove_file(&settings);
            std::os::unix::fs::symlink(&precious, &settings).unwrap();
            write(&signing.parse().unwrap(), folder.path(), Path::new("/S"));
            assert!(settings.exists() && !settings.is_symlink());
            assert_eq!(program.exists(), signing.starts_with("ssh"));
        }
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
    }
}
