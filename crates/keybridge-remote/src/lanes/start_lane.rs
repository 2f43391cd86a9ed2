//! Starting a lane in the target: its lock, its edits of the user's files, its socket.

use std::path::Path;
use std::rc::Rc;

use super::choose_socket::{self, ChosenSocket};
use super::running_lane::RunningLane;
use crate::error::Error;
use crate::footprint::{Change, Footprint, UndoContext};
use crate::handover::HandedSocket;
use crate::home::lock::{self, AcquiredLock, Inherited};
use crate::socket::listening_socket::{self, ListeningSocket};
use crate::user_files::git::NOT_SIGNING;
use crate::user_files::planned_edit::{Importance, PlannedEdit};
use crate::{DiscoveredLane, Git, Settings};

/// A lane that was started.
pub(crate) struct StartedLane {
    pub(crate) lane: RunningLane,
    /// Whether a helper of the same bridge served it before.
    pub(crate) was_inherited: bool,
    pub(crate) warnings: Vec<String>,
}

/// Locks the folder, edits the files and binds the socket. After an error everything is as it was, but
/// for a helper of the same bridge that has handed over: what it did is undone.
///
/// The future must not be dropped before it is done.
pub(crate) async fn start(
    settings: &Settings,
    git: Option<&Git>,
    discovered: DiscoveredLane,
) -> Result<StartedLane, Error> {
    let folder = discovered.folder();
    let is_new = folder.create()?;
    let shown = discovered.sockets().pop().unwrap_or_default();
    let acquired =
        lock::acquire(folder.path(), &shown, settings.bridge.as_ref(), settings.replace).await;
    let AcquiredLock { lock, inherited } = match acquired {
        Ok(acquired) => acquired,
        Err(error) => {
            if is_new {
                folder.remove_if_empty();
            }
            return Err(error);
        }
    };
    let footprint = Footprint::read(lock, &discovered);
    // What a helper that was killed has left stays on record when this one fails.
    let mut kept = footprint.changes();
    let (was_inherited, handed) = match inherited {
        Inherited::Nothing => (false, Vec::new()),
        Inherited::KilledHelper => (true, Vec::new()),
        Inherited::Sockets(sockets) => {
            kept.clear();
            (true, sockets)
        }
    };
    let mut start = LaneStart {
        settings,
        git,
        discovered: &discovered,
        footprint: &footprint,
        bound: Vec::new(),
        warnings: Vec::new(),
    };
    match start.run(is_new, handed).await {
        Ok(socket) => {
            let warnings = start.warnings;
            tracing::info!(lane = %discovered.lane(), socket = %socket.path().display(), "listening");
            let lane = RunningLane::new(discovered, footprint, socket);
            Ok(StartedLane { lane, was_inherited, warnings })
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
        handed: Vec<HandedSocket>,
    ) -> Result<Rc<ListeningSocket>, Error> {
        if is_new_folder {
            self.footprint.record(Change::CreatedLaneFolder)?;
        }
        let (ours, others) = choose_socket::go_on_with(self.discovered, handed);
        for other in others {
            if let Err(error) = other.remove() {
                tracing::warn!(%error, "can't remove a socket of an older helper");
            }
        }
        if let Some(socket) = ours.and_then(|socket| self.adopt(socket)) {
            self.footprint.record(Change::BoundSocket(socket.path().to_owned()))?;
            self.edit(socket.path()).await?;
            self.mask_units(socket.path()).await;
            return Ok(socket);
        }
        let ChosenSocket { path, listener, passed_over } =
            choose_socket::choose(self.discovered, self.settings.replace).await?;
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
        let socket = Rc::new(ListeningSocket::new(path, Box::new(listening_socket::bind)));
        self.bound.push(Rc::clone(&socket));
        socket.bind()?;
        Ok(socket)
    }

    /// Takes over a socket that was handed to us, if its path still leads to it.
    fn adopt(&mut self, socket: HandedSocket) -> Option<Rc<ListeningSocket>> {
        let HandedSocket { path, identity, listener } = socket;
        let socket = Rc::new(ListeningSocket::new(path, Box::new(listening_socket::bind)));
        match socket.adopt(listener, identity) {
            Ok(true) => {
                self.bound.push(Rc::clone(&socket));
                Some(socket)
            }
            Ok(false) => None,
            Err(error) => {
                tracing::warn!(%error, "can't take over {}", socket.path().display());
                None
            }
        }
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
                Change::CreatedLaneFolder
                | Change::EditedFile(_)
                | Change::CreatedFile(_)
                | Change::BoundHandoverSocket => edits.iter().any(|edit| edit.includes(change)),
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
        let git = self.git.filter(|git| git.signing().lane() == lane)?;
        match git.plan(folder, socket) {
            Ok(edit) => Some(edit),
            Err(error) => {
                let shown = folder.display();
                self.warnings.push(format!("{NOT_SIGNING}: our files in {shown}: {error}"));
                None
            }
        }
    }
}
