//! Taking a lane's place in the target.

use std::path::Path;
use std::rc::Rc;

use super::choose_socket::{self, ChosenSocket};
use super::running_lane::{RunningLane, undo};
use crate::error::StartError;
use crate::footprint::Footprint;
use crate::handover::{self, HandedSocket};
use crate::home::lock::{self, AcquiredLock, Inherited};
use crate::lanes::discovery::{Importance, PlannedEdit};
use crate::socket::current_listener::CurrentListener;
use crate::socket::listening_socket::{self, ListeningSocket};
use crate::user_files::git;
use crate::{Config, DiscoveredLane, MarkedBlock};

/// A place that was taken.
pub(crate) struct StartedLane {
    pub(crate) lane: RunningLane,
    /// Whether a helper of the same bridge had it before.
    pub(crate) was_inherited: bool,
    pub(crate) warnings: Vec<String>,
}

/// Locks the folder, edits the files and binds the socket. After an error everything is as it was, but
/// for a helper of the same bridge that has handed its place over: what it did is undone.
///
/// The future is not to be dropped half-way.
pub(crate) async fn start(
    config: &Config,
    discovered: DiscoveredLane,
) -> Result<StartedLane, StartError> {
    let folder = discovered.folder();
    folder.make()?;
    let shown = discovered.sockets().pop().unwrap_or_default();
    let taken = lock::acquire(folder.path(), &shown, config.bridge.as_ref(), config.replace).await;
    let AcquiredLock { lock, inheritance } = taken.inspect_err(|_| folder.unmake())?;
    let before = lock.record();
    if before.made_folder {
        folder.was_made_before();
    }
    let mut taking = LaneStart {
        config,
        discovered: &discovered,
        socket: None,
        edits: vec![],
        warnings: vec![],
    };
    let (mut was_inherited, mut left_over) = (true, before.clone());
    let handed = match inheritance {
        Inherited::Nothing => {
            was_inherited = false;
            Vec::new()
        }
        Inherited::Leftovers => Vec::new(),
        Inherited::Sockets(sockets) => {
            // Whoever has done this leaves it to us.
            taking.edits = std::mem::take(&mut left_over).edits;
            sockets
        }
    };
    let note = |record: Footprint| {
        lock.set_record(Footprint { made_folder: folder.was_made(), ..record });
    };
    match taking.work(before, handed, note).await {
        Ok(socket) => {
            let LaneStart { edits, warnings, .. } = taking;
            tracing::info!(lane = %discovered.lane(), socket = %socket.path().display(), "listening");
            let lane = RunningLane::new(discovered, lock, socket, edits);
            Ok(StartedLane { lane, was_inherited, warnings })
        }
        Err(error) => {
            taking.take_back();
            if let Err(error) = handover::remove_leftover(folder.path()) {
                tracing::warn!(%error, "the socket of a hand-over stays");
            }
            if left_over != Footprint::default() {
                // Of a helper that was killed: it stays as it was, and so does the word of it.
                lock.set_record(left_over);
            } else if let Err(error) = lock.release() {
                tracing::warn!(%error, "the lock's file stays");
            }
            folder.unmake();
            Err(error)
        }
    }
}

/// A place that is being taken, as far as that has come.
struct LaneStart<'a> {
    config: &'a Config,
    discovered: &'a DiscoveredLane,
    socket: Option<Rc<ListeningSocket>>,
    edits: Vec<MarkedBlock>,
    warnings: Vec<String>,
}

impl LaneStart<'_> {
    /// What changes the target, in the order in which a failure leaves the least to undo.
    async fn work(
        &mut self,
        before: Footprint,
        handed: Vec<HandedSocket>,
        note: impl Fn(Footprint),
    ) -> Result<Rc<ListeningSocket>, StartError> {
        let (ours, others) = choose_socket::go_on_with(self.discovered, handed);
        for other in others {
            if let Err(error) = other.remove() {
                tracing::warn!(%error, "a socket of an older helper stays");
            }
        }
        if let Some(socket) = ours.and_then(|socket| self.adopt(socket)) {
            self.edit(socket.path(), before, note)?;
            return Ok(socket);
        }
        let ChosenSocket { path, listener, passed_over } =
            choose_socket::choose(self.discovered, self.config.replace).await?;
        self.warnings.extend(passed_over.iter().map(|(better, error)| {
            let (better, path) = (better.display(), path.display());
            format!(
                "the bridge is at {path} and not at {better}, which SSH_AUTH_SOCK names: {error}"
            )
        }));
        if let Some(old) = before.socket.as_deref().filter(|old| *old != path)
            && let Err(error) = remove_dead(old, self.discovered).await
        {
            tracing::warn!(%error, "a socket of an older helper stays");
        }
        self.edit(&path, before, note)?;
        choose_socket::make_folder(&path, self.discovered).await?;
        // gpg can't start another agent now, so one that ends stays away.
        listener.free_path(&path, self.config.replace).await?;
        let socket = Rc::new(ListeningSocket::new(path, Box::new(listening_socket::bind)));
        self.socket = Some(Rc::clone(&socket));
        socket.bind()?;
        Ok(socket)
    }

    /// Takes a socket over that was handed to us, if it is still in its place.
    fn adopt(&mut self, socket: HandedSocket) -> Option<Rc<ListeningSocket>> {
        let HandedSocket { path, identity, listener } = socket;
        let listening = Rc::new(ListeningSocket::new(path, Box::new(listening_socket::bind)));
        match listening.adopt(listener, identity) {
            Ok(true) => {
                self.socket = Some(Rc::clone(&listening));
                Some(listening)
            }
            Ok(false) => None,
            Err(error) => {
                tracing::warn!(%error, "taking {} over", listening.path().display());
                None
            }
        }
    }

    /// Puts our lines into the user's files, and takes those out that a helper before us has put
    /// elsewhere.
    fn edit(
        &mut self,
        socket: &Path,
        before: Footprint,
        note: impl Fn(Footprint),
    ) -> Result<(), StartError> {
        let mut edits = self.discovered.edits(socket);
        edits.extend(self.prepare_git(socket));
        let is_ours = |old: &MarkedBlock| edits.iter().any(|edit| edit.block.path() == old.path());
        let mut gone = before.edits;
        gone.retain(|old| !is_ours(old));
        if let Err(error) = undo(&gone, self.discovered.folder()) {
            tracing::warn!(%error, "lines of an older helper stay");
        }
        self.edits.retain(is_ours);
        note(Footprint {
            socket: Some(socket.to_owned()),
            edits: edits.iter().map(|edit| edit.block.clone()).collect(),
            ..Footprint::default()
        });
        for PlannedEdit { block, weight } in edits {
            match (block.put(), weight) {
                (Ok(()), _) => {
                    self.edits.retain(|old| old.path() != block.path());
                    self.edits.push(block);
                }
                (Err(error), Importance::Needed) => return Err(error.into()),
                (Err(error), Importance::Wanted(otherwise)) => {
                    self.warnings.push(format!("{otherwise}: {error}"));
                }
            }
        }
        Ok(())
    }

    /// The lines that have git sign over this lane, if it is to.
    fn prepare_git(&mut self, socket: &Path) -> Option<PlannedEdit> {
        const NOT_SIGNING: &str = "git is not set up to sign";
        let (lane, folder) = (self.discovered.lane(), self.discovered.path());
        let git = self.config.git.as_ref().filter(|git| git.signing().lane() == lane);
        let prepared = match git {
            Some(git) => git.prepare(folder, socket).map(Some),
            None => git::remove_files(folder).map(|()| None),
        };
        match prepared {
            Ok(block) => {
                Some(PlannedEdit { block: block?, weight: Importance::Wanted(NOT_SIGNING) })
            }
            Err(error) => {
                let shown = folder.display();
                self.warnings.push(format!("{NOT_SIGNING}: our files in {shown}: {error}"));
                None
            }
        }
    }

    /// Undoes what was done until now.
    fn take_back(&self) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.close()
        {
            tracing::warn!(%error, "the socket stays");
        }
        if let Err(error) = undo(&self.edits, self.discovered.folder()) {
            tracing::warn!(%error, "an edit stays");
        }
        if let Err(error) = git::remove_files(self.discovered.path()) {
            tracing::warn!(%error, "git's file stays");
        }
    }
}

/// Removes the socket of a helper that was killed, if nobody listens there.
pub(crate) async fn remove_dead(
    path: &Path,
    discovered: &DiscoveredLane,
) -> Result<(), StartError> {
    match CurrentListener::find(path, discovered).await? {
        CurrentListener::Stale => {
            listening_socket::remove(path).map_err(|error| StartError::io("removing", path, &error))
        }
        CurrentListener::Nobody
        | CurrentListener::AgentWithoutKeys(_)
        | CurrentListener::Alive(..)
        | CurrentListener::Foreign(_) => Ok(()),
    }
}
