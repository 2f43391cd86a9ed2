//! Choosing the path of a lane's socket.

use std::path::{Path, PathBuf};

use keybridge_proto::report::FailureKind;

use crate::DiscoveredLane;
use crate::error::{Error, how_to_make};
use crate::home::safe_path::{self, FolderRole};
use crate::socket::current_listener::CurrentListener;
use crate::socket::listening_socket::MAX_PATH;

/// A path that can be used, and what is there now.
pub(super) struct ChosenSocket {
    pub(super) path: PathBuf,
    pub(super) listener: CurrentListener,
    /// The better ones, and why they can't be used.
    pub(super) passed_over: Vec<(PathBuf, Error)>,
}

/// Chooses the path where an older helper of the bridge was, or else the best one that can be used. Changes
/// nothing. If that is asked for, systemd's units are replaced, which come back at the end, and a listener
/// at the last path; other listeners are left alone.
pub(super) async fn choose(
    discovered: &DiscoveredLane,
    older: &[PathBuf],
    replace: bool,
) -> Result<ChosenSocket, Error> {
    let mut sockets = discovered.sockets();
    let last = sockets.last().cloned();
    // A stable sort: clients find the bridge where it was.
    sockets.sort_by_key(|path| !older.contains(path));
    let mut passed_over = Vec::new();
    for path in sockets {
        let is_last = Some(&path) == last.as_ref();
        let replace = replace && (is_last || !discovered.units_at(&path).is_empty());
        match examine(&path, discovered, replace).await {
            Ok(listener) => return Ok(ChosenSocket { path, listener, passed_over }),
            Err(error) => passed_over.push((path, error)),
        }
    }
    let at_last = passed_over.into_iter().find(|(path, _)| Some(path) == last.as_ref());
    Err(at_last.map_or_else(
        || Error::new(FailureKind::NotFound, "there is no path for the socket"),
        |(_, error)| error,
    ))
}

/// What is at the path, if it can be used.
async fn examine(
    path: &Path,
    discovered: &DiscoveredLane,
    replace: bool,
) -> Result<CurrentListener, Error> {
    check_length(path, discovered)?;
    let listener = match folder_of(path)? {
        (_, true) => CurrentListener::find(path, discovered).await?,
        // gpgconf knows how to create it.
        (folder, false) => match discovered {
            DiscoveredLane::Gpg(_) => CurrentListener::Nobody,
            DiscoveredLane::Ssh(_) | DiscoveredLane::Git(_) => return Err(no_folder(folder, "")),
        },
    };
    listener.refusal(path, replace).map_or(Ok(listener), Err)
}

fn check_length(socket: &Path, discovered: &DiscoveredLane) -> Result<(), Error> {
    let length = socket.as_os_str().len();
    if length <= MAX_PATH {
        return Ok(());
    }
    let shown = socket.display();
    let message = format!("the socket's path is {length} bytes long, over {MAX_PATH}: {shown}");
    Err(Error::other(message).hint(match discovered {
        DiscoveredLane::Gpg(_) => "set GNUPGHOME to a folder with a shorter path",
        DiscoveredLane::Ssh(_) => "set SSH_AUTH_SOCK to a shorter path in the target",
        DiscoveredLane::Git(_) => "set HOME to a folder with a shorter path",
    }))
}

/// Makes sure that the folder of the socket is there.
pub(super) async fn make_folder(socket: &Path, discovered: &DiscoveredLane) -> Result<(), Error> {
    let (folder, is_there) = folder_of(socket)?;
    if is_there {
        return Ok(());
    }
    let made = discovered.make_socket_folder().await;
    if safe_path::check(FolderRole::SocketFolder, folder)?.is_some() {
        return Ok(());
    }
    let why = made.err().map_or_else(String::new, |error| format!(": {error}"));
    Err(no_folder(folder, &why))
}

/// The folder of a socket, and whether it is there.
fn folder_of(socket: &Path) -> Result<(&Path, bool), Error> {
    let Some(folder) = socket.parent() else {
        return Err(Error::new(FailureKind::NotFound, "the socket's path has no folder"));
    };
    Ok((folder, safe_path::check(FolderRole::SocketFolder, folder)?.is_some()))
}

fn no_folder(folder: &Path, why: &str) -> Error {
    let shown = folder.display();
    let message = format!("the folder of the socket, {shown}, doesn't exist{why}");
    Error::new(FailureKind::NotFound, message).hint(how_to_make(folder))
}
