//! Taking a lane's place in the target.

use std::path::Path;
use std::rc::Rc;

use super::choice::{self, Choice};
use super::{Place, undo};
use crate::error::StartError;
use crate::handover::{self, HandedSocket};
use crate::home_lock::{self, Inheritance, Record, Taken};
use crate::lane_home::{Edit, Weight};
use crate::listening::{self, Listening};
use crate::occupant::Occupant;
use crate::{Config, LaneHome, MarkedBlock, git};

/// A place that was taken.
pub(crate) struct TakenPlace {
    pub(crate) place: Place,
    /// Whether a helper of the same bridge had it before.
    pub(crate) was_inherited: bool,
    pub(crate) warnings: Vec<String>,
}

/// Locks the folder, edits the files and binds the socket. After an error everything is as it was, but
/// for a helper of the same bridge that has handed its place over: what it did is undone.
///
/// The future is not to be dropped half-way.
pub(crate) async fn take(config: &Config, home: LaneHome) -> Result<TakenPlace, StartError> {
    let folder = home.folder();
    folder.make()?;
    let shown = home.sockets().pop().unwrap_or_default();
    let taken =
        home_lock::take(folder.path(), &shown, config.bridge.as_ref(), config.replace).await;
    let Taken { lock, inheritance } = taken.inspect_err(|_| folder.unmake())?;
    let before = lock.record();
    if before.made_folder {
        folder.was_made_before();
    }
    let mut taking = Taking { config, home: &home, socket: None, edits: vec![], warnings: vec![] };
    let (mut was_inherited, mut left_over) = (true, before.clone());
    let handed = match inheritance {
        Inheritance::Nothing => {
            was_inherited = false;
            Vec::new()
        }
        Inheritance::Leftovers => Vec::new(),
        Inheritance::Sockets(sockets) => {
            // Whoever has done this leaves it to us.
            taking.edits = std::mem::take(&mut left_over).edits;
            sockets
        }
    };
    let note = |record: Record| {
        lock.set_record(Record { made_folder: folder.was_made(), ..record });
    };
    match taking.work(before, handed, note).await {
        Ok(socket) => {
            let Taking { edits, warnings, .. } = taking;
            tracing::info!(lane = %home.lane(), socket = %socket.path().display(), "listening");
            let place = Place::new(home, lock, socket, edits);
            Ok(TakenPlace { place, was_inherited, warnings })
        }
        Err(error) => {
            taking.take_back();
            if let Err(error) = handover::remove_leftover(folder.path()) {
                tracing::warn!(%error, "the socket of a hand-over stays");
            }
            if left_over != Record::default() {
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
struct Taking<'a> {
    config: &'a Config,
    home: &'a LaneHome,
    socket: Option<Rc<Listening>>,
    edits: Vec<MarkedBlock>,
    warnings: Vec<String>,
}

impl Taking<'_> {
    /// What changes the target, in the order in which a failure leaves the least to undo.
    async fn work(
        &mut self,
        before: Record,
        handed: Vec<HandedSocket>,
        note: impl Fn(Record),
    ) -> Result<Rc<Listening>, StartError> {
        let (ours, others) = choice::go_on_with(self.home, handed);
        for other in others {
            if let Err(error) = other.remove() {
                tracing::warn!(%error, "a socket of an older helper stays");
            }
        }
        if let Some(socket) = ours.and_then(|socket| self.adopt(socket)) {
            self.edit(socket.path(), before, note)?;
            return Ok(socket);
        }
        let Choice { path, occupant, passed_over } =
            choice::choose(self.home, self.config.replace).await?;
        self.warnings.extend(passed_over.iter().map(|(better, error)| {
            let (better, path) = (better.display(), path.display());
            format!(
                "the bridge is at {path} and not at {better}, which SSH_AUTH_SOCK names: {error}"
            )
        }));
        if let Some(old) = before.socket.as_deref().filter(|old| *old != path)
            && let Err(error) = remove_dead(old, self.home).await
        {
            tracing::warn!(%error, "a socket of an older helper stays");
        }
        self.edit(&path, before, note)?;
        choice::make_folder(&path, self.home).await?;
        // gpg can't start another agent now, so one that ends stays away.
        occupant.make_way(&path, self.config.replace).await?;
        let socket = Rc::new(Listening::new(path, Box::new(listening::bind)));
        self.socket = Some(Rc::clone(&socket));
        socket.bind()?;
        Ok(socket)
    }

    /// Takes a socket over that was handed to us, if it is still in its place.
    fn adopt(&mut self, socket: HandedSocket) -> Option<Rc<Listening>> {
        let HandedSocket { path, identity, listener } = socket;
        let listening = Rc::new(Listening::new(path, Box::new(listening::bind)));
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
        before: Record,
        note: impl Fn(Record),
    ) -> Result<(), StartError> {
        let mut edits = self.home.edits(socket);
        edits.extend(self.prepare_git(socket));
        let is_ours = |old: &MarkedBlock| edits.iter().any(|edit| edit.block.path() == old.path());
        let mut gone = before.edits;
        gone.retain(|old| !is_ours(old));
        if let Err(error) = undo(&gone, self.home.folder()) {
            tracing::warn!(%error, "lines of an older helper stay");
        }
        self.edits.retain(is_ours);
        note(Record {
            socket: Some(socket.to_owned()),
            edits: edits.iter().map(|edit| edit.block.clone()).collect(),
            ..Record::default()
        });
        for Edit { block, weight } in edits {
            match (block.put(), weight) {
                (Ok(()), _) => {
                    self.edits.retain(|old| old.path() != block.path());
                    self.edits.push(block);
                }
                (Err(error), Weight::Needed) => return Err(error.into()),
                (Err(error), Weight::Wanted(otherwise)) => {
                    self.warnings.push(format!("{otherwise}: {error}"));
                }
            }
        }
        Ok(())
    }

    /// The lines that have git sign over this lane, if it is to.
    fn prepare_git(&mut self, socket: &Path) -> Option<Edit> {
        const NOT_SIGNING: &str = "git is not set up to sign";
        let (lane, folder) = (self.home.lane(), self.home.path());
        let git = self.config.git.as_ref().filter(|git| git.signing().lane() == lane);
        let prepared = match git {
            Some(git) => git.prepare(folder, socket).map(Some),
            None => git::remove_files(folder).map(|()| None),
        };
        match prepared {
            Ok(block) => Some(Edit { block: block?, weight: Weight::Wanted(NOT_SIGNING) }),
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
        if let Err(error) = undo(&self.edits, self.home.folder()) {
            tracing::warn!(%error, "an edit stays");
        }
        if let Err(error) = git::remove_files(self.home.path()) {
            tracing::warn!(%error, "git's file stays");
        }
    }
}

/// Removes the socket of a helper that was killed, if nobody listens there.
pub(crate) async fn remove_dead(path: &Path, home: &LaneHome) -> Result<(), StartError> {
    match Occupant::look(path, home).await? {
        Occupant::Stale => {
            listening::remove(path).map_err(|error| StartError::io("removing", path, &error))
        }
        Occupant::Nobody
        | Occupant::AgentWithoutKeys(_)
        | Occupant::Alive(..)
        | Occupant::Foreign(_) => Ok(()),
    }
}
