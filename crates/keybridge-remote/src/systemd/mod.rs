//! systemd in the target: units of the user's that listen where a lane's socket has to be.
//!
//! Such a unit binds its path again whenever it is started, by whatever depends on it and at every login.
//! So `--replace` masks it for this user as `systemctl --user mask` does, with a link to `/dev/null`. The
//! link is made by hand: it has to be there also when the user's manager starts only at a later login.

mod mask;
mod unit_file;
mod unit_name;
mod user_manager;

use std::path::{Path, PathBuf};

use crate::Environment;
use crate::error::Error;
use crate::footprint::{Change, Footprint};
use crate::home::safe_path::euid;
use mask::UnitEntry;
use unit_file::Specifiers;
use user_manager::UserManager;

pub(crate) use unit_name::UnitName;
pub(crate) use user_manager::ActiveState;

/// Where units of all users can be, the first one counts.
const SYSTEM_FOLDERS: [&str; 6] = [
    "/etc/systemd/user",
    "/run/systemd/user",
    "/usr/local/share/systemd/user",
    "/usr/share/systemd/user",
    "/usr/local/lib/systemd/user",
    "/usr/lib/systemd/user",
];

/// It is there if systemd is the system's first process.
const BOOTED: &str = "/run/systemd/system";

/// The units of the target's user.
#[derive(Debug, Clone)]
pub(crate) struct UserUnits {
    home: PathBuf,
    /// Where packages and administrators put units, the first one counts.
    folders: Vec<PathBuf>,
    runtime_folder: PathBuf,
    manager: UserManager,
    /// Whether systemd runs in the target. Its units can be there without it.
    is_booted: bool,
}

impl UserUnits {
    /// The units of a user who has a home.
    pub(crate) fn find(environment: &Environment) -> Option<Self> {
        let home = environment.home.clone()?;
        let data = home.join(".local/share/systemd/user");
        let folders = SYSTEM_FOLDERS.map(PathBuf::from).into_iter().chain([data]).collect();
        let (runtime_folder, is_booted) = (runtime_folder(), Path::new(BOOTED).is_dir());
        let manager = UserManager::new(runtime_folder.clone());
        Some(Self { home, folders, runtime_folder, manager, is_booted })
    }

    /// The units that listen at this path, masked or not. None, if systemd doesn't run in the target.
    pub(crate) fn listening_at(&self, socket: &Path) -> Vec<UnitName> {
        if !self.is_booted {
            return Vec::new();
        }
        let folder = mask::folder_in(&self.home);
        let mut names: Vec<UnitName> = self
            .folders
            .iter()
            .chain([&folder])
            .flat_map(|folder| unit_file::sockets_in(folder))
            .collect();
        names.sort();
        names.dedup();
        names.retain(|name| self.listens(name, socket));
        names
    }

    /// Those of them that listen now or will after the next login, each with the command that masks it.
    pub(crate) async fn starting_at(&self, socket: &Path) -> Vec<(UnitName, String)> {
        let mut units = Vec::new();
        for name in self.listening_at(socket) {
            let is_masked = matches!(mask::look(&self.home, &name), UnitEntry::Masked);
            if !is_masked
                && (self.is_wanted(&name) || self.manager.state(&name).await == ActiveState::Active)
            {
                let command = self.manager.how_to_mask(&name, &mask::folder_in(&self.home));
                units.push((name, command));
            }
        }
        units
    }

    /// Whether systemd would start an agent for a client that connects to this path.
    pub(crate) async fn would_start_at(&self, socket: &Path) -> bool {
        for name in self.listening_at(socket) {
            if self.manager.is_waiting(&name).await {
                return true;
            }
        }
        false
    }

    /// Whether a login starts the unit.
    fn is_wanted(&self, name: &UnitName) -> bool {
        let own = mask::folder_in(&self.home);
        self.folders.iter().chain([&own]).any(|folder| {
            name.in_folder(&folder.join("sockets.target.wants")).symlink_metadata().is_ok()
        })
    }

    fn listens(&self, name: &UnitName, socket: &Path) -> bool {
        let own = match mask::look(&self.home, name) {
            UnitEntry::UsersOwn(path) => Some(path),
            UnitEntry::Nothing | UnitEntry::Masked => None,
        };
        let others = || self.folders.iter().map(|folder| name.in_folder(folder));
        let file = own.or_else(|| others().find(|path| path.symlink_metadata().is_ok()));
        let folders = self.folders.iter().cloned().chain([mask::folder_in(&self.home)]);
        let specifiers = Specifiers { runtime_folder: &self.runtime_folder, home: &self.home };
        file.is_some_and(|file| {
            let drop_ins: Vec<PathBuf> = folders.map(|folder| name.drop_ins_in(&folder)).collect();
            unit_file::listens(&file, &drop_ins, socket, &specifiers)
        })
    }

    /// Masks the units that listen at this path and stops them, each on record before. What can't be done
    /// is a warning: the socket can be taken over all the same, but not kept.
    pub(crate) async fn mask_owners(&self, socket: &Path, footprint: &Footprint) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut masked = Vec::new();
        for name in self.listening_at(socket) {
            match self.mask(&name, footprint).await {
                Ok(true) => masked.push(name),
                Ok(false) => {}
                Err(error) => warnings.push(format!(
                    "{name} is not masked, so systemd can take {} back: {error}",
                    socket.display()
                )),
            }
        }
        if !masked.is_empty()
            && let Err(error) = self.manager.stop(&masked).await
        {
            warnings.push(format!("systemd can't stop its units: {error}"));
        }
        warnings
    }

    /// Says whether the unit is masked by us.
    async fn mask(&self, name: &UnitName, footprint: &Footprint) -> Result<bool, Error> {
        let is_on_record = footprint
            .changes()
            .iter()
            .any(|change| matches!(change, Change::MaskedUnit(unit, _) if unit == name));
        match mask::look(&self.home, name) {
            UnitEntry::Nothing => {}
            // One that the user has masked stays so.
            UnitEntry::Masked => return Ok(is_on_record),
            UnitEntry::UsersOwn(path) => {
                return Err(Error::other(format!(
                    "{} is a unit of the user's own",
                    path.display()
                )));
            }
        }
        let missing = mask::missing_folders(&self.home)?;
        if missing > 0 {
            footprint.record(Change::CreatedUnitFolders(missing))?;
            mask::make_folders(&self.home)?;
        }
        if !is_on_record {
            let before = self.manager.state(name).await;
            footprint.record(Change::MaskedUnit(name.clone(), before))?;
        }
        mask::put(&self.home, name)?;
        tracing::info!("the systemd unit {name} is masked while the bridge is up");
        Ok(true)
    }

    /// Takes our mask away, and has the unit listen again if it did before.
    pub(crate) async fn unmask(&self, name: &UnitName, before: ActiveState) -> Result<(), Error> {
        match mask::look(&self.home, name) {
            UnitEntry::Masked => mask::remove(&self.home, name)?,
            UnitEntry::Nothing => {}
            UnitEntry::UsersOwn(path) => {
                let shown = path.display();
                tracing::warn!("{shown} has taken the place of our mask and is left alone");
                return Ok(());
            }
        }
        // What the manager can't do doesn't get better by being tried again.
        if let Err(error) = self.manager.restore(name, before).await {
            tracing::warn!("systemd can't start {name} again: {error}");
        }
        Ok(())
    }

    /// Removes the lowest of the folders that we made for masks, if nobody uses them.
    pub(crate) fn remove_folders(&self, count: usize) -> Result<(), Error> {
        mask::remove_folders(&self.home, count)
    }
}

/// The folder that a login makes for the user, where there is one.
pub(crate) fn runtime_folder() -> PathBuf {
    PathBuf::from(format!("/run/user/{}", euid()))
}

#[cfg(test)]
mod tests;
