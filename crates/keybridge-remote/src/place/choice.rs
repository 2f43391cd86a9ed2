//! Where a lane's socket can be.

use std::path::{Path, PathBuf};

use crate::error::{Problem, StartError};
use crate::folder::{self, Role};
use crate::occupant::Occupant;
use crate::quoted::how_to_make;
use crate::socket_address::MAX_PATH;
use crate::{LaneHome, handover::HandedSocket};

/// A path that can be had, and who has to make way for that.
pub(super) struct Choice {
    pub(super) path: PathBuf,
    pub(super) occupant: Occupant,
    /// The better ones, and why they can't be had.
    pub(super) passed_over: Vec<(PathBuf, StartError)>,
}

/// Chooses the best path that can be had. Changes nothing. Whoever answers at the last one is replaced
/// if that is asked for; the others are left alone.
pub(super) async fn choose(home: &LaneHome, replace: bool) -> Result<Choice, StartError> {
    let mut passed_over = Vec::new();
    let sockets = home.sockets();
    let last = sockets.len().saturating_sub(1);
    for (number, path) in sockets.into_iter().enumerate() {
        match examine(&path, home, replace && number == last).await {
            Ok(occupant) => return Ok(Choice { path, occupant, passed_over }),
            Err(error) if number == last => return Err(error),
            Err(error) => passed_over.push((path, error)),
        }
    }
    Err(StartError::NotFound(Problem::new("there is no path for the socket")))
}

/// Splits the sockets that were handed over into the one to go on with and the others.
pub(super) fn go_on_with(
    home: &LaneHome,
    mut handed: Vec<HandedSocket>,
) -> (Option<HandedSocket>, Vec<HandedSocket>) {
    let wanted = home.sockets();
    let at = handed.iter().position(|socket| wanted.contains(&socket.path));
    let ours = at.map(|at| handed.swap_remove(at));
    (ours, handed)
}

/// Who has the path, if it can be had.
async fn examine(path: &Path, home: &LaneHome, replace: bool) -> Result<Occupant, StartError> {
    check_length(path, home)?;
    let occupant = match folder_of(path)? {
        (_, true) => Occupant::look(path, home).await?,
        // Somebody may know how to make it.
        (folder, false) => match home {
            LaneHome::Gpg(_) => Occupant::Nobody,
            LaneHome::Ssh(_) => return Err(no_folder(folder, "")),
        },
    };
    occupant.refusal(path, replace).map_or(Ok(occupant), Err)
}

fn check_length(socket: &Path, home: &LaneHome) -> Result<(), StartError> {
    let length = socket.as_os_str().len();
    if length <= MAX_PATH {
        return Ok(());
    }
    let shown = socket.display();
    let problem = Problem::new(format!(
        "the socket's path has {length} bytes, and {MAX_PATH} is the most: {shown}"
    ));
    Err(StartError::Other(match home {
        LaneHome::Gpg(_) => problem.hint("set GNUPGHOME to a folder with a shorter path"),
        LaneHome::Ssh(_) => problem.hint("set SSH_AUTH_SOCK to a shorter path in the target"),
    }))
}

/// Makes sure that the folder of the socket is there.
pub(super) async fn make_folder(socket: &Path, home: &LaneHome) -> Result<(), StartError> {
    let (folder, is_there) = folder_of(socket)?;
    if is_there {
        return Ok(());
    }
    let made = home.make_socket_folder().await;
    if folder::check(Role::SocketFolder, folder)?.is_some() {
        return Ok(());
    }
    let why = made.err().map_or_else(String::new, |error| format!(": {error}"));
    Err(no_folder(folder, &why))
}

/// The folder of a socket, and whether it is there.
fn folder_of(socket: &Path) -> Result<(&Path, bool), StartError> {
    let Some(folder) = socket.parent() else {
        return Err(StartError::NotFound(Problem::new("the socket's path has no folder")));
    };
    Ok((folder, folder::check(Role::SocketFolder, folder)?.is_some()))
}

fn no_folder(folder: &Path, why: &str) -> StartError {
    let shown = folder.display();
    let problem = Problem::new(format!("the folder of the socket, {shown}, doesn't exist{why}"))
        .hint(how_to_make(folder));
    StartError::NotFound(problem)
}
