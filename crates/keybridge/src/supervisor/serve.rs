//! The process of one bridge in the background.

use std::rc::Rc;

use keybridge_link::Input;
use tokio::io::AsyncReadExt;

use super::control::{ControlServer, Reply};
use super::life::{Ending, Life};
use super::managed_bridge::ManagedBridge;
use super::manager::{Told, UNDOING_TIME};
use super::state::{StateFolder, StateRoot};
use crate::Result;
use crate::config::{ConfigFile, Options};
use crate::limits::fit_descriptors;
use crate::report::{Report, print_line};
use crate::setup::LiveBridge;
use crate::signals::Signals;
use crate::target::{Target, TargetAddress};

/// Who started the process of a bridge, and waits for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartedBy {
    /// `up`, for which the first link has to work, and which lets go of the process then.
    Up,
    /// `watch`, which holds it for its life. A link that can't be made is tried again.
    Watch,
}

/// Bridges a target until it is told to stop or the target is gone. What happens is told on standard
/// output, an object on each line. Whoever started it holds the other end of standard input: when that
/// is closed without a word, the bridge ends.
pub async fn serve(
    address: &TargetAddress,
    config: &ConfigFile,
    options: &Options,
    started_by: StartedBy,
) -> Result<()> {
    // Ctrl-C in the shell that started us is not for us. It fails where we lead a session already.
    let _ = rustix::process::setsid();
    let starter = Starter::new();
    match bridge(address, config, options, started_by, starter).await {
        Ok(Ending::Removed) => {
            tell(&Told::Gone);
            Ok(())
        }
        Ok(Ending::Undone | Ending::Away(_)) => Ok(()),
        Err(error) => {
            tell(&Told::Failed(error.clone()));
            Err(error)
        }
    }
}

async fn bridge(
    address: &TargetAddress,
    config: &ConfigFile,
    options: &Options,
    started_by: StartedBy,
    mut starter: Starter,
) -> Result<Ending> {
    let target = match started_by {
        StartedBy::Up => Target::find(address, None).await?,
        // It may have stopped meanwhile, and is waited for.
        StartedBy::Watch => Target::find_any(address, None).await?.0,
    };
    let settings = config.settings(&target.address().to_string(), options)?;
    let target = target.for_user(settings.user.as_deref())?;
    let root = StateRoot::open()?;
    let folder = root.folder(&target.key());
    let lock = match (folder.lock()?, started_by) {
        (None, StartedBy::Watch) => {
            // The bridge of a `watch` that was killed takes a moment to end.
            let _ = tokio::time::timeout(UNDOING_TIME, folder.ended()).await;
            folder.lock()?
        }
        (lock, StartedBy::Up | StartedBy::Watch) => lock,
    };
    let Some(_lock) = lock else {
        tell(&Told::Busy);
        return Ok(Ending::Undone);
    };
    // Only now: another process may have had the lock, and its log goes on.
    folder.begin_log()?;
    fit_descriptors(settings.max_sessions);
    root.prune();
    let mut signals = Signals::new()?;
    let token = root.token(&target.key())?;
    let bridge = Rc::new(ManagedBridge::new(target.address().to_string(), settings));
    let life = keep(&bridge, &target, &folder, &token, async |life| match started_by {
        StartedBy::Up => {
            let live = life.begin(&Report::objects()).await?;
            tell(&Told::Ready(bridge.status()));
            let_go_of_output();
            Ok(Some(live))
        }
        StartedBy::Watch => {
            tell(&Told::Begun);
            Ok(None)
        }
    });
    let mut life = std::pin::pin!(life);
    loop {
        tokio::select! {
            result = &mut life => return result,
            () = signals.received() => bridge.stop(),
            () = starter.is_gone() => bridge.stop(),
        }
    }
}

/// Keeps one bridge for its whole life, in a folder whose lock is held. `begin` may make the first
/// link.
pub(super) async fn keep(
    bridge: &Rc<ManagedBridge>,
    target: &Target,
    folder: &StateFolder,
    token: &str,
    begin: impl AsyncFnOnce(&mut Life<'_>) -> Result<Option<Rc<LiveBridge>>>,
) -> Result<Ending> {
    folder.name(&target.address().to_string())?;
    let server = ControlServer::open(folder, Rc::clone(bridge))?;
    let life = async {
        let mut life = Life::new(bridge, target, token).await;
        let link = begin(&mut life).await?;
        life.go_on(link).await
    };
    let result = life.await;
    let answer = match &result {
        Ok(Ending::Undone) => {
            folder.undone();
            Reply::Done
        }
        Ok(Ending::Removed) => {
            folder.undone();
            folder.note_end("the container was removed");
            Reply::Done
        }
        Ok(Ending::Away(why)) => {
            folder.undo_later();
            Reply::Noted { why: why.clone() }
        }
        Err(error) => {
            folder.note_end(&error.message);
            Reply::Failed(error.clone())
        }
    };
    server.close(answer).await;
    folder.clear();
    result
}

fn tell(told: &Told) {
    // Whoever started us may have gone.
    print_line(&serde_json::to_string(told).unwrap_or_default());
}

/// Lets go of the pipe to whoever started us, so that they see its end.
fn let_go_of_output() {
    if let Ok(null) = std::fs::OpenOptions::new().write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// Whoever started this process, at the other end of standard input.
struct Starter(Option<Input>);

impl Starter {
    /// Nobody, if standard input is none that can be waited for.
    fn new() -> Self {
        Self(Input::open().ok())
    }

    /// Waits until it has gone, once. For ever, if it lets go of us with a word before.
    async fn is_gone(&mut self) {
        let Some(input) = &mut self.0 else { return std::future::pending().await };
        let word = input.read(&mut [0]).await;
        self.0 = None;
        if word.is_ok_and(|count| count > 0) {
            std::future::pending::<()>().await;
        }
    }
}
