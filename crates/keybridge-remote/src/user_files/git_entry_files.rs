//! The files of ours that have git sign over the git lane: the entries that it runs, and its settings.

use std::io;
use std::path::{Path, PathBuf};

use super::git_settings_files::as_value;
use super::planned_edit::PlannedFile;
use crate::GitSigning;
use crate::entry;

/// The settings of every repository, and those of a repository with a remote.
const SETTINGS: [&str; 2] = [".keybridge-git", ".keybridge-git-remote"];

/// git makes a file of a key that stands in its settings each time it signs, and leaves it in the temporary
/// folder.
const SSH_KEY: &str = ".keybridge-git.pub";

/// By which git judges signatures of its own.
const ALLOWED_SIGNERS: &str = ".keybridge-git-signers";

/// A repository that is pushed somewhere has all of its commits signed; fixtures of tests are left alone.
const ALWAYS: &str = "[commit]\n\tgpgSign = true\n[tag]\n\tgpgSign = true\n";

/// What git runs is here and not where the host has put the helper: that can be a temporary folder, where
/// another user can take the name once it was cleaned, and another host removes helpers of other versions.
const PROGRAM: &str = ".keybridge-program";

/// Every file that there can be.
pub(crate) fn paths_in(folder: &Path) -> [PathBuf; 9] {
    let [all, with_remote] = SETTINGS;
    let (sandboxes, pipes) = (entry::ONLY_SANDBOXES, entry::PIPES_ELSEWHERE);
    let (key, signers) = (SSH_KEY, ALLOWED_SIGNERS);
    [PROGRAM, entry::GPG, entry::SSH_KEYGEN, key, signers, all, with_remote, sandboxes, pipes]
        .map(|name| folder.join(name))
}

/// The settings, in the order of their conditions.
pub(super) fn settings_in(folder: &Path) -> [PathBuf; 2] {
    SETTINGS.map(|name| folder.join(name))
}

/// The files, the settings last. Where git has no condition for remotes, it always signs.
pub(super) fn plan(
    signing: &GitSigning,
    folder: &Path,
    allowed_signers: &[PathBuf],
    has_condition: bool,
) -> io::Result<Vec<PlannedFile>> {
    let [program, gpg, ssh_keygen, public, signers, all, with_remote, only_sandboxes, _] =
        paths_in(folder);
    let value = |path: &Path| as_value(path.as_os_str());
    let programs = format!(
        "[gpg]\n\tprogram = {}\n[gpg \"openpgp\"]\n\tprogram = {0}\n\
         [gpg \"ssh\"]\n\tprogram = {}\n",
        value(&gpg)?,
        value(&ssh_keygen)?
    );
    let mut files = vec![
        PlannedFile::copy(program.clone(), "/proc/self/exe".into()),
        PlannedFile::link(gpg, program.clone()),
        PlannedFile::link(ssh_keygen, program),
    ];
    let key = match signing {
        GitSigning::Sandboxes => {
            files.push(PlannedFile::new(only_sandboxes, ""));
            files.push(PlannedFile::new(all, programs));
            return Ok(files);
        }
        GitSigning::Gpg(key) => {
            format!("[gpg]\n\tformat = openpgp\n[user]\n\tsigningKey = {key}\n")
        }
        GitSigning::Ssh(key) => {
            let settings =
                format!("[gpg]\n\tformat = ssh\n[user]\n\tsigningKey = {}\n", value(&public)?);
            files.push(PlannedFile::new(public, format!("{key}\n")));
            // The user's own file is the better one.
            if allowed_signers.iter().any(|file| *file != signers) {
                settings
            } else {
                let named = format!("[gpg \"ssh\"]\n\tallowedSignersFile = {}\n", value(&signers)?);
                files.push(PlannedFile::new(signers, format!("* namespaces=\"git\" {key}\n")));
                settings + &named
            }
        }
    };
    let settings = programs + &key;
    if has_condition {
        files.push(PlannedFile::new(with_remote, ALWAYS));
        files.push(PlannedFile::new(all, settings));
    } else {
        files.push(PlannedFile::new(all, settings + ALWAYS));
    }
    Ok(files)
}
