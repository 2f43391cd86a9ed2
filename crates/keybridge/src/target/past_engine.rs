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

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::{Command, Stdio};

    use keybridge_link::prove_to_host;
    use tempfile::TempDir;
    use tokio::io::AsyncReadExt;
    use tokio::net::UnixListener;

    use super::*;

    const HELPER: [u8; 16] = [1; 16];
    const HOST: [u8; 16] = [2; 16];

    /// This process, which has its root where this process has it.
    fn own_pid() -> i32 {
        i32::try_from(std::process::id()).unwrap()
    }

    /// A folder of our own without links on the way, and a socket in it that listens.
    fn listening() -> (TempDir, UnixListener) {
        let folder = private_in(&std::env::temp_dir().canonicalize().unwrap());
        let listener = UnixListener::bind(folder.path().join("S")).unwrap();
        (folder, listener)
    }

    fn private_in(place: &Path) -> TempDir {
        let folder = TempDir::new_in(place).unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o700)).unwrap();
        folder
    }

    async fn try_to_connect(pid: i32, path: &Path) -> Result<UnixStream> {
        let socket = path.as_os_str().as_bytes().to_vec();
        let offer = DirectOffer { helper: Proof::new(HELPER), socket };
        connect(pid, &offer, &Proof::new(HOST)).await
    }

    /// What kept it from connecting.
    async fn refusal(pid: i32, path: &Path) -> String {
        try_to_connect(pid, path).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn the_helper_is_reached_and_both_have_proved_themselves() {
        let (folder, listener) = listening();
        let helper = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            prove_to_host(&mut socket, &Proof::new(HELPER), &Proof::new(HOST)).await
        };
        let path = folder.path().join("S");
        let (connected, proved) = tokio::join!(try_to_connect(own_pid(), &path), helper);
        connected.unwrap();
        proved.unwrap();
    }

    #[tokio::test]
    async fn whoever_does_not_know_the_secret_gets_no_byte() {
        let (folder, listener) = listening();
        let stranger = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            tokio::io::AsyncWriteExt::write_all(&mut socket, &[3; 16]).await.unwrap();
            let mut came = Vec::new();
            socket.read_to_end(&mut came).await.unwrap();
            came
        };
        let path = folder.path().join("S");
        let (refused, came) = tokio::join!(refusal(own_pid(), &path), stranger);
        assert!(refused.contains("doesn't know the secret"), "{refused}");
        assert_eq!(came, b"");
    }

    #[tokio::test]
    async fn another_process_at_the_socket_is_a_stranger() {
        // Its number is as good as one that was used again.
        let mut other = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let (folder, _listener) = listening();
        let pid = i32::try_from(other.id()).unwrap();
        let refused = refusal(pid, &folder.path().join("S")).await;
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(refused.contains("another process listens"), "{refused}");
        let refused = refusal(pid, &folder.path().join("S")).await;
        assert!(refused.contains("No such"), "{refused}");
    }

    #[tokio::test]
    async fn a_link_is_not_followed() {
        let (folder, _listener) = listening();
        let other = private_in(folder.path());
        symlink(folder.path().join("S"), other.path().join("S")).unwrap();
        let refused = refusal(own_pid(), &other.path().join("S")).await;
        assert!(refused.contains("no socket") || refused.contains("symbolic"), "{refused}");
        symlink(folder.path(), other.path().join("folder")).unwrap();
        let refused = refusal(own_pid(), &other.path().join("folder/S")).await;
        assert!(refused.contains("symbolic") || refused.contains("Not a directory"), "{refused}");
    }

    #[tokio::test]
    async fn a_folder_of_others_and_what_is_no_socket_are_refused() {
        let (folder, _listener) = listening();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let refused = refusal(own_pid(), &folder.path().join("file")).await;
        assert!(refused.contains("no socket"), "{refused}");
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
        let refused = refusal(own_pid(), &folder.path().join("S")).await;
        assert!(refused.contains("others can reach"), "{refused}");
        let refused = refusal(own_pid(), Path::new("/")).await;
        assert!(refused.contains("no name"), "{refused}");
    }

    #[tokio::test]
    async fn one_that_says_nothing_is_not_waited_for() {
        let (folder, _listener) = listening();
        let refused = refusal(own_pid(), &folder.path().join("S")).await;
        assert!(refused.contains("says nothing"), "{refused}");
    }
}
