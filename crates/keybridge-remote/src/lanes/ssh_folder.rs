//! ssh in the target: its folder, where the agent's socket can be, and the lines that name it.

use std::path::{Path, PathBuf};

use keybridge_proto::report::FailureKind;

use crate::error::Error;
use crate::home::lane_folder::LaneFolder;
use crate::home::lock::LaneLock;
use crate::home::safe_path::{self, FolderRole};
use crate::systemd::UserUnits;
use crate::{Environment, FileId, MarkedBlock};

/// Where the socket is when the environment names no better place.
const SOCKET: &str = "agent.sock";

/// The user's folder `.ssh`, found and checked.
#[derive(Debug, Clone)]
pub struct SshFolder {
    folder: LaneFolder,
    /// Where the socket may be, best first.
    sockets: Vec<PathBuf>,
    /// Whether ssh's settings have to name the socket.
    edits_config: bool,
    units: Option<UserUnits>,
}

impl SshFolder {
    /// Finds the folder and checks it. Changes nothing.
    pub fn find(environment: &Environment, host_folder: Option<FileId>) -> Result<Self, Error> {
        let home = environment.home.as_ref().ok_or_else(|| {
            let message = "the target's user has no home folder: not in /etc/passwd, nor in HOME";
            Error::new(FailureKind::NotFound, message).hint("set HOME in the target")
        })?;
        let mut path = home.join(".ssh");
        safe_path::check_ancestors(FolderRole::SshFolder, &path)?;
        // It can be a link to where the user's settings are kept.
        if path.is_symlink() {
            path = safe_path::resolve(&path).unwrap_or(path);
        }
        let folder = LaneFolder::find(FolderRole::SshFolder, path)?;
        if folder.id().is_some() && folder.id() == host_folder {
            let shown = folder.path().display();
            let message = format!("{shown} is the host's own ssh folder; its agent is there");
            let error = Error::new(FailureKind::SameHome, message);
            return Err(error.hint("mount another folder there"));
        }
        let own = folder.path().join(SOCKET);
        let named = environment.ssh_auth_sock.clone();
        let named = named.filter(|path| can_be_named(path) && *path != own);
        let sockets = named.into_iter().chain([own]).collect();
        Ok(Self { folder, sockets, edits_config: true, units: UserUnits::find(environment) })
    }

    /// The folder of a socket whose path the host has chosen. Changes nothing.
    pub(crate) fn at(socket: PathBuf) -> Result<Self, Error> {
        let folder = socket.parent().unwrap_or(Path::new("/")).to_owned();
        let folder = LaneFolder::find(FolderRole::SshFolder, folder)?;
        Ok(Self { folder, sockets: vec![socket], edits_config: false, units: None })
    }

    /// Whether a helper uses or has used the folder, even if the folder can't be used now.
    pub fn is_in_use(environment: &Environment) -> bool {
        let folder = environment.home.as_ref().map(|home| home.join(".ssh"));
        folder.is_some_and(|folder| LaneLock::path_in(&folder).exists())
    }

    pub(crate) fn folder(&self) -> &LaneFolder {
        &self.folder
    }

    pub(crate) fn user_units(&self) -> Option<&UserUnits> {
        self.units.as_ref()
    }

    /// Where the socket may be, best first.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        self.sockets.clone()
    }

    /// The lines that lead ssh to the socket where the environment names no agent. The first value
    /// counts in ssh's settings: the user's own lines come before ours and win.
    pub(crate) fn config_block(&self, socket: &Path) -> Option<MarkedBlock> {
        if !self.edits_config {
            return None;
        }
        let socket = if socket == self.folder.path().join(SOCKET) {
            // ssh knows the way, whatever is in it.
            format!("~/.ssh/{SOCKET}")
        } else {
            format!("\"{}\"", socket.to_str()?)
        };
        Some(config_lines(&self.folder.path().join("config"), &socket))
    }
}

/// The block that names this agent in this file. The first value counts in ssh's settings: the user's
/// own lines come before ours and win.
fn config_lines(file: &Path, identity_agent: &str) -> MarkedBlock {
    // The user's shell runs the test, whichever that is. After it lines hold for every host, so
    // that lines which somebody adds there are not ours.
    let lines = format!(
        "Match exec \"sh -c 'test ${{#SSH_AUTH_SOCK}} = 0'\"\n    \
         IdentityAgent {identity_agent}\n\
         Match all\n"
    );
    MarkedBlock::new(file, lines)
}

/// Whether a path means itself in ssh's settings, between quotes.
fn can_be_named(path: &Path) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+,:@= ".contains(letter);
    path.is_absolute() && path.to_str().is_some_and(|path| path.chars().all(plain))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    fn environment(home: &Path) -> Environment {
        Environment { home: Some(home.to_owned()), ..Environment::default() }
    }

    #[test]
    fn the_socket_of_the_environment_is_the_better_one() {
        let home = keybridge_lab::short_folder("kbu");
        let own = &home.path().join(".ssh/agent.sock");
        let sockets = |named: Option<&Path>| {
            let ssh_auth_sock = named.map(Path::to_owned);
            let environment = Environment { ssh_auth_sock, ..environment(home.path()) };
            SshFolder::find(&environment, None).unwrap().sockets()
        };
        assert_eq!(sockets(None), [own.as_path()]);
        assert_eq!(sockets(Some(own)), [own.as_path()]);
        let run = Path::new("/run/user/7/agent");
        assert_eq!(sockets(Some(run)), [run, own.as_path()]);
        for odd in ["relative", "/a\"b", "/a\nb", "/a%d", "/$HOME/x", "/ä", "/a\\b"] {
            assert_eq!(sockets(Some(Path::new(odd))), [own.as_path()], "{odd}");
        }
    }

    #[test]
    fn a_link_to_the_folder_is_followed() {
        let home = keybridge_lab::short_folder("kbu");
        let kept = home.path().join("settings");
        keybridge_lab::make_private(&kept);
        symlink("settings", home.path().join(".ssh")).unwrap();
        let ssh = SshFolder::find(&environment(home.path()), None).unwrap();
        assert_eq!(ssh.folder().path(), kept);
        let block = ssh.config_block(&kept.join("agent.sock")).unwrap();
        assert_eq!(block.path(), kept.join("config"));
        assert!(block.lines().contains("IdentityAgent ~/.ssh/agent.sock\n"));
    }

    #[test]
    fn the_hosts_own_folder_is_not_bridged() {
        let home = keybridge_lab::short_folder("kbu");
        let folder = home.path().join(".ssh");
        keybridge_lab::make_private(&folder);
        let metadata = std::fs::metadata(&folder).unwrap();
        let id = FileId { device: metadata.dev(), inode: metadata.ino() };
        let found = SshFolder::find(&environment(home.path()), Some(id));
        assert_eq!(found.unwrap_err().kind(), FailureKind::SameHome);
        let other = FileId { inode: id.inode + 1, ..id };
        assert!(SshFolder::find(&environment(home.path()), Some(other)).is_ok());
        let nobody = SshFolder::find(&Environment::default(), None);
        assert_eq!(nobody.unwrap_err().kind(), FailureKind::NotFound);
    }
}
