//! The way to a helper past its engine: a container on this kernel has its files under
//! `/proc/PID/root`, and a socket among them can be connected to.
//!
//! The path is the container's word. It is followed below the container's root alone, over no links;
//! what is found has to be a socket of the helper's user in a folder that is nobody else's; whoever
//! listens there has to be the helper's process; and it has to show what only the helper knows.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use keybridge_link::prove_to_helper;
use keybridge_proto::direct::{DirectOffer, Proof};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, Stat, fstat, open, openat2};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::{Error, Result};

/// How long whoever listens there may take to show that it is the helper.
const PROOF_TIME: Duration = Duration::from_secs(2);

/// Connects to the helper with this process number.
pub(crate) async fn connect(pid: i32, offer: &DirectOffer, ours: &Proof) -> Result<UnixStream> {
    let connecting = async {
        let found = find(pid, Path::new(OsStr::from_bytes(&offer.socket)))?;
        // By its descriptor: what the path leads to can be changed at any time.
        let mut socket =
            UnixStream::connect(format!("/proc/self/fd/{}", found.socket.as_raw_fd())).await?;
        let peer = socket.peer_cred()?;
        if peer.pid() != Some(pid) || peer.uid() != found.owner {
            return Err(refused("another process listens at the helper's socket"));
        }
        prove_to_helper(&mut socket, ours, &offer.helper).await?;
        Ok(socket)
    };
    match timeout(PROOF_TIME, connecting).await {
        Ok(connected) => connected.map_err(|error| Error::failed(error.to_string())),
        Err(_) => Err(Error::failed("whoever listens there says nothing")),
    }
}

/// A socket of a container.
struct Found {
    socket: OwnedFd,
    owner: u32,
}

fn find(pid: i32, path: &Path) -> io::Result<Found> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(refused("the helper's socket has no name"));
    };
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = open(
        format!("/proc/{pid}/root"),
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let below = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let folder = openat2(&root, folder, flags | OFlags::DIRECTORY, Mode::empty(), below)?;
    let owner = owner_of_private(&fstat(&folder)?)?;
    let socket = openat2(&folder, name, flags, Mode::empty(), below)?;
    let status = fstat(&socket)?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket || status.st_uid != owner {
        return Err(refused("what the helper names is no socket of its own"));
    }
    Ok(Found { socket, owner })
}

fn owner_of_private(folder: &Stat) -> io::Result<u32> {
    if folder.st_mode & 0o077 != 0 {
        return Err(refused("others can reach into the folder of the helper's socket"));
    }
    Ok(folder.st_uid)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}
