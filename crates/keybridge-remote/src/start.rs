//! Setting a bridge up in the target, and taking it down again.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use keybridge_proto::report::Ready;
use keybridge_proto::session::FirstError;
use tokio::task::{JoinHandle, spawn_local};

use crate::error::{Problem, StartError, StopError};
use crate::handover::{self, HandedSocket, Offer};
use crate::home_lock::{self, HomeLock, Inheritance, Taken};
use crate::listening::Listening;
use crate::occupant::Occupant;
use crate::quoted::quoted;
use crate::session::Common;
use crate::socket_address::MAX_PATH;
use crate::{Config, Deps, Gnupg, MarkedBlock, Stopping, accept, folder, guard, keys};

/// A bridge in the target. To be stopped: dropping it leaves everything as it is.
#[must_use = "a bridge has to be stopped"]
pub struct Handle {
    stopping: Stopping,
    /// No more keys will come.
    keys_stopping: Stopping,
    /// A newer helper has everything that is here.
    handed_over: Stopping,
    /// The host was told that the bridge is ready, by this helper or the one before it.
    came_about: Rc<Cell<bool>>,
    listening: Rc<Listening>,
    /// Where a newer helper can ask for this place.
    door: Option<Rc<Listening>>,
    gnupg: Rc<Gnupg>,
    edits: Vec<MarkedBlock>,
    lock: Rc<HomeLock>,
    tasks: Vec<JoinHandle<()>>,
}

/// Sets the bridge up: locks the home, edits the files, binds the socket, and serves it with tasks of the current
/// [`tokio::task::LocalSet`]. Keys are taken from the link as they come, and READY is said after each
/// series. After an error everything is as it was, but for a helper of the same bridge that has
/// handed its place over: what it did is undone.
///
/// The future is not to be dropped half-way.
pub async fn start(config: Config, deps: Deps) -> Result<Handle, StartError> {
    let Deps { link, mut gnupg, socket, bind, edits } = deps;
    check_length(&socket)?;
    gnupg.make_home()?;
    let bridge = config.bridge.as_ref();
    let taken = home_lock::take(gnupg.home(), &socket, bridge, config.replace).await;
    let Taken { lock, inheritance } = taken.inspect_err(|_| gnupg.unmake_home())?;
    let came_about = match inheritance {
        Inheritance::Nothing => false,
        Inheritance::Leftovers | Inheritance::Sockets(_) => true,
    };
    let listening = Rc::new(Listening::new(socket, bind));
    let mut made = 0;
    let placed = take_place(&config, &gnupg, &edits, &mut made, &listening, inheritance).await;
    if let Err(error) = placed {
        if let Err(error) = listening.close() {
            tracing::warn!(%error, "the socket stays");
        }
        if let Err(error) = undo(edits.get(..made).unwrap_or_default(), &gnupg) {
            tracing::warn!(%error, "an edit stays");
        }
        if let Err(error) = handover::remove_leftover(gnupg.home()) {
            tracing::warn!(%error, "the socket of a hand-over stays");
        }
        if let Err(error) = lock.release() {
            tracing::warn!(%error, "the lock's file stays");
        }
        gnupg.unmake_home();
        return Err(error);
    }
    tracing::info!(socket = %listening.path().display(), "listening");

    let ready = Ready {
        user: gnupg.user(),
        gnupg: gnupg.version().to_owned(),
        home: gnupg.home().display().to_string(),
        gpg_socket: Some(listening.path().display().to_string()),
        ssh_socket: None,
        keys: None,
        warnings: Vec::new(),
    };
    let (stopping, keys_stopping) = (Stopping::default(), Stopping::default());
    let (gnupg, lock) = (Rc::new(gnupg), Rc::new(lock));
    let came_about = Rc::new(Cell::new(came_about));
    let common = Common::new(link.clone(), config.limits, stopping.clone());
    let taking_keys = keys::take_keys(
        link,
        Rc::clone(&gnupg),
        ready,
        Rc::clone(&came_about),
        keys_stopping.clone(),
    );
    let mut tasks = vec![
        spawn_local(accept::accept(Rc::clone(&listening), common, config.max_sessions)),
        spawn_local(guard::guard(Rc::clone(&listening), Rc::clone(&gnupg), stopping.clone())),
        spawn_local(taking_keys),
    ];
    let handed_over = Stopping::default();
    let mut door = None;
    if let Some(bridge) = config.bridge {
        door = open_door(&gnupg);
        tasks.extend(door.clone().map(|door| {
            let (lock, sockets) = (Rc::clone(&lock), vec![Rc::clone(&listening)]);
            let offer = Offer { bridge, door, lock, sockets, handed_over: handed_over.clone() };
            spawn_local(offer.serve(stopping.clone()))
        }));
    }
    Ok(Handle {
        stopping,
        keys_stopping,
        handed_over,
        came_about,
        listening,
        door,
        gnupg,
        edits,
        lock,
        tasks,
    })
}

impl Handle {
    /// Whether the bridge has come about: the host was told that it is ready.
    pub fn was_ready(&self) -> bool {
        self.came_about.get()
    }

    /// Waits until a newer helper of the same bridge has taken everything over. It is still to be
    /// stopped then.
    pub async fn handed_over(&self) {
        self.handed_over.wait().await;
    }

    /// The link is over. The socket stays, and every client gets an error, until the bridge stops.
    pub fn link_lost(&self) {
        self.keys_stopping.say();
    }

    /// Ends the bridge: no more clients, sessions ended, socket removed, edits undone. What was handed
    /// over stays as it is. Every step is done; the first error is returned.
    pub async fn stop(self) -> Result<(), StopError> {
        self.stopping.say();
        self.keys_stopping.say();
        let mut result = FirstError::default();
        if !self.handed_over.is_said() {
            // A newer helper that asks now does better to wait for the lock.
            result.note(self.door.as_deref().map_or(Ok(()), close));
        }
        for task in self.tasks {
            result.note(task.await.map_err(|error| StopError::Task(error.to_string())));
        }
        if self.handed_over.is_said() {
            return result.into_result();
        }
        result.note(close(&self.listening));
        result.note(undo(&self.edits, &self.gnupg));
        result.note(self.lock.release().map_err(StopError::Lock));
        result.into_result()
    }
}

fn close(socket: &Listening) -> Result<(), StopError> {
    let path = socket.path().to_owned();
    socket.close().map_err(|source| StopError::Socket { path, source })
}

/// The socket over which a newer helper can ask for this place. Without it the newer one kills us.
fn open_door(gnupg: &Gnupg) -> Option<Rc<Listening>> {
    let door = handover::bind(gnupg.home());
    door.inspect_err(|error| tracing::warn!(%error, "no hand-over")).ok().map(Rc::new)
}

/// Undoes the edits, if they are in the home that is there.
fn undo(edits: &[MarkedBlock], gnupg: &Gnupg) -> Result<(), StopError> {
    if gnupg.is_home_replaced() {
        return Err(StopError::OtherHome { path: gnupg.home().to_owned() });
    }
    let mut result = FirstError::default();
    for edit in edits {
        result.note(edit.remove().map_err(StopError::from));
    }
    result.into_result()
}

fn check_length(socket: &Path) -> Result<(), StartError> {
    let length = socket.as_os_str().len();
    if length <= MAX_PATH {
        return Ok(());
    }
    let shown = socket.display();
    let problem = Problem::new(format!(
        "the socket's path has {length} bytes, and {MAX_PATH} is the most: {shown}"
    ))
    .hint("set GNUPGHOME to a folder with a shorter path");
    Err(StartError::Other(problem))
}

/// Looks at the socket's folder and its path, and changes nothing.
async fn check_place(socket: &Path, gnupg: &Gnupg) -> Result<Occupant, StartError> {
    let Some(parent) = socket.parent() else {
        return Err(StartError::NotFound(Problem::new("the socket's path has no folder")));
    };
    match folder::check("the folder of the socket", parent)? {
        Some(_) => Occupant::look(socket, gnupg).await,
        None => Ok(Occupant::Nobody),
    }
}

/// What changes the target, in the order in which a failure leaves the least to undo. Counts the
/// edits that it made.
async fn take_place(
    config: &Config,
    gnupg: &Gnupg,
    edits: &[MarkedBlock],
    made: &mut usize,
    listening: &Listening,
    inheritance: Inheritance,
) -> Result<(), StartError> {
    if let Inheritance::Sockets(sockets) = inheritance {
        // Whoever has made these is gone.
        *made = edits.len();
        if adopt(listening, sockets) {
            return edits.iter().try_for_each(|edit| edit.put().map_err(StartError::from));
        }
    }
    let occupant = check_place(listening.path(), gnupg).await?;
    if let Some(refusal) = occupant.refusal(listening.path(), config.replace) {
        return Err(refusal);
    }
    for (edit, count) in edits.iter().zip(1..) {
        edit.put()?;
        *made = count.max(*made);
    }
    if let Some(parent) = listening.path().parent() {
        make_folder(parent, gnupg).await?;
    }
    // gpg can't start another agent now, so one that ends stays away.
    occupant.make_way(listening.path(), config.replace).await?;
    listening.bind()
}

/// Takes the sockets over that were handed to us; says whether ours was among them.
fn adopt(listening: &Listening, sockets: Vec<HandedSocket>) -> bool {
    let mut adopted = false;
    for socket in sockets {
        let path = socket.path.clone();
        let done = if path == listening.path() {
            let HandedSocket { listener, identity, .. } = socket;
            listening.adopt(listener, identity).map(|done| adopted |= done)
        } else {
            socket.remove()
        };
        if let Err(error) = done {
            tracing::warn!(%error, "taking {} over", path.display());
        }
    }
    adopted
}

async fn make_folder(parent: &Path, gnupg: &Gnupg) -> Result<(), StartError> {
    if folder::check("the folder of the socket", parent)?.is_some() {
        return Ok(());
    }
    let made = gnupg.make_socket_folder().await;
    if folder::check("the folder of the socket", parent)?.is_some() {
        return Ok(());
    }
    let shown = parent.display();
    let why = made.err().map_or_else(String::new, |error| format!(": {error}"));
    let problem = Problem::new(format!("the folder of the socket, {shown}, doesn't exist{why}"))
        .hint(format!("mkdir -m 700 {}", quoted(parent)));
    Err(StartError::NotFound(problem))
}
