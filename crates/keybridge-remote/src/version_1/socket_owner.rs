//! The user whom the sockets of a version 1 host are for.
//!
//! Such a host starts its server as root, and names sockets in the home of another user. Whoever owns the
//! folders decides what is in them, so root does nothing there: the helper becomes their owner.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use keybridge_proto::PerLane;
use keybridge_remote::{Error, PasswdEntry};

use super::NAME;
use super::sockets_variable::{Sockets, VARIABLE};

/// Who owns a folder, or the nearest one above it that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owner {
    uid: u32,
    gid: u32,
}

/// Starts this program again, for good, as the user whom the sockets are for. Returns if it runs as that
/// user already, and after an error. Only root can become another user.
pub(super) fn become_owner(sockets: &Sockets) -> Result<(), Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let owners = owners(sockets)?;
    let mut found = owners.iter().filter_map(|(_, owner)| *owner);
    let Some(owner) = found.next() else { return Ok(()) };
    if let Some(other) = found.find(|other| other.uid != owner.uid) {
        let (one, other) = (owner.uid, other.uid);
        let message = format!("the sockets' folders belong to uid {one} and uid {other}");
        return Err(Error::other(message).hint("name sockets in one user's home"));
    }
    if owner.uid == 0 { Ok(()) } else { Err(start_again(owner)) }
}

fn owners(sockets: &Sockets) -> Result<PerLane<Option<Owner>>, Error> {
    let mut owners = PerLane::default();
    for (lane, path) in sockets.iter() {
        if let Some(folder) = path.as_ref().and_then(|path| path.parent()) {
            owners[lane] = owner_of(folder)?;
        }
    }
    Ok(owners)
}

fn owner_of(folder: &Path) -> Result<Option<Owner>, Error> {
    for place in folder.ancestors() {
        match std::fs::symlink_metadata(place) {
            Ok(found) => return Ok(Some(Owner { uid: found.uid(), gid: found.gid() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let message = format!("can't look at {}", place.display());
                return Err(Error::other(message).because(error));
            }
        }
    }
    Ok(None)
}

/// Returns only after an error.
fn start_again(Owner { uid, gid }: Owner) -> Error {
    let entry = PasswdEntry::of(uid);
    // Not by its path, which the user may have no right to. Root's groups and environment stay behind.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(NAME).uid(uid).env_clear();
    command.gid(entry.as_ref().and_then(|entry| entry.group).unwrap_or(gid));
    for name in [VARIABLE, "PATH"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    if let Some(PasswdEntry { name, home, .. }) = entry {
        command.env("USER", name);
        command.envs(home.map(|home| ("HOME", home)));
    }
    let error = command.exec();
    Error::other(format!("can't become uid {uid}, whose folders the sockets are in")).because(error)
}
