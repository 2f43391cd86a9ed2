//! The process of one bridge in the background.

use std::rc::Rc;

use super::bridged::Bridged;
use super::control::{Answer, Desk};
use super::life::{Ending, Life};
use super::manager::Told;
use super::state::{StateFolder, StateRoot};
use crate::config::Settings;
use crate::lend::Lent;
use crate::report::{Report, print_line};
use crate::signals::Signals;
use crate::target::{Target, TargetAddress};
use crate::{Error, Result};

/// Bridges a target until it is told to stop or the target is gone. What happens until it is ready is
/// told on standard output, an object on each line; after that nothing holds on to whoever started it.
pub async fn serve(address: &TargetAddress, settings: &Settings) -> Result<()> {
    // Ctrl-C in the shell that started us is not for us. It fails where we lead a session already.
    let _ = rustix::process::setsid();
    let target = Target::find(address, settings.user.as_deref()).await.inspect_err(tell_failure)?;
    let root = StateRoot::open()?;
    let folder = root.folder(&target.key());
    let Some(_lock) = folder.lock()? else {
        tell(&Told::Busy);
        return Ok(());
    };
    begin_log(&folder)?;
    root.prune();
    let mut signals = Signals::new()?;
    let token = root.token(&target.key())?;
    let bridged = Rc::new(Bridged::new(target.address().to_string(), settings.clone()));
    let life = keep(&bridged, &target, &folder, &token, async |life| {
        let lent = life.begin(&Report::objects()).await?;
        tell(&Told::Ready(bridged.status()));
        let_go_of_output();
        Ok(Some(lent))
    });
    let mut life = std::pin::pin!(life);
    let result = loop {
        tokio::select! {
            result = &mut life => break result,
            () = signals.received() => bridged.stop(),
        }
    };
    result.inspect_err(tell_failure).map(|_| ())
}

/// Keeps one bridge for its whole life, in a folder whose lock is held. `begin` may make the first
/// link.
pub(super) async fn keep(
    bridged: &Rc<Bridged>,
    target: &Target,
    folder: &StateFolder,
    token: &str,
    begin: impl AsyncFnOnce(&mut Life<'_>) -> Result<Option<Rc<Lent>>>,
) -> Result<Ending> {
    folder.name(&target.address().to_string())?;
    let desk = Desk::open(folder, Rc::clone(bridged))?;
    let life = async {
        let mut life = Life::new(bridged, target, token).await;
        let link = begin(&mut life).await?;
        life.go_on(link).await
    };
    let result = life.await;
    let answer = match &result {
        Ok(Ending::Undone) => {
            folder.undone();
            Answer::Done
        }
        Ok(Ending::Removed) => {
            folder.undone();
            folder.note_end("the container was removed");
            Answer::Done
        }
        Ok(Ending::Away(why)) => {
            folder.undo_later();
            Answer::Noted { why: why.clone() }
        }
        Err(error) => {
            folder.note_end(&error.message);
            Answer::Failed(error.clone())
        }
    };
    desk.close(answer).await;
    folder.clear();
    result
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
