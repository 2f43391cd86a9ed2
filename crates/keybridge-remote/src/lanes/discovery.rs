//! What a lane needs in the target: GnuPG and its home, or ssh's folder.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use keybridge_proto::Lane;
use keybridge_proto::report::FailureKind;

use crate::entry;
use crate::error::Error;
use crate::home::lane_folder::LaneFolder;
use crate::home::safe_path::FolderRole;
use crate::systemd::{UnitName, UserUnits};
use crate::user_files::gpg_conf;
use crate::user_files::planned_edit::{Importance, PlannedEdit};
use crate::{Environment, FileId, Gnupg, SshFolder};

/// What was found for a lane. Cheap to clone.
#[derive(Debug, Clone)]
pub enum DiscoveredLane {
    /// GnuPG.
    Gpg(Rc<Gnupg>),
    /// ssh.
    Ssh(Rc<SshFolder>),
    /// git.
    Git(Rc<GitFolder>),
}

/// What the host is warned of where `~/.ssh/config` can't be edited.
const SSH_UNAWARE: &str = "ssh doesn't find the bridge by itself";

impl DiscoveredLane {
    /// Finds what a lane needs, and checks it. Changes nothing. A folder that is the host's own needs no
    /// bridge.
    pub async fn find(
        lane: Lane,
        environment: &Environment,
        host_folder: Option<FileId>,
    ) -> Result<Self, Error> {
        match lane {
            Lane::Gpg => {
                let gnupg = Gnupg::find(environment.clone(), host_folder).await?;
                Ok(Self::Gpg(Rc::new(gnupg)))
            }
            Lane::Ssh => Ok(Self::Ssh(Rc::new(SshFolder::find(environment, host_folder)?))),
            Lane::Git => Ok(Self::Git(Rc::new(GitFolder::find(environment)?))),
        }
    }

    /// Finds what a lane needs for a socket at a path that the host has chosen. Changes nothing.
    pub async fn at(lane: Lane, environment: &Environment, socket: PathBuf) -> Result<Self, Error> {
        match lane {
            Lane::Gpg => {
                let gnupg = Gnupg::find_at(environment.clone(), socket).await?;
                Ok(Self::Gpg(Rc::new(gnupg)))
            }
            Lane::Ssh => Ok(Self::Ssh(Rc::new(SshFolder::at(socket)?))),
            Lane::Git => Ok(Self::Git(Rc::new(GitFolder::find(environment)?))),
        }
    }

    /// The lane.
    pub fn lane(&self) -> Lane {
        match self {
            Self::Gpg(_) => Lane::Gpg,
            Self::Ssh(_) => Lane::Ssh,
            Self::Git(_) => Lane::Git,
        }
    }

    /// The folder that the lane works in.
    pub fn path(&self) -> &Path {
        self.folder().path()
    }

    pub(crate) fn folder(&self) -> &LaneFolder {
        match self {
            Self::Gpg(gnupg) => gnupg.folder(),
            Self::Ssh(ssh) => ssh.folder(),
            Self::Git(git) => git.folder(),
        }
    }

    /// Where clients may look for the agent, best first. There is at least one.
    pub(crate) fn sockets(&self) -> Vec<PathBuf> {
        match self {
            Self::Gpg(gnupg) => vec![gnupg.socket().to_owned()],
            Self::Ssh(ssh) => ssh.sockets(),
            Self::Git(git) => vec![git.socket()],
        }
    }

    /// GnuPG, if this is its lane.
    pub(crate) fn gnupg(&self) -> Option<&Rc<Gnupg>> {
        match self {
            Self::Gpg(gnupg) => Some(gnupg),
            Self::Ssh(_) | Self::Git(_) => None,
        }
    }

    /// The systemd units of the user.
    pub(crate) fn user_units(&self) -> Option<&UserUnits> {
        match self {
            Self::Gpg(gnupg) => gnupg.user_units(),
            Self::Ssh(ssh) => ssh.user_units(),
            Self::Git(_) => None,
        }
    }

    /// Those that listen at a path.
    pub(crate) fn units_at(&self, socket: &Path) -> Vec<UnitName> {
        self.user_units().map_or_else(Vec::new, |units| units.listening_at(socket))
    }

    /// Whether a helper can have masked a unit for this lane. A lane's folder at its usual place in the
    /// user's home is the user's own; any other can have come from elsewhere, with its record.
    pub(crate) fn may_have_masked(&self, unit: &UnitName) -> bool {
        let is_users_own = match self {
            Self::Gpg(gnupg) => gnupg.has_usual_home(),
            Self::Ssh(_) | Self::Git(_) => true,
        };
        is_users_own || self.sockets().iter().any(|socket| self.units_at(socket).contains(unit))
    }

    /// The edits that go with a socket at this path.
    pub(crate) fn edits(&self, socket: &Path) -> Vec<PlannedEdit> {
        match self {
            Self::Gpg(gnupg) => {
                let block = gpg_conf::block(gnupg.home(), gnupg.version());
                vec![PlannedEdit { block, files: Vec::new(), importance: Importance::Needed }]
            }
            Self::Ssh(ssh) => ssh
                .config_block(socket)
                .into_iter()
                .map(|block| {
                    let importance = Importance::Wanted(SSH_UNAWARE);
                    PlannedEdit { block, files: Vec::new(), importance }
                })
                .collect(),
            Self::Git(_) => Vec::new(),
        }
    }

    /// Creates the folder of the socket, where a program of the target knows how.
    pub(crate) async fn make_socket_folder(&self) -> Result<(), Error> {
        match self {
            Self::Gpg(gnupg) => gnupg.make_socket_folder().await,
            Self::Ssh(_) | Self::Git(_) => Ok(()),
        }
    }
}

/// The name of the folder in the user's home. Git's settings name it, so it stays where it is.
const GIT_FOLDER: &str = ".keybridge";

/// The folder of the git lane, found and checked.
#[derive(Debug, Clone)]
pub struct GitFolder(LaneFolder);

impl GitFolder {
    /// Finds the folder and checks it. Changes nothing.
    pub fn find(environment: &Environment) -> Result<Self, Error> {
        let home = environment.home_variable.as_ref().or(environment.home.as_ref());
        let home = home.ok_or_else(|| {
            let message = "the target's user has no home folder: not in /etc/passwd, nor in HOME";
            Error::new(FailureKind::NotFound, message).hint("set HOME in the target")
        })?;
        LaneFolder::find(FolderRole::GitFolder, home.join(GIT_FOLDER)).map(Self)
    }

    pub(crate) fn folder(&self) -> &LaneFolder {
        &self.0
    }

    /// Where the entries connect.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.path().join(entry::SOCKET)
    }
}
