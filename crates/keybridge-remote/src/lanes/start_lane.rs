//! Starting a lane in the target: its lock, its edits of the user's files, its socket.

use std::cell::Cell;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use keybridge_proto::Lane;

use super::choose_socket::{self, ChosenSocket};
use super::pipe_folder;
use super::running_lane::RunningLane;
use crate::clients::pipes::Pipes;
use crate::entry;
use crate::error::Error;
use crate::footprint::{Change, Footprint, UndoContext};
use crate::home::acquire_lock::acquire;
use crate::socket::listening_socket::ListeningSocket;
use crate::user_files::git::NOT_SIGNING;
use crate::user_files::planned_edit::{Importance, PlannedEdit, PlannedFile};
use crate::{DiscoveredLane, Git, Settings};

/// A lane that was started.
pub(crate) struct StartedLane {
    pub(crate) lane: RunningLane,
    pub(crate) warnings: Vec<String>,
}

/// Locks the folder, edits the files and binds the socket. After an error everything is as it was, but
/// for what an older helper of the same bridge did: that is undone. `had_older` is set if there was one.
///
/// The future must not be dropped before it is done.
pub(crate) async fn start(
    settings: &Settings,
    git: Option<&Git>,
    discovered: DiscoveredLane,
    had_older: &Cell<bool>,
) -> Result<StartedLane, Error> {
    let folder = discovered.folder();
    let is_new = folder.create()?;
    let shown = discovered.sockets().pop().unwrap_or_default();
    let bridge = settings.bridge.as_ref();
    let lock = match acquire(folder.path(), &shown, bridge, settings.replace).await {
        Ok(lock) => lock,
        Err(error) => {
            if is_new {
                folder.remove_if_empty();
            }
            return Err(error);
        }
    };
    let takes_over = bridge.is_some() && lock.bridge().as_ref() == bridge;
    lock.set_holder(bridge);
    let footprint = Footprint::read(lock, &discovered);
    // What a helper of another bridge has left stays on record when this one fails.
    let mut kept = footprint.changes();
    let older = footprint.sockets();
    if takes_over {
        had_older.set(true);
        kept.clear();
    }
    let mut start = LaneStart {
        settings,
        git,
        discovered: &discovered,
        footprint: &footprint,
        bound: Vec::new(),
        warnings: Vec::new(),
    };
    match start.run(is_new, if takes_over { &older } else { &[] }).await {
        Ok(socket) => {
            let pipes = start.make_pipes();
            let warnings = start.warnings;
            tracing::info!(lane = %discovered.lane(), socket = %socket.path().display(), "listening");
            let lane = RunningLane::new(discovered, footprint, socket, pipes);
            Ok(StartedLane { lane, warnings })
        }
        Err(error) => {
            let context = UndoContext { discovered: &discovered, bound: &start.bound };
            if let Err(error) = footprint.undo_except(&kept, &context).await {
                tracing::warn!(%error, "can't undo everything");
            }
            Err(error)
        }
    }
}

/// The start of a lane, as far as it has come.
struct LaneStart<'a> {
    settings: &'a Settings,
    git: Option<&'a Git>,
    discovered: &'a DiscoveredLane,
    footprint: &'a Footprint,
    bound: Vec<Rc<ListeningSocket>>,
    warnings: Vec<String>,
}

impl LaneStart<'_> {
    /// What changes the target, in the order in which a failure leaves the least to undo.
    async fn run(
        &mut self,
        is_new_folder: bool,
        older: &[PathBuf],
    ) -> Result<Rc<ListeningSocket>, Error> {
        if is_new_folder {
            self.footprint.record(Change::CreatedLaneFolder)?;
        }
        let ChosenSocket { path, listener, passed_over } =
            choose_socket::choose(self.discovered, older, self.settings.replace).await?;
        self.warnings.extend(passed_over.iter().map(|(better, error)| {
            let (better, path) = (better.display(), path.display());
            format!("the bridge is at {path}, not at SSH_AUTH_SOCK ({better}): {error}")
        }));
        self.edit(&path).await?;
        choose_socket::make_folder(&path, self.discovered).await?;
        self.mask_units(&path).await;
        // gpg can't start another agent now, so one that ends stays away.
        listener.free_path(&path, self.settings.replace).await?;
        self.footprint.record(Change::BoundSocket(path.clone()))?;
        let socket = Rc::new(ListeningSocket::new(path));
        self.bound.push(Rc::clone(&socket));
        socket.bind()?;
        Ok(socket)
    }

    /// Puts our lines into the user's files, and undoes what earlier helpers did that has no use any more.
    async fn edit(&mut self, socket: &Path) -> Result<(), Error> {
        let mut edits = self.discovered.edits(socket);
        edits.extend(self.plan_git(socket));
        let is_needed = |change: &Change| {
            match change {
                Change::BoundSocket(path) => path == socket,
                // They would take the socket back.
                Change::MaskedUnit(..) | Change::CreatedUnitFolders(_) => true,
                // They are made anew.
                Change::MadePipes(_) => false,
                Change::CreatedLaneFolder | Change::EditedFile(_) | Change::CreatedFile(_) => {
                    edits.iter().any(|edit| edit.includes(change))
                }
            }
        };
        let context = UndoContext { discovered: self.discovered, bound: &self.bound };
        if let Err(error) = self.footprint.undo(|change| !is_needed(change), &context).await {
            tracing::warn!(%error, "can't undo a change of an older helper");
        }
        for edit in edits {
            match (edit.make(self.footprint), edit.importance) {
                (Ok(()), _) => {}
                (Err(error), Importance::Needed) => return Err(error),
                (Err(error), Importance::Wanted(otherwise)) => {
                    self.warnings.push(format!("{otherwise}: {error}"));
                }
            }
        }
        Ok(())
    }

    /// The way for sandboxes that forbid sockets. The lane works without it.
    fn make_pipes(&mut self) -> Option<Pipes> {
        if self.discovered.lane() != Lane::Git {
            return None;
        }
        self.try_make_pipes()
            .inspect_err(|error| {
                let error = error.one_line();
                self.warnings.push(format!("sandboxes can't reach the bridge: {error}"));
            })
            .ok()
    }

    fn try_make_pipes(&self) -> Result<Pipes, Error> {
        let own = self.discovered.path();
        let folder = self.settings.pipes.as_deref().unwrap_or(own);
        let path = pipe_folder::resolve(folder)?;
        if folder != own {
            let named = own.join(entry::PIPES_ELSEWHERE);
            self.footprint.record(Change::CreatedFile(named.clone()))?;
            PlannedFile::new(named.clone(), path.as_os_str().as_bytes())
                .create()
                .map_err(|error| Error::io("create", &named, error))?;
        }
        self.footprint.record(Change::MadePipes(path.clone()))?;
        Pipes::make(&path)
    }

    /// Keeps systemd's units away from the socket, if they are to be replaced.
    async fn mask_units(&mut self, socket: &Path) {
        if self.settings.replace
            && let Some(units) = self.discovered.user_units()
        {
            self.warnings.extend(units.mask_owners(socket, self.footprint).await);
        }
    }

    /// The lines that have git sign over this lane, if it should.
    fn plan_git(&mut self, socket: &Path) -> Option<PlannedEdit> {
        let (lane, folder) = (self.discovered.lane(), self.discovered.path());
        let git = self.git.filter(|git| git.lane() == lane)?;
        match git.plan(folder, socket) {
            Ok(edit) => {
                self.warnings.extend(git.note());
                Some(edit)
            }
            Err(error) => {
                let shown = folder.display();
                self.warnings.push(format!("{NOT_SIGNING}: our files in {shown}: {error}"));
                None
            }
        }
    }
}
