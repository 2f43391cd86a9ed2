//! Acquiring the lock from the helper that holds it: one of the same bridge makes way or is killed, one of
//! another bridge is ended only with `--replace`.

use std::io;
use std::path::Path;
use std::time::Duration;

use keybridge_proto::report::FailureKind;
use rustix::io::Errno;
use rustix::process::{Pid, Signal};
use tokio::time::{Instant, sleep};

use crate::BridgeToken;
use crate::error::Error;
use crate::home::lock::{HeldLock, LaneLock, LockAttempt};

/// How long a helper may take to end, once it was asked.
const END_TIME: Duration = Duration::from_secs(6);

/// How long to wait for one that may be ending by itself.
const GRACE_TIME: Duration = Duration::from_secs(1);

/// How long one of the same bridge may take to make way. It waits up to three seconds for its sessions, which
/// clients who don't read can keep for two.
const MAKE_WAY_TIME: Duration = Duration::from_secs(4);

/// How often that is checked.
const POLL: Duration = Duration::from_millis(20);

/// Asks a helper to leave without undoing anything: a newer one of its bridge goes on.
pub const MAKE_WAY: Signal = Signal::USR1;

/// Acquires the lock of a lane's folder. It doesn't name this process yet.
pub(crate) async fn acquire(
    home: &Path,
    socket: &Path,
    bridge: Option<&BridgeToken>,
    replace: bool,
) -> Result<LaneLock, Error> {
    let path = LaneLock::path_in(home);
    let mut holder = Holder { since: Instant::now(), pid: None, told: None };
    loop {
        let held = match LaneLock::attempt(&path)? {
            LockAttempt::Acquired(lock) => return Ok(lock),
            LockAttempt::Held(held) => held,
        };
        let is_sibling = bridge.is_some() && held.bridge().as_ref() == bridge;
        holder.deal_with(&held, is_sibling, replace, socket)?;
        sleep(POLL).await;
    }
}

/// The helper that holds the lock.
struct Holder {
    /// Since when it is waited for.
    since: Instant,
    pid: Option<Pid>,
    /// The last signal that it was sent.
    told: Option<Signal>,
}

impl Holder {
    fn deal_with(
        &mut self,
        held: &HeldLock,
        is_sibling: bool,
        replace: bool,
        socket: &Path,
    ) -> Result<(), Error> {
        let pid = held.holder();
        if is_sibling && pid.is_some() && pid != self.pid {
            // Of several newer ones each may have it for a moment.
            *self = Self { since: Instant::now(), pid, told: None };
        }
        let waited = self.since.elapsed();
        let signal = match (is_sibling, replace) {
            (true, _) if waited < MAKE_WAY_TIME => Some(MAKE_WAY),
            (true, _) => Some(Signal::KILL),
            (false, true) => Some(Signal::TERM),
            (false, false) => None,
        };
        if waited > if signal.is_some() { END_TIME } else { GRACE_TIME } {
            return Err(in_use(socket, pid, signal.is_some()));
        }
        if let Some((pid, signal)) = pid.zip(signal)
            && (self.pid, self.told) != (Some(pid), Some(signal))
        {
            (self.pid, self.told) = (Some(pid), Some(signal));
            match signal {
                MAKE_WAY => tracing::info!("taking the place of the older helper (pid {pid})"),
                Signal::KILL => {
                    tracing::warn!("the older helper (pid {pid}) doesn't make way, and is killed");
                }
                _ => tracing::info!("ending another bridge (pid {pid})"),
            }
            held.signal(pid, signal).map_err(|error| cannot_end(socket, pid, error))?;
        }
        Ok(())
    }
}

fn in_use(socket: &Path, holder: Option<Pid>, told: bool) -> Error {
    let shown = socket.display();
    let (who, hint) = match holder {
        Some(pid) if told => (
            format!("keybridge-remote (pid {pid}), which doesn't end"),
            format!("end it in the target: kill -KILL {pid}"),
        ),
        Some(pid) => (
            format!("keybridge-remote (pid {pid})"),
            "stop it, or take its place with --replace".to_owned(),
        ),
        None => {
            ("which runs outside of this target".to_owned(), "stop it where it runs".to_owned())
        }
    };
    let message = format!("{shown} is in use by another bridge, {who}");
    Error::new(FailureKind::InUse, message).hint(hint)
}

fn cannot_end(socket: &Path, pid: Pid, error: Errno) -> Error {
    let shown = socket.display();
    let message = format!("{shown} is in use by another bridge, and pid {pid} can't be ended");
    let error = Error::new(FailureKind::InUse, message).because(io::Error::from(error));
    error.hint(format!("end it in the target: kill {pid}"))
}
