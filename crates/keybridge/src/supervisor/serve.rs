//! The process of one bridge in the background.

use std::rc::Rc;

use keybridge_link::Input;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::control::{ControlServer, LINE_LIMIT, Reply};
use super::lifecycle::{Ending, Lifecycle};
use super::managed_bridge::ManagedBridge;
use super::process::{ProcessMessage, UNDOING_TIME};
use super::state::{StateFolder, StateRoot};
use crate::config::{ConfigFile, Invocation};
use crate::output::{Report, print_line};
use crate::platform::{Signals, close_stdout, leave_terminal, raise_descriptor_limit};
use crate::setup::LiveBridge;
use crate::target::{Target, TargetAddress};
use crate::{Error, ErrorKind, Result};

/// Who started the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartedBy {
    /// `up`: the first link has to work, and the process then runs on without its starter.
    Up,
    /// `watch`: the process ends with it. A link that fails is tried again.
    Watch,
}

/// Bridges a target until it is stopped or the target is removed. Standard output carries a
/// `ProcessMessage` or a step on each line. The first line of standard input is the [`Invocation`]. If
/// standard input is closed without a second line, the bridge ends.
pub async fn serve(
    address: &TargetAddress,
    config: &ConfigFile,
    started_by: StartedBy,
) -> Result<()> {
    leave_terminal();
    let starter = Starter::new();
    match Box::pin(bridge(address, config, started_by, starter)).await {
        Ok(Ending::Removed) => {
            send(&ProcessMessage::Removed);
            Ok(())
        }
        Ok(Ending::Undone | Ending::Away(_)) => Ok(()),
        Err(error) => {
            send(&ProcessMessage::Failed(error.clone()));
            Err(error)
        }
    }
}

async fn bridge(
    address: &TargetAddress,
    config: &ConfigFile,
    started_by: StartedBy,
    mut starter: Starter,
) -> Result<Ending> {
    let invocation = starter.invocation().await?;
    let target = match started_by {
        StartedBy::Up => Target::find(address, None).await?,
        // It may have stopped meanwhile. Then the bridge waits for it.
        StartedBy::Watch => Target::find_any(address, None).await?.0,
    };
    let settings = config.settings_for(&target.address().to_string(), &invocation)?;
    let target = target.for_user(settings.options.user.as_deref())?;
    let root = StateRoot::open()?;
    let folder = root.folder(&target.key());
    let lock = match (folder.lock()?, started_by) {
        (None, StartedBy::Watch) => {
            // If an earlier `watch` was killed, its bridge takes a moment to end.
            let _ = tokio::time::timeout(UNDOING_TIME, folder.ended()).await;
            folder.lock()?
        }
        (lock, StartedBy::Up | StartedBy::Watch) => lock,
    };
    let Some(_lock) = lock else {
        send(&ProcessMessage::Busy);
        return Ok(Ending::Undone);
    };
    // Only with the lock: until then, the log belongs to another process.
    folder.begin_log()?;
    raise_descriptor_limit(settings.max_sessions);
    root.prune();
    let mut signals = Signals::new()?;
    let token = root.token(&target.key())?;
    let bridge = Rc::new(ManagedBridge::new(target.clone(), settings));
    bridge.set_questions(invocation.questions());
    let life = run_bridge(&bridge, &target, &folder, &token, async |life| match started_by {
        StartedBy::Up => {
            let live = life.begin(&Report::objects()).await?;
            send(&ProcessMessage::Ready(bridge.status()));
            // A reader of the starter's output sees its end.
            close_stdout();
            Ok(Some(live))
        }
        StartedBy::Watch => {
            send(&ProcessMessage::Begun);
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

/// Runs one bridge to its end, with its control socket. The caller holds the folder's lock. `begin` may
/// make the first link.
pub(super) async fn run_bridge(
    bridge: &Rc<ManagedBridge>,
    target: &Target,
    folder: &StateFolder,
    token: &str,
    begin: impl AsyncFnOnce(&mut Lifecycle<'_>) -> Result<Option<Rc<LiveBridge>>>,
) -> Result<Ending> {
    let user = bridge.settings().options.user;
    folder.note_target(&target.address().to_string(), user.as_deref())?;
    let server = ControlServer::open(folder, Rc::clone(bridge))?;
    let life = async {
        let mut life = Lifecycle::new(bridge, target, token).await;
        let link = begin(&mut life).await?;
        Box::pin(life.run(link)).await
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
    folder.remove_control_socket();
    result
}

fn send(message: &ProcessMessage) {
    // The starter may have ended.
    print_line(&serde_json::to_string(message).unwrap_or_default());
}

/// The process that started this one, at the other end of standard input.
struct Starter(Option<BufReader<Input>>);

impl Starter {
    /// None, if standard input can't be polled.
    fn new() -> Self {
        Self(Input::open().ok().map(BufReader::new))
    }

    /// What the caller asks for: the first line.
    async fn invocation(&mut self) -> Result<Invocation> {
        let mut line = Vec::new();
        if let Some(input) = &mut self.0 {
            let read = input.take(LINE_LIMIT).read_until(b'\n', &mut line).await;
            read.map_err(|error| Error::failed("reading standard input").caused_by(error))?;
        }
        serde_json::from_slice(&line).map_err(|error| {
            let message = format!("invalid settings on standard input: {error}");
            Error::new(ErrorKind::Usage, message)
                .hint("don't run keybridge serve by hand: keybridge up starts it")
        })
    }

    /// Waits until the starter has ended, once. For ever, if it has released this process with a line.
    async fn is_gone(&mut self) {
        let Some(input) = &mut self.0 else { return std::future::pending().await };
        let word = input.read(&mut [0]).await;
        self.0 = None;
        if word.is_ok_and(|count| count > 0) {
            std::future::pending::<()>().await;
        }
    }
}
