//! The host's half of the direct path to a helper. The files of a container on this kernel are under
//! `/proc/PID/root`, and we can connect to a socket there.
//!
//! The container chooses the path, so it isn't trusted. It is resolved below the container's root, without
//! following links. There must be a socket of the helper's user in a folder that is closed to others, the
//! listener must be the helper's process, and it must prove that it knows the helper's secret.

use std::ffi::OsStr;
use std::fmt::Display;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use keybridge_link::{overflow_uid, prove_to_helper};
use keybridge_proto::direct::{DirectOffer, Proof};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2, stat, statat,
};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::passed_clients::PassedClients;
use crate::bridge::DirectConnection;
use crate::caller::CallerLookup;
use crate::platform::{HelperPlace, HelperProcess};
use crate::{Error, Result};

/// How long the listener may take to prove that it is the helper.
const PROOF_TIME: Duration = Duration::from_secs(2);

/// How many lookups may run at once: a container can mount a file system that never answers.
const MOST_LOOKUPS: usize = 4;

/// Connects to a helper, which also passes its clients if it can and that is wanted.
pub(crate) async fn connect(
    HelperProcess { pid, place }: HelperProcess,
    offer: DirectOffer,
    ours: Proof,
    passes: bool,
) -> Result<DirectConnection> {
    let process = open_process(pid)?;
    match place {
        HelperPlace::Container => check_is_container(&process)?,
        HelperPlace::Here => {}
    }
    let connection = connect_to(pid, process, offer, ours, passes).await?;
    let callers = match place {
        HelperPlace::Container => CallerLookup::of_container(pid),
        HelperPlace::Here => CallerLookup::of_this_machine(),
    };
    let unknown = |error: &Error| tracing::info!(%error, "callers stay unknown");
    Ok(DirectConnection { callers: callers.inspect_err(unknown).ok(), ..connection })
}

async fn connect_to(
    pid: i32,
    process: OwnedFd,
    offer: DirectOffer,
    ours: Proof,
    passes: bool,
) -> Result<DirectConnection> {
    let Some(lookup) = LookupCount::begin() else {
        return Err(Error::failed("too many lookups of sockets are still running"));
    };
    let path = PathBuf::from(OsStr::from_bytes(&offer.socket));
    // On another thread, because it may block, and this one serves other clients.
    let dialling = tokio::task::spawn_blocking(move || {
        let _lookup = lookup;
        let dialled = dial(&process, &path)?;
        let users = clients_users(&process, dialled.1);
        Ok::<_, Error>((dialled, users))
    });
    let connecting = async {
        let ((dialled, owner), users) =
            dialling.await.map_err(|error| Error::failed(error.to_string()))??;
        let mut socket = UnixStream::from_std(dialled).map_err(failed("using the socket"))?;
        check_listener(&socket, pid, owner)?;
        let (clients, passing) = match passes.then(|| PassedClients::new(users)).transpose() {
            Ok(both) => both.unzip(),
            Err(error) => {
                tracing::info!("no client is passed: {error}");
                (None, None)
            }
        };
        let proving = prove_to_helper(&mut socket, &ours, &offer.helper, passing);
        let is_passing = proving.await.map_err(failed("at the helper's socket"))?;
        let clients = clients.filter(|_| is_passing);
        Ok(DirectConnection { socket, clients, callers: None })
    };
    let silent = |_| Err(Error::failed("the listener at the helper's socket sends nothing"));
    timeout(PROOF_TIME, connecting).await.unwrap_or_else(silent)
}

/// Counts one lookup while it runs.
struct LookupCount;

static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

impl LookupCount {
    fn begin() -> Option<Self> {
        let begun = LOOKUPS.fetch_add(1, Ordering::Relaxed);
        let one = Self;
        (begun < MOST_LOOKUPS).then_some(one)
    }
}

impl Drop for LookupCount {
    fn drop(&mut self) {
        LOOKUPS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Opens a process. If its id is reused, this doesn't lead to the new process.
fn open_process(pid: i32) -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(format!("/proc/{pid}"), flags, Mode::empty())
        .map_err(failed("there is no such process on this machine"))
}

/// A process in our own mount namespace isn't in a container: the engine is on another machine, and the id
/// belongs to another process there.
fn check_is_container(process: &OwnedFd) -> Result<()> {
    let theirs = statat(process, "ns/mnt", AtFlags::empty());
    let theirs = theirs.map_err(failed("inspecting the helper's process"))?;
    let ours = stat("/proc/self/ns/mnt").map_err(failed("inspecting this process"))?;
    if (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino) {
        return Err(Error::failed("the helper's process isn't in a container of this machine"));
    }
    Ok(())
}

/// Finds and checks the socket, and connects to it; returns its owner too.
fn dial(process: &OwnedFd, path: &Path) -> Result<(StdStream, u32)> {
    let found = find(process, path)?;
    // By its descriptor, because the container can change the path at any time.
    let socket = StdStream::connect(format!("/proc/self/fd/{}", found.socket.as_raw_fd()))
        .map_err(failed("connecting to the helper's socket"))?;
    socket.set_nonblocking(true).map_err(failed("using the socket"))?;
    Ok((socket, found.owner))
}

/// The users that a client may have, as this process counts them: the helper's own, and root where the
/// helper runs.
fn clients_users(process: &OwnedFd, owner: u32) -> Vec<u32> {
    let map = openat(process, "uid_map", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let map = map.ok().and_then(|map| std::io::read_to_string(std::fs::File::from(map)).ok());
    let overflow = overflow_uid();
    let mut users = vec![owner];
    users.extend(map.as_deref().and_then(root_of));
    // It stands for every user that has no number here.
    users.retain(|&user| user != overflow);
    users
}

/// The number outside of the user that is root inside: each line has the first number inside, the first
/// one outside, and how many there are.
fn root_of(uid_map: &str) -> Option<u32> {
    uid_map.lines().find_map(|line| {
        let mut numbers = line.split_ascii_whitespace();
        (numbers.next()? == "0").then(|| numbers.next()?.parse().ok()).flatten()
    })
}

/// The listener must be the helper's process.
fn check_listener(socket: &UnixStream, pid: i32, owner: u32) -> Result<()> {
    let peer = socket.peer_cred().map_err(failed("checking the listener"))?;
    match peer.pid() {
        // The id of a process that isn't in our PID namespace.
        Some(0) | None => Err(Error::failed(
            "the helper's process can't be seen from here: keybridge may run in another container",
        )),
        Some(found) if found == pid && peer.uid() == owner => Ok(()),
        Some(_) => Err(Error::failed("another process listens at the helper's socket")),
    }
}

/// A socket of a container.
struct Found {
    socket: OwnedFd,
    owner: u32,
}

fn find(process: &OwnedFd, path: &Path) -> Result<Found> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(Error::failed("the helper's socket has no name"));
    };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = openat(process, "root", flags | OFlags::DIRECTORY, Mode::empty());
    let root = root.map_err(failed("opening the container's root"))?;
    let below = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let flags = flags | OFlags::NOFOLLOW;
    let folder = openat2(&root, folder, flags | OFlags::DIRECTORY, Mode::empty(), below)
        .map_err(failed("opening the folder of the helper's socket"))?;
    let owner = owner_of_private(&folder)?;
    let socket = openat2(&folder, name, flags, Mode::empty(), below)
        .map_err(failed("opening the helper's socket"))?;
    let status = fstat(&socket).map_err(failed("opening the helper's socket"))?;
    if FileType::from_raw_mode(status.st_mode) != FileType::Socket || status.st_uid != owner {
        return Err(Error::failed("the path that the helper sent isn't a socket of its user"));
    }
    Ok(Found { socket, owner })
}

fn owner_of_private(folder: &OwnedFd) -> Result<u32> {
    let status = fstat(folder).map_err(failed("opening the folder of the helper's socket"))?;
    if status.st_mode & 0o077 != 0 {
        return Err(Error::failed("others can enter the folder of the helper's socket"));
    }
    Ok(status.st_uid)
}

fn failed<E: Display>(doing: &'static str) -> impl FnOnce(E) -> Error {
    move |error| Error::failed(format!("{doing}: {error}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::process::{Command, Stdio};

    use keybridge_link::prove_to_host;
    use tempfile::TempDir;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
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

    /// Run by the test below in a namespace of its own, in which no process of ours has a number.
    #[tokio::test]
    #[ignore = "part of another test"]
    async fn inside_a_namespace() {
        let path = std::env::var("KEYBRIDGE_TEST_SOCKET").unwrap();
        let socket = UnixStream::connect(path).await.unwrap();
        assert_eq!(socket.peer_cred().unwrap().pid(), Some(0));
        for pid in [0, 1, own_pid()] {
            let error = check_listener(&socket, pid, 0).unwrap_err();
            assert!(error.message.contains("can't be seen"), "{error}");
        }
    }

    #[tokio::test]
    #[cfg_attr(not(feature = "root-tests"), ignore = "needs namespaces, and so root")]
    async fn a_process_that_cannot_be_seen_is_not_the_helper() {
        let (folder, _listener) = listening();
        let test = "platform::linux::direct::tests::inside_a_namespace";
        let inside = tokio::process::Command::new("unshare")
            .args(["--pid", "--fork"])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", test, "--ignored"])
            .env("KEYBRIDGE_TEST_SOCKET", folder.path().join("S"))
            .output();
        let inside = inside.await.unwrap();
        let said = String::from_utf8_lossy(&inside.stdout);
        assert!(inside.status.success() && said.contains("1 passed"), "{said}");
    }

    async fn try_to_connect(pid: i32, path: &Path) -> Result<DirectConnection> {
        let socket = path.as_os_str().as_bytes().to_vec();
        let offer = DirectOffer { helper: Proof::new(HELPER), socket };
        connect_to(pid, open_process(pid)?, offer, Proof::new(HOST), true).await
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
            prove_to_host(&mut socket, &Proof::new(HELPER), &Proof::new(HOST)).await?;
            // As the helper's link does when it takes the path.
            socket.write_all(&[1]).await
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
            socket.write_all(&[3; 16]).await.unwrap();
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
        assert!(refused.contains("no such process on this machine"), "{refused}");
    }

    #[tokio::test]
    async fn a_process_that_is_in_no_container_is_none_of_the_engine_here() {
        let (folder, _listener) = listening();
        let socket = folder.path().join("S").as_os_str().as_bytes().to_vec();
        let offer = DirectOffer { helper: Proof::new(HELPER), socket };
        let helper = HelperProcess { pid: own_pid(), place: HelperPlace::Container };
        let refused = connect(helper, offer, Proof::new(HOST), true).await.unwrap_err().to_string();
        assert!(refused.contains("isn't in a container of this machine"), "{refused}");
    }

    #[tokio::test]
    async fn a_link_is_not_followed() {
        let (folder, _listener) = listening();
        let other = private_in(folder.path());
        symlink(folder.path().join("S"), other.path().join("S")).unwrap();
        let refused = refusal(own_pid(), &other.path().join("S")).await;
        assert!(refused.contains("isn't a socket") || refused.contains("symbolic"), "{refused}");
        symlink(folder.path(), other.path().join("folder")).unwrap();
        let refused = refusal(own_pid(), &other.path().join("folder/S")).await;
        assert!(refused.contains("symbolic") || refused.contains("Not a directory"), "{refused}");
    }

    #[tokio::test]
    async fn a_folder_of_others_and_what_is_no_socket_are_refused() {
        let (folder, _listener) = listening();
        std::fs::write(folder.path().join("file"), "").unwrap();
        let refused = refusal(own_pid(), &folder.path().join("file")).await;
        assert!(refused.contains("isn't a socket"), "{refused}");
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).unwrap();
        let refused = refusal(own_pid(), &folder.path().join("S")).await;
        assert!(refused.contains("others can enter"), "{refused}");
        let refused = refusal(own_pid(), Path::new("/")).await;
        assert!(refused.contains("no name"), "{refused}");
    }

    #[tokio::test]
    async fn one_that_says_nothing_is_not_waited_for() {
        let (folder, _listener) = listening();
        let refused = refusal(own_pid(), &folder.path().join("S")).await;
        assert!(refused.contains("sends nothing"), "{refused}");
    }
}
