//! Setting a bridge up in the target, and taking it down again.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use keybridge_proto::report::Ready;
use keybridge_proto::session::FirstError;
use tokio::task::{JoinHandle, spawn_local};

use crate::error::{Problem, StartError, StopError};
use crate::home_lock::HomeLock;
use crate::listening::Listening;
use crate::occupant::Occupant;
use crate::quoted::quoted;
use crate::session::Common;
use crate::{Config, Deps, Gnupg, MarkedBlock, Stopping, accept, folder, guard, keys};

/// `sun_path` holds 108 bytes with its NUL.
const MAX_SOCKET_PATH: usize = 107;

/// A bridge in the target. To be stopped: dropping it leaves everything as it is.
#[must_use = "a bridge has to be stopped"]
pub struct Handle {
    stopping: Stopping,
    /// No more keys will come.
    keys_stopping: Stopping,
    /// The host was told that the bridge is ready.
    reported: Rc<Cell<bool>>,
    listening: Rc<Listening>,
    gnupg: Rc<Gnupg>,
    edits: Vec<MarkedBlock>,
    lock: HomeLock,
    tasks: Vec<JoinHandle<()>>,
}

/// Sets the bridge up: locks the home, edits the files, binds the socket, and serves it with tasks of the current
/// [`tokio::task::LocalSet`]. Keys are taken from the link as they come, and READY is said after each
/// series. After an error everything is as it was.
///
/// The future is not to be dropped half-way.
pub async fn start(config: Config, deps: Deps) -> Result<Handle, StartError> {
    let Deps { link, mut gnupg, socket, bind, edits } = deps;
    check_length(&socket)?;
    gnupg.make_home()?;
    let lock = match HomeLock::take(gnupg.home(), &socket, config.replace).await {
        Ok(lock) => lock,
        Err(error) => {
            gnupg.unmake_home();
            return Err(error);
        }
    };
    let listening = Rc::new(Listening::new(socket, bind));
    let mut made = 0;
    if let Err(error) = take_place(&config, &gnupg, &edits, &mut made, &listening).await {
        if let Err(error) = undo(edits.get(..made).unwrap_or_default(), &gnupg) {
            tracing::warn!(%error, "an edit stays");
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
        keys: None,
        warnings: Vec::new(),
    };
    let (stopping, keys_stopping) = (Stopping::default(), Stopping::default());
    let (gnupg, reported) = (Rc::new(gnupg), Rc::new(Cell::new(false)));
    let common = Common::new(link.clone(), config.limits, stopping.clone());
    let taking_keys = keys::take_keys(
        link,
        Rc::clone(&gnupg),
        ready,
        Rc::clone(&reported),
        keys_stopping.clone(),
    );
    let tasks = vec![
        spawn_local(accept::accept(Rc::clone(&listening), common, config.max_sessions)),
        spawn_local(guard::guard(Rc::clone(&listening), Rc::clone(&gnupg), stopping.clone())),
        spawn_local(taking_keys),
    ];
    Ok(Handle { stopping, keys_stopping, reported, listening, gnupg, edits, lock, tasks })
}

impl Handle {
    /// Whether the bridge has come about: the host was told that it is ready.
    pub fn was_ready(&self) -> bool {
        self.reported.get()
    }

    /// The link is over. The socket stays, and every client gets an error, until the bridge stops.
    pub fn link_lost(&self) {
        self.keys_stopping.say();
    }

    /// Ends the bridge: no more clients, sessions ended, socket removed, edits undone. Every step is
    /// done; the first error is returned.
    pub async fn stop(self) -> Result<(), StopError> {
        self.stopping.say();
        self.keys_stopping.say();
        let mut result = FirstError::default();
        for task in self.tasks {
            result.note(task.await.map_err(|error| StopError::Task(error.to_string())));
        }
        let path = self.listening.path().to_owned();
        result.note(self.listening.close().map_err(|source| StopError::Socket { path, source }));
        result.note(undo(&self.edits, &self.gnupg));
        result.note(self.lock.release().map_err(StopError::Lock));
        result.into_result()
    }
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
    if length <= MAX_SOCKET_PATH {
        return Ok(());
    }
    let shown = socket.display();
    let problem = Problem::new(format!(
        "the socket's path has {length} bytes, and {MAX_SOCKET_PATH} is the most: {shown}"
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
) -> Result<(), StartError> {
    let occupant = check_place(listening.path(), gnupg).await?;
    if let Some(refusal) = occupant.refusal(listening.path(), config.replace) {
        return Err(refusal);
    }
    for edit in edits {
        edit.put()?;
        *made += 1;
    }
    if let Some(parent) = listening.path().parent() {
        make_folder(parent, gnupg).await?;
    }
    // gpg can't start another agent now, so one that ends stays away.
    occupant.make_way(listening.path(), config.replace).await?;
    listening.bind()
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
