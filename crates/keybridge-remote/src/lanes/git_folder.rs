//! git in the target: the folder with its entries and their socket.

use std::path::PathBuf;

use keybridge_proto::report::FailureKind;

use crate::Environment;
use crate::entry;
use crate::error::Error;
use crate::home::lane_folder::LaneFolder;
use crate::home::safe_path::FolderRole;

/// The name of the folder in the user's home. Git's settings name it, so it stays where it is.
const FOLDER: &str = ".keybridge";

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
        LaneFolder::find(FolderRole::GitFolder, home.join(FOLDER)).map(Self)
    }

    pub(crate) fn folder(&self) -> &LaneFolder {
        &self.0
    }

    /// Where the entries connect.
    pub(crate) fn socket(&self) -> PathBuf {
        self.0.path().join(entry::SOCKET)
    }
}
