//! The process of one bridge in the background.

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt;
use std::rc::Rc;
use std::time::SystemTime;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{oneshot, watch};

use super::control::{self, Answer, Question};
use super::manager::Told;
use super::state::{StateFolder, StateRoot};
use super::status::{BridgeState, BridgeStatus, LaneStatus, Lanes, utc};
use crate::config::Settings;
use crate::lend::{self, Lent};
use crate::report::{Report, print_line};
use crate::signals::Signals;
use crate::target::{Target, TargetAddress};
use crate::{Error, Result};

/// Bridges a target until it is told to stop. What happens until it is ready is told on standard
/// output, an object on each line; after that nothing holds on to whoever started it.
pub async fn serve(address: &TargetAddress, settings: &Settings) -> Result<()> {
    // Ctrl-C in the shell that started us is not for us. It fails where we lead a session already.
    let _ = rustix::process::setsid();
    let key =
        Target::find(address, settings.user.as_deref()).await.inspect_err(tell_failure)?.key();
    let folder = StateRoot::open()?.folder(&key);
    let Some(_lock) = folder.lock()? else {
        tell(&Told::Busy);
        return Ok(());
    };
    begin_log(&folder)?;
    let mut signals = Signals::new()?;
    folder.name(&address.to_string())?;
    let bridge = Rc::new(Bridge::new(address));
    let (stop, mut stop_asked) = watch::channel(None);
    let listener = listen(&folder)?;
    let control =
        tokio::task::spawn_local(control(listener, Rc::clone(&bridge), settings.clone(), stop));
    let report = Report::objects();
    let lent = lend::lend_until(&mut signals, address, settings, &report).await;
    let result = match lent {
        Ok(lent) => {
            let ended = lent.ended();
            bridge.ready(lent);
            tell(&Told::Ready(bridge.status()));
            let_go_of_output();
            tracing::info!("ready");
            let why = tokio::select! {
                end = ended => Some(end),
                () = signals.received() => None,
                _ = stop_asked.changed() => None,
            };
            match why {
                Some(end) => {
                    tracing::error!("the bridge ended: {end}");
                    if let Some(lent) = bridge.lent() {
                        lent.settle().await;
                    }
                    Err(end.into())
                }
                None => bridge.stop().await,
            }
        }
        Err(error) => {
            bridge.fail(&error);
            tell_failure(&error);
            Err(error)
        }
    };
    let asker: Option<Asker> = stop_asked.borrow_and_update().clone();
    if let Some(asker) = asker {
        asker.answer(
            result.as_ref().map_or_else(|error| Answer::Failed(error.clone()), |()| Answer::Done),
        );
        // It is answered by the control's task, which has to be let run.
        asker.answered().await;
    }
    control.abort();
    folder.clear();
    result
}

/// What the control and the bridge share.
struct Bridge {
    target: String,
    since: SystemTime,
    now: RefCell<Now>,
    /// Counts changes of the state, for those who wait for one.
    changes: watch::Sender<BridgeState>,
}

enum Now {
    Starting,
    Ready(Rc<Lent>),
    Failed(Error),
}

impl Bridge {
    fn new(address: &TargetAddress) -> Self {
        Self {
            target: address.to_string(),
            since: SystemTime::now(),
            now: RefCell::new(Now::Starting),
            changes: watch::channel(BridgeState::Starting).0,
        }
    }

    fn ready(&self, lent: Lent) {
        *self.now.borrow_mut() = Now::Ready(Rc::new(lent));
        self.changes.send_replace(BridgeState::Ready);
    }

    fn fail(&self, error: &Error) {
        *self.now.borrow_mut() = Now::Failed(error.clone());
        self.changes.send_replace(BridgeState::Failed);
    }

    fn lent(&self) -> Option<Rc<Lent>> {
        match &*self.now.borrow() {
            Now::Ready(lent) => Some(Rc::clone(lent)),
            Now::Starting | Now::Failed(_) => None,
        }
    }

    fn status(&self) -> BridgeStatus {
        let (state, reason) = match &*self.now.borrow() {
            Now::Starting => (BridgeState::Starting, None),
            Now::Ready(_) => (BridgeState::Ready, None),
            Now::Failed(error) => (BridgeState::Failed, Some(error.to_string())),
        };
        let lent = self.lent();
        let gpg = lent.as_ref().and_then(|lent| {
            let carried = lent.stats().gpg;
            Some(LaneStatus {
                socket: lent.ready().gpg_socket.clone()?,
                open: u64::try_from(carried.open).unwrap_or(u64::MAX),
                total: carried.total,
                bytes_in: carried.bytes_in,
                bytes_out: carried.bytes_out,
            })
        });
        BridgeStatus {
            target: self.target.clone(),
            state,
            reason,
            pid: std::process::id(),
            since: utc(self.since),
            user: lent.map(|lent| lent.ready().user.clone()).unwrap_or_default(),
            lanes: Lanes { gpg },
            reconnects: 0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    async fn wait(&self) -> BridgeStatus {
        let mut changes = self.changes.subscribe();
        let _ = changes.wait_for(|state| *state != BridgeState::Starting).await;
        self.status()
    }

    async fn stop(&self) -> Result<()> {
        let lent = self.lent().ok_or_else(|| Error::failed("the bridge isn't up"))?;
        lent.stop().await
    }

    async fn sync(&self, settings: &Settings) -> Result<Answer> {
        let lent = self.lent().ok_or_else(|| Error::failed("the bridge isn't up"))?;
        let changes = lent.sync(settings).await?;
        Ok(Answer::Synced {
            new: changes.new,
            updated: changes.updated,
            unchanged: changes.unchanged,
        })
    }
}

/// Whoever asked for the end, and waits for it.
#[derive(Clone)]
struct Asker {
    answer: Rc<RefCell<Option<oneshot::Sender<Answer>>>>,
    answered: watch::Receiver<bool>,
}

impl Asker {
    fn answer(&self, answer: Answer) {
        if let Some(sender) = self.answer.borrow_mut().take() {
            let _ = sender.send(answer);
        }
    }

    async fn answered(mut self) {
        let _ = self.answered.wait_for(|answered| *answered).await;
    }
}

/// Makes the control socket. The lock is ours, so one that is there is left of a bridge that died.
pub(crate) fn listen(folder: &StateFolder) -> Result<UnixListener> {
    let path = folder.control_socket();
    let failed = |error: std::io::Error| Error::failed(format!("{}: {error}", path.display()));
    folder.clear();
    let listener = UnixListener::bind(&path).map_err(failed)?;
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).map_err(failed)?;
    Ok(listener)
}

async fn control(
    listener: UnixListener,
    bridge: Rc<Bridge>,
    settings: Settings,
    stop: watch::Sender<Option<Asker>>,
) {
    let (settings, stop) = (Rc::new(settings), Rc::new(stop));
    loop {
        match listener.accept().await {
            Ok((stream, _)) if is_ours(&stream) => {
                let (bridge, settings, stop) =
                    (Rc::clone(&bridge), Rc::clone(&settings), Rc::clone(&stop));
                tokio::task::spawn_local(async move {
                    if let Err(error) = answer(stream, &bridge, &settings, &stop).await {
                        tracing::debug!(%error, "a question on the control socket");
                    }
                });
            }
            Ok(_) => tracing::warn!("another user tried the control socket"),
            Err(error) => {
                tracing::error!(%error, "the control socket");
                return;
            }
        }
    }
}

/// Whether whoever connected is this user, or root.
pub(crate) fn is_ours(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    stream.peer_cred().is_ok_and(|peer| peer.uid() == own || peer.uid() == 0)
}

async fn answer(
    mut stream: UnixStream,
    bridge: &Bridge,
    settings: &Settings,
    stop: &watch::Sender<Option<Asker>>,
) -> std::io::Result<()> {
    let Some(question) = control::receive(&mut stream).await? else { return Ok(()) };
    match question {
        Question::Status => control::send(&mut stream, &Answer::Status(bridge.status())).await,
        Question::Wait => {
            let status = bridge.wait().await;
            control::send(&mut stream, &Answer::Status(status)).await
        }
        Question::Sync => {
            let answer = bridge.sync(settings).await.unwrap_or_else(Answer::Failed);
            control::send(&mut stream, &answer).await
        }
        Question::Stop => {
            let (sender, answer) = oneshot::channel();
            let (answered, told) = watch::channel(false);
            let asker = Asker { answer: Rc::new(RefCell::new(Some(sender))), answered: told };
            stop.send_replace(Some(asker));
            let answer = answer.await.unwrap_or(Answer::Done);
            let sent = control::send(&mut stream, &answer).await;
            answered.send_replace(true);
            sent
        }
    }
}

/// Begins a log of our own. Only now: another process may have had the lock, and its log goes on.
fn begin_log(folder: &StateFolder) -> Result<()> {
    let log = folder.new_log()?;
    rustix::stdio::dup2_stderr(&log)
        .map_err(|error| Error::failed(format!("{}: {error}", folder.log().display())))
}

fn tell(told: &Told) {
    // Whoever started us may have gone.
    print_line(&serde_json::to_string(told).unwrap_or_default());
}

fn tell_failure(error: &Error) {
    tell(&Told::Failed(error.clone()));
}

/// Lets go of the pipe to whoever started us, so that they see its end.
fn let_go_of_output() {
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}
