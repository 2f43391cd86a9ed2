//! GnuPG, its home, and what is wrong with it.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use keybridge_proto::inspection::{GnupgFacts, HomeProblem, HomeProblemKind};

use super::in_time;
use crate::error::{Error, quoted};
use crate::home::safe_path::{self, FolderProblem, FolderRole};
use crate::lanes::gnupg::GnupgPaths;
use crate::subprocess::find_on_path;
use crate::{Environment, FileId, Gnupg};

/// What was found.
pub(super) struct FoundGnupg {
    /// `None` if there is no gpg.
    pub(super) facts: Option<GnupgFacts>,
    /// Where gpg looks for its agent.
    pub(super) socket: Option<PathBuf>,
    /// GnuPG, or why it can't be used.
    pub(super) usable: Result<Rc<Gnupg>, String>,
}

/// Finds GnuPG. Its programs are asked side by side.
pub(super) async fn find(environment: &Environment, host_home: Option<FileId>) -> FoundGnupg {
    let Some(program) = find_on_path("gpg") else {
        let usable = Err("there is no gpg on the PATH of the target".to_owned());
        return FoundGnupg { facts: None, socket: None, usable };
    };
    let (version, paths) = tokio::join!(
        in_time(async { environment.gpg_version().await.map_err(|error| error.to_string()) }),
        in_time(async { environment.gnupg_paths().await.map_err(|error| error.to_string()) }),
    );
    let home = paths.as_ref().ok().map(|paths| paths.home.clone());
    let facts = GnupgFacts {
        program: program.to_string_lossy().into_owned(),
        version: version.clone().map_err(|reason| format!("gpg: {reason}")),
        home: home.as_ref().map(|home| home.to_string_lossy().into_owned()),
        has_home: home.as_ref().is_some_and(|home| home.is_dir()),
        home_problem: home.as_deref().and_then(home_problem),
    };
    let socket = paths.as_ref().ok().map(|paths| paths.socket.clone());
    let usable = match (version, paths) {
        (Err(reason), _) => Err(format!("gpg: {reason}")),
        (Ok(version), paths) => usable(environment, version, paths, host_home),
    };
    FoundGnupg { facts: Some(facts), socket, usable }
}

/// An old gpgconf may fail because it is old: that comes first.
fn usable(
    environment: &Environment,
    version: String,
    paths: Result<GnupgPaths, String>,
    host_home: Option<FileId>,
) -> Result<Rc<Gnupg>, String> {
    Gnupg::check_version(&version).map_err(|error| error.to_string())?;
    let paths = paths.map_err(|reason| format!("gpgconf: {reason}"))?;
    let gnupg = Gnupg::at(environment.clone(), version, paths, host_home);
    gnupg.map(Rc::new).map_err(|error| error.to_string())
}

fn home_problem(home: &Path) -> Option<HomeProblem> {
    let error = safe_path::check(FolderRole::GnupgHome, home).err()?;
    let metadata = std::fs::symlink_metadata(home).ok();
    let word = quoted(home);
    let (kind, fix) = match metadata.as_ref().and_then(FolderProblem::of) {
        Some(FolderProblem::WrongOwner(_)) => (HomeProblemKind::WrongOwner, first_hint(&error)),
        Some(FolderProblem::TooOpen(_)) => {
            (HomeProblemKind::TooOpen, Some(format!("chmod 700 {word}")))
        }
        Some(FolderProblem::NotAFolder) => {
            (HomeProblemKind::Other, Some(format!("mv {word} {word}.old")))
        }
        // Without one it is a folder above it.
        Some(FolderProblem::Link) | None => (HomeProblemKind::Other, first_hint(&error)),
    };
    Some(HomeProblem { kind, message: error.to_string(), fix })
}

fn first_hint(error: &Error) -> Option<String> {
    error.failure().hints.first().cloned()
}
