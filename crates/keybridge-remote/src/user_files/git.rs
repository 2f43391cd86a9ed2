//! Signing with git in the target: its user's global settings get one marked line that includes a file
//! of ours.
//!
//! git adds a new value to the last section with its name. If that was ours, the user's value would be among
//! our lines and be removed with them. So ours is a section that users don't set values in.

use std::io;
use std::path::{Path, PathBuf};

use keybridge_proto::{Lane, last_line, os_string, printable};

use crate::subprocess::{command, find_on_path, run};
use crate::user_files::planned_edit::{Importance, PlannedEdit};
use crate::user_files::{git_entry_files, git_settings_files};
use crate::{Environment, GitSigning, MarkedBlock};

/// Conditions for includes are there from this version on.
const OLDEST: [u32; 2] = [2, 13];

/// Signatures with SSH keys, and keys that are written out in the settings.
const OLDEST_FOR_SSH: [u32; 2] = [2, 35];

/// The condition that holds for every repository: each one is below the root.
pub(crate) const ALL_REPOSITORIES: &str = "gitdir:/";

/// The condition that a repository has a remote.
pub(crate) const WITH_REMOTE: &str = "hasconfig:remote.*.url:**";

/// It is there from this version on. Earlier ones would take it for one that never holds.
const OLDEST_WITH_REMOTE: [u32; 2] = [2, 36];

const VERSION_PREFIX: &str = "git version ";

/// git in the target, and how it should sign.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    signing: GitSigning,
    settings: PathBuf,
    version: [u32; 2],
    /// The lane that signatures take.
    lane: Lane,
    /// The files by which git judges signatures with SSH keys. It takes the last one.
    allowed_signers: Vec<PathBuf>,
}

/// The beginning of the warning if git can't be set up.
pub(crate) const NOT_SIGNING: &str = "git is not set up to sign";

/// Why git can't be set up; the bridge works without.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{NOT_SIGNING}: {0}")]
pub(crate) struct GitError(String);

impl Git {
    /// Finds git and its global settings. Changes nothing.
    pub(crate) async fn find(
        environment: &Environment,
        signing: GitSigning,
        lanes: &[Lane],
    ) -> Result<Self, GitError> {
        let lane = if lanes.contains(&Lane::Git) { Lane::Git } else { signing.lane() };
        let (_, version) = installed_version().await.map_err(GitError)?;
        let oldest = match signing {
            GitSigning::Gpg(_) | GitSigning::Sandboxes => OLDEST,
            GitSigning::Ssh(_) => OLDEST_FOR_SSH,
        };
        if version < oldest {
            let ([major, minor], [old_major, old_minor]) = (version, oldest);
            let message =
                format!("git {major}.{minor} is too old; {old_major}.{old_minor} is needed");
            return Err(GitError(message));
        }
        if lane == Lane::Ssh && find_on_path("ssh-keygen").is_none() {
            return Err(GitError("there is no ssh-keygen on the PATH of the target".to_owned()));
        }
        let settings = environment.git_settings().ok_or_else(|| {
            GitError("can't find its global settings; set HOME in the target".to_owned())
        })?;
        let allowed_signers = allowed_signers().await;
        Ok(Self { signing, settings, version, lane, allowed_signers })
    }

    #[cfg(test)]
    pub(crate) fn at(settings: PathBuf, signing: GitSigning) -> Self {
        let (version, lane) = (OLDEST_WITH_REMOTE, signing.lane());
        Self { signing, settings, version, lane, allowed_signers: Vec::new() }
    }

    /// The lane that signatures take.
    pub(crate) fn lane(&self) -> Lane {
        self.lane
    }

    /// What the user should know of how it is set up.
    pub(crate) fn note(&self) -> Option<String> {
        let signs = self.lane == Lane::Git && self.signing != GitSigning::Sandboxes;
        let is_old = signs && self.version < OLDEST_WITH_REMOTE;
        let [major, minor] = self.version;
        is_old.then(|| {
            format!("git {major}.{minor} signs in every repository, also in those without a remote")
        })
    }

    /// The lines that have git sign over a lane, and the files that they name.
    pub(crate) fn plan(&self, folder: &Path, socket: &Path) -> io::Result<PlannedEdit> {
        let has_condition =
            self.version >= OLDEST_WITH_REMOTE && self.signing != GitSigning::Sandboxes;
        let files = if self.lane == Lane::Git {
            let signers = &self.allowed_signers;
            git_entry_files::plan(&self.signing, folder, signers, has_condition)?
        } else {
            git_settings_files::plan(&self.signing, folder, socket)?
        };
        let conditions: &[&str] = if self.lane == Lane::Git && has_condition {
            &[ALL_REPOSITORIES, WITH_REMOTE]
        } else {
            &[ALL_REPOSITORIES]
        };
        let include = |(condition, settings): (&&str, PathBuf)| {
            let path = git_settings_files::as_value(settings.as_os_str())?;
            Ok(format!("[includeIf \"{condition}\"]\n\tpath = {path}\n"))
        };
        let settings = git_entry_files::settings_in(folder);
        let lines = conditions.iter().zip(settings).map(include).collect::<io::Result<String>>()?;
        let block = MarkedBlock::new(&self.settings, lines);
        Ok(PlannedEdit { block, files, importance: Importance::Wanted(NOT_SIGNING) })
    }
}

impl Environment {
    /// The file of git's global settings that git itself would write to.
    fn git_settings(&self) -> Option<PathBuf> {
        if let Some(named) = &self.git_config_global {
            return Some(named.clone()).filter(|path| path.is_absolute());
        }
        let home = self.home_variable.as_ref().or(self.home.as_ref());
        let plain = home.map(|home| home.join(".gitconfig"));
        let other = self
            .xdg_config_home
            .clone()
            .or_else(|| home.map(|home| home.join(".config")))
            .map(|folder| folder.join("git/config"))
            .filter(|path| path.exists());
        match plain {
            Some(plain) if plain.exists() => Some(plain),
            plain => other.or(plain),
        }
    }
}

/// The files that git's settings name for signatures with SSH keys: the system's, the user's, and what they
/// include. In the root no repository's own settings count.
async fn allowed_signers() -> Vec<PathBuf> {
    let mut git = command(Path::new("git"));
    git.args(["config", "-z", "--type=path", "--get-all", "gpg.ssh.allowedSignersFile"]);
    let Ok(output) = run(git.current_dir("/")).await else { return Vec::new() };
    let values = output.stdout.split(|&byte| byte == 0).filter(|value| !value.is_empty());
    values.map(|value| os_string(value.to_vec()).into()).collect()
}

/// The version of git as it prints it, and its two numbers, or why that can't be known.
pub(crate) async fn installed_version() -> Result<(String, [u32; 2]), String> {
    let output = run(command(Path::new("git")).arg("--version")).await.map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            "there is no git on the PATH of the target".to_owned()
        } else {
            format!("can't run git: {error}")
        }
    })?;
    let line = last_line(&output.stdout);
    let numbers = parse_version(line)
        .ok_or_else(|| format!("expected git's version, got: {}", printable(line)))?;
    let text = line.strip_prefix(VERSION_PREFIX.as_bytes()).unwrap_or(line);
    Ok((printable(text).to_string(), numbers))
}

/// The two numbers in `git version 2.39.5`.
fn parse_version(line: &[u8]) -> Option<[u32; 2]> {
    let text = std::str::from_utf8(line).ok()?.strip_prefix(VERSION_PREFIX)?;
    let mut numbers = text.split(|letter: char| !letter.is_ascii_digit());
    Some([numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_two_numbers() {
        assert_eq!(parse_version(b"git version 2.39.5"), Some([2, 39]));
        assert_eq!(parse_version(b"git version 2.50.1 (Apple Git-155)"), Some([2, 50]));
        assert_eq!(parse_version(b"git version 3.0-rc1"), Some([3, 0]));
        for line in [&b"git version"[..], b"git version two", b"hub 2.1", b""] {
            assert_eq!(parse_version(line), None, "{line:?}");
        }
    }

    #[test]
    fn the_settings_are_the_file_that_git_writes_to() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        let mut environment =
            Environment { home_variable: Some(home.path().to_owned()), ..Environment::default() };
        assert_eq!(environment.git_settings(), Some(at(".gitconfig")));
        std::fs::create_dir_all(at(".config/git")).unwrap();
        std::fs::write(at(".config/git/config"), "").unwrap();
        assert_eq!(environment.git_settings(), Some(at(".config/git/config")));
        environment.xdg_config_home = Some(at("xdg"));
        assert_eq!(environment.git_settings(), Some(at(".gitconfig")));
        std::fs::create_dir_all(at("xdg/git")).unwrap();
        std::fs::write(at("xdg/git/config"), "").unwrap();
        assert_eq!(environment.git_settings(), Some(at("xdg/git/config")));
        std::fs::write(at(".gitconfig"), "").unwrap();
        assert_eq!(environment.git_settings(), Some(at(".gitconfig")));
        environment.git_config_global = Some(at("named"));
        assert_eq!(environment.git_settings(), Some(at("named")));
        assert_eq!(Environment::default().git_settings(), None);
    }
}
