//! Acquiring the lock from the helper that holds it: one of the same bridge hands it over or is killed,
//! one of another bridge is ended only with `--replace`.

use std::io;
use std::path::Path;
use std::time::Duration;

use keybridge_proto::report::FailureKind;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use super::{HeldLock, LaneLock, LockAttempt};
use crate::BridgeToken;
use crate::error::Error;
use crate::handover::{self, ANSWER_TIME, HandedSocket, HandoverReply};

/// How long a helper may take to end, or to hand over, once it was asked.
const END_TIME: Duration = Duration::from_secs(5);

/// How long to wait for one that may be ending by itself.
const GRACE_TIME: Duration = Duration::from_secs(1);

/// How often that is checked.
const POLL: Duration = Duration::from_millis(20);

/// A lock that is ours, and what came with it.
pub(crate) struct AcquiredLock {
    pub(crate) lock: LaneLock,
    pub(crate) inherited: Inherited,
}

/// What a helper of the same bridge has left.
pub(crate) enum Inherited {
    /// There was none.
    Nothing,
    /// It didn't answer, and was killed.
    KilledHelper,
    /// It has handed its sockets over.
    Sockets(Vec<HandedSocket>),
}

/// Acquires the lock of a lane's folder.
pub(crate) async fn acquire(
    home: &Path,
    socket: &Path,
    bridge: Option<&BridgeToken>,
    replace: bool,
) -> Result<AcquiredLock, Error> {
    let path = LaneLock::path_in(home);
    let mut stranger = OtherBridge { since: Instant::now(), told: None, replace };
    let mut sibling = SameBridge { since: None, killed: None };
    let mut inherited = Inherited::Nothing;
    loop {
        let held = match LaneLock::attempt(&path)? {
            LockAttempt::Acquired(lock) => {
                lock.set_holder(bridge);
                return Ok(AcquiredLock { lock, inherited });
            }
            LockAttempt::Held(held) => held,
        };
        let Some(bridge) = bridge.filter(|bridge| held.bridge().as_ref() == Some(bridge)) else {
            stranger.deal_with(&held, socket)?;
            sleep(POLL).await;
            continue;
        };
        match sibling.deal_with(&held, home, socket, bridge).await? {
            SameBridgeStep::Wait => sleep(POLL).await,
            SameBridgeStep::Killed => inherited = Inherited::KilledHelper,
            SameBridgeStep::HandedOver(handed) => {
                inherited = Inherited::Sockets(handed.sockets);
                // Closing any descriptor of a file takes our name from its lock.
                drop(held);
                if let Some(lock) = LaneLock::adopt(handed.lock, &path) {
                    lock.set_holder(Some(bridge));
                    return Ok(AcquiredLock { lock, inherited });
                }
                // The file was removed, and the lock with it.
            }
        }
    }
}

/// A helper of another bridge, or of none that is known.
struct OtherBridge {
    since: Instant,
    told: Option<Pid>,
    replace: bool,
}

impl OtherBridge {
    fn deal_with(&mut self, held: &HeldLock, socket: &Path) -> Result<(), Error> {
        let holder = held.holder();
        if self.since.elapsed() > if self.replace { END_TIME } else { GRACE_TIME } {
            return Err(in_use(socket, holder, self.replace));
        }
        if let Some(pid) = holder.filter(|_| self.replace && self.told != holder) {
            tracing::info!("ending another bridge (pid {pid})");
            self.told = holder;
            match kill_process(pid, Signal::TERM) {
                // It has just ended.
                Ok(()) | Err(Errno::SRCH) => {}
                Err(error) => return Err(cannot_end(socket, pid, error)),
            }
        }
        Ok(())
    }
}

/// A helper of the same bridge.
struct SameBridge {
    /// When it was first asked to hand over.
    since: Option<Instant>,
    killed: Option<Pid>,
}

/// What to do next about a helper of the same bridge.
enum SameBridgeStep {
    Wait,
    Killed,
    HandedOver(handover::HandedOver),
}

impl SameBridge {
    async fn deal_with(
        &mut self,
        held: &HeldLock,
        home: &Path,
        socket: &Path,
        bridge: &BridgeToken,
    ) -> Result<SameBridgeStep, Error> {
        let asked = self.since.get_or_insert_with(Instant::now).elapsed();
        let holder = held.holder();
        if let Some(patience) = ANSWER_TIME.checked_sub(asked) {
            return match handover::ask(home, bridge, patience).await {
                HandoverReply::HandedOver(handed) => Ok(SameBridgeStep::HandedOver(handed)),
                HandoverReply::Refused => Err(in_use(socket, holder, false)),
                HandoverReply::Nothing => Ok(SameBridgeStep::Wait),
            };
        }
        if asked > END_TIME {
            return Err(in_use(socket, holder, true));
        }
        match holder {
            Some(pid) if self.killed != holder => {
                tracing::warn!("the older helper (pid {pid}) doesn't answer, and is killed");
                self.killed = holder;
                held.kill(pid).map_err(|error| cannot_end(socket, pid, error))?;
                Ok(SameBridgeStep::Killed)
            }
            Some(_) | None => Ok(SameBridgeStep::Wait),
        }
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
