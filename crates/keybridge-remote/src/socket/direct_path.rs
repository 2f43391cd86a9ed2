//! The helper's end of the direct path, which bypasses the engine: a socket in a folder of its own, for
//! one peer that proves to be the host.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keybridge_link::{Link, prove_to_host, random};
use keybridge_proto::direct::{DirectAsk, DirectOffer, Proof};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{Instant, timeout, timeout_at};

use crate::clients::peer_check::PeerCheck;
use crate::home::safe_path::{euid, make_private};

/// How long the host may take to connect.
const OFFER_TIME: Duration = Duration::from_secs(10);

/// How long a client may take to prove that it is the host: less than the host waits.
const PROOF_TIME: Duration = Duration::from_millis(500);

/// How the names of such folders begin.
const FOLDER: &str = "keybridge-direct-";

/// Listens where the host can reach it, sends the path over the link, and moves the link to the socket of
/// the client that proves to be the host. Nothing is left in the target's files afterwards.
pub async fn offer_direct_path(link: Link, ask: DirectAsk) {
    let offered = async {
        let helper = Proof::new(random()?);
        let meeting = DirectListener::open()?;
        let socket = meeting.path().as_os_str().as_bytes().to_vec();
        let offer = DirectOffer { helper: helper.clone(), socket };
        let payload =
            offer.encode().ok_or_else(|| io::Error::other("the socket's path is too long"))?;
        link.with_mux(|mux| mux.direct(&payload)).map_err(io::Error::other)?;
        meeting.wait_for_host(&helper, &ask.host).await
    };
    match offered.await.and_then(|(socket, passing)| link.may_go_direct(socket, passing)) {
        Ok(()) => {}
        Err(error) => tracing::debug!(%error, "no direct path"),
    }
}

/// A socket that listens in a folder of its own. Both are removed when it is dropped.
struct DirectListener {
    folder: PathBuf,
    listener: UnixListener,
}

impl DirectListener {
    fn open() -> io::Result<Self> {
        let mut last = io::Error::other("no folder for the socket");
        for place in places() {
            match Self::open_in(&place) {
                Ok(meeting) => return Ok(meeting),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn open_in(place: &Path) -> io::Result<Self> {
        // The host follows no links.
        let place = place.canonicalize()?;
        let name = u64::from_ne_bytes(random()?);
        let folder = place.join(format!("{FOLDER}{name:016x}"));
        make_private(&folder).map_err(|error| io::Error::other(error.to_string()))?;
        match UnixListener::bind(folder.join("S")) {
            Ok(listener) => Ok(Self { folder, listener }),
            Err(error) => {
                let _ = std::fs::remove_dir(&folder);
                Err(error)
            }
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.join("S")
    }

    async fn wait_for_host(
        &self,
        ours: &Proof,
        host: &Proof,
    ) -> io::Result<(UnixStream, Option<OwnedFd>)> {
        let (until, peer_check) = (Instant::now() + OFFER_TIME, PeerCheck::of_user());
        loop {
            let (mut socket, _) = timeout_at(until, self.listener.accept()).await??;
            if let Err(who) = peer_check.allows(&socket) {
                tracing::info!(%who, "refused a client at the direct path");
                continue;
            }
            match timeout(PROOF_TIME, prove_to_host(&mut socket, ours, host)).await {
                Ok(Ok(passing)) => return Ok((socket, passing)),
                Ok(Err(error)) => {
                    tracing::info!(%error, "a client at the direct path isn't the host");
                }
                Err(_) => tracing::info!("a client at the direct path sends no proof"),
            }
        }
    }
}

impl Drop for DirectListener {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.path());
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// Where the folder can be: beside this program, which has a folder of its own, or where anybody can
/// make one.
fn places() -> impl Iterator<Item = PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent).map(Path::to_owned);
    beside.into_iter().chain([std::env::temp_dir()])
}

/// Removes the folders of this user's helpers that were killed while they waited for the host.
pub fn remove_direct_folders() {
    let entries = places().filter_map(|place| std::fs::read_dir(place).ok()).flatten().flatten();
    for entry in entries {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(FOLDER.as_bytes())
            && entry.metadata().is_ok_and(|folder| folder.is_dir() && folder.uid() == euid());
        // A helper that still listens there continues without the direct path.
        if is_ours && let Err(error) = std::fs::remove_dir_all(entry.path()) {
            tracing::debug!(%error, "can't remove a folder of the direct path");
        }
    }
}
