//! The process of one bridge: one in the background, or that of its `up`. Other commands find both in the same
//! way, and a signal ends both.

use std::pin::pin;
use std::rc::Rc;

use keybridge_link::Input;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};

use super::control::Reply;
use super::control_server::ControlServer;
use super::lifecycle::{Ending, Lifecycle};
use super::managed_bridge::ManagedBridge;
use super::process::{INVOCATION_LIMIT, ProcessMessage, UNDOING_TIME};
use super::state::{Lock, StateFolder, StateRoot};
use super::take_over::{has_ssh_agent, keep_ssh_agent};
use super::{BridgeStatus, DownOutcome};
use crate::config::{ConfigFile, Environment, Invocation, Options, Settings};
use crate::keyring::{Ceiling, SharedCeiling};
use crate::output::{Report, print_line};
use crate::platform::{Signals, close_stdout, leave_terminal, raise_descriptor_limit};
use crate::setup::Link;
use crate::target::{Target, TargetAddress};
use crate::{Error, ErrorKind, Result};

/// Who started the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartedBy {
    /// `up`: the first link has to work, and the process then runs on without its starter.
    Up,
    /// `watch`: the process ends with it. A link that fails is tried again.
    Watch,
}

/// Bridges a target until it is stopped or the target is removed. Standard output carries a
/// `ProcessMessage` or a step on each line. The first line of standard input is the [`Invocation`]. If
/// standard input is closed without a second line, the bridge ends.
pub(crate) async fn serve(
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
        Ok(Ending::Undone | Ending::InUse(_) | Ending::LeftByServer(_) | Ending::Away(_)) => Ok(()),
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
    let start = Start::new(target, config, &invocation)?;
    let lock = match (start.folder.lock()?, started_by) {
        (None, StartedBy::Watch) => {
            // If an earlier `watch` was killed, its bridge takes a moment to end.
            let _ = tokio::time::timeout(UNDOING_TIME, start.folder.ended()).await;
            start.folder.lock()?
        }
        (lock, StartedBy::Up | StartedBy::Watch) => lock,
    };
    let Some(lock) = lock else {
        send(&ProcessMessage::Busy);
        return Ok(Ending::Undone);
    };
    let new = start.begin(lock, Ground::Back, &Report::objects()).await?;
    let NewBridge { bridge, target, folder, token, mut signals, _lock } = new;
    let life = run_bridge(&bridge, &target, &folder, &token, async |life| match started_by {
        StartedBy::Up => {
            let link = life.begin(&Report::objects()).await?;
            send(&ProcessMessage::Ready(bridge.status()));
            // A reader of the starter's output sees its end.
            close_stdout();
            Ok(Some(link))
        }
        StartedBy::Watch => {
            send(&ProcessMessage::Begun);
            Ok(None)
        }
    });
    let mut life = pin!(life);
    loop {
        tokio::select! {
            result = &mut life => return result,
            () = signals.received() => bridge.stop(),
            () = starter.gone() => bridge.stop(),
        }
    }
}

/// Bridges a target until a signal or another command ends it; `ready` is called with the first link.
/// Gives back what became of the changes in the target.
pub(crate) async fn run_in_foreground(
    address: &TargetAddress,
    config: &ConfigFile,
    invocation: &Invocation,
    report: &Report,
    ready: impl FnOnce(&Link, &BridgeStatus),
) -> Result<DownOutcome> {
    let target = Target::find(address, None).await?;
    let start = Start::new(target, config, invocation)?;
    let Some(lock) = start.folder.lock()? else {
        let word = address.as_word();
        return Err(Error::failed(format!("{address} is bridged already"))
            .hint(format!("keybridge down {word} ends that bridge")));
    };
    let new = start.begin(lock, Ground::Fore, report).await?;
    let NewBridge { bridge, target, folder, token, mut signals, _lock } = new;
    let mut life = pin!(run_bridge(&bridge, &target, &folder, &token, async |life| {
        let link = life.begin(report).await?;
        ready(&link, &bridge.status());
        Ok(Some(link))
    }));
    let outcome = |ending: Ending| ending.outcome(&bridge);
    tokio::select! {
        ending = &mut life => return ending.map(outcome),
        () = signals.received() => bridge.stop(),
    }
    let ended = async {
        tokio::select! {
            ending = life => ending.map(outcome),
            // A second signal doesn't wait for the target.
            () = signals.received() => Err(Error::failed("interrupted")
                .hint(format!("keybridge down {} undoes what is left", address.as_word()))),
        }
    };
    if !bridge.was_linked() {
        return ended.await;
    }
    let undo = async { ended.await.map(|outcome| (outcome, String::new())) };
    report.step("undoing the changes in the target", undo).await
}

/// A target that is to be bridged.
struct Start<'a> {
    target: Target,
    settings: Settings,
    invocation: &'a Invocation,
    root: StateRoot,
    folder: StateFolder,
}

/// Where the process of a bridge runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ground {
    /// On without its starter.
    Back,
    /// It is that of `up`, at its terminal.
    Fore,
}

/// A bridge before its first link.
struct NewBridge {
    bridge: Rc<ManagedBridge>,
    target: Target,
    folder: StateFolder,
    token: String,
    signals: Signals,
    _lock: Lock,
}

impl<'a> Start<'a> {
    fn new(found: Target, config: &ConfigFile, invocation: &'a Invocation) -> Result<Self> {
        let settings = config.settings_for(&found.address().to_string(), invocation)?;
        let target = found.for_user(settings.options.user.as_deref())?;
        let root = StateRoot::open()?;
        let folder = root.folder(&target.key());
        Ok(Self { target, settings, invocation, root, folder })
    }

    /// Begins with what a bridge that was killed has kept.
    async fn begin(self, lock: Lock, ground: Ground, report: &Report) -> Result<NewBridge> {
        let Self { target, settings, invocation, root, folder } = self;
        let kept = settings_after_kill(&folder, &target, invocation, report).await?;
        let ceiling = ceiling_to_begin_with(&folder, invocation, report)?;
        let settings = kept.unwrap_or(settings);
        let target = target.for_user(settings.options.user.as_deref())?;
        // Only with the lock: until then, the log belongs to another process.
        match ground {
            Ground::Back => folder.begin_log()?,
            Ground::Fore => folder.begin_log_beside_terminal()?,
        }
        raise_descriptor_limit(settings.max_sessions);
        root.prune();
        // Before anything is changed, so that no signal can come too early to be undone.
        let signals = Signals::new()?;
        let token = root.token(&target.key())?;
        let bridge = ManagedBridge::new(target.clone(), settings, ceiling);
        let bridge = Rc::new(match ground {
            Ground::Back => bridge,
            Ground::Fore => bridge.in_foreground(),
        });
        bridge.set_questions(invocation.questions());
        Ok(NewBridge { bridge, target, folder, token, signals, _lock: lock })
    }
}

/// If the last bridge of a target was killed, its settings with what the caller of `up` names. The caller has
/// the lock.
async fn settings_after_kill(
    folder: &StateFolder,
    target: &Target,
    invocation: &Invocation,
    report: &Report,
) -> Result<Option<Settings>> {
    let kept = match folder.kept_settings() {
        Ok(Some(kept)) => kept,
        Ok(None) => return Ok(None),
        Err(lost) => return do_without(lost, invocation, report).map(|()| None),
    };
    let names = kept.options.differing(&Options::default()).join(", ");
    if !names.is_empty() {
        report.warn(&format!("the last bridge was killed; its settings are taken: {names}"));
    }
    let before = ConfigFile::default().settings_for(&target.address().to_string(), &kept)?;
    // Who isn't at `up` has a bridge started as it was.
    let Invocation { environment, raises, .. } = invocation;
    let environment = if *raises { environment.clone() } else { Environment::default() };
    let mut after = before.with(&Invocation { environment, ..invocation.clone() })?;
    if after.gnupg_home != before.gnupg_home && invocation.options.gnupg_home.is_none() {
        report.say_changed("gnupg-home");
    }
    if after.ssh_auth_sock != before.ssh_auth_sock {
        if has_ssh_agent(&after).await {
            report.say_changed("ssh-agent");
        } else if let Some(warning) = keep_ssh_agent(&before, &mut after, target.lane_scope()) {
            report.warn(&warning);
        }
    }
    Ok(Some(after))
}

/// What a bridge that starts may lend at most; not set if its first link sets it. After a kill it is what it
/// was before, unless a person names keys. The caller has the lock.
fn ceiling_to_begin_with(
    folder: &StateFolder,
    invocation: &Invocation,
    report: &Report,
) -> Result<SharedCeiling> {
    let Invocation { options, raises, ceiling, .. } = invocation;
    let fresh = || ceiling.clone().map_or_else(SharedCeiling::default, SharedCeiling::new);
    let names_keys = options.lend.is_some() || options.keys.is_some() || options.uses.is_some();
    if !folder.has_control_socket() || (*raises && names_keys) {
        return Ok(fresh());
    }
    let lost = match Ceiling::read(&folder.ceiling()) {
        Ok(Some(kept)) => return Ok(SharedCeiling::new(kept)),
        Ok(None) => Error::failed("what the last bridge could lend isn't known any more"),
        Err(error) => error.context("what the last bridge could lend isn't known any more"),
    };
    do_without(lost, invocation, report).map(|()| fresh())
}

/// Goes on without what isn't known any more of a bridge that was killed, for a person who is shown what is
/// lent. It is an error for anybody else.
fn do_without(lost: Error, invocation: &Invocation, report: &Report) -> Result<()> {
    if !invocation.raises {
        return Err(lost.hint("run `keybridge up` again, which shows what is lent"));
    }
    report.warn(&lost.to_string());
    Ok(())
}

/// Runs one bridge to its end, with its control socket. The caller holds the folder's lock. `begin` may
/// make the first link.
pub(crate) async fn run_bridge(
    bridge: &Rc<ManagedBridge>,
    target: &Target,
    folder: &StateFolder,
    token: &str,
    begin: impl AsyncFnOnce(&mut Lifecycle<'_>) -> Result<Option<Rc<Link>>>,
) -> Result<Ending> {
    let user = bridge.settings().options.user;
    // What a bridge that was killed has kept counts, and is to be undone, until a link works.
    let was_killed = folder.has_control_socket();
    folder.note_target(&target.address().to_string(), user.as_deref())?;
    if !was_killed {
        bridge.keep_settings_in(folder)?;
    }
    bridge.record_for(folder);
    let server = ControlServer::open(folder, Rc::clone(bridge))?;
    let life = async {
        let mut life = Lifecycle::new(bridge, target, token).await;
        let link = begin(&mut life).await?;
        if was_killed {
            bridge.keep_settings_in(folder)?;
        }
        Box::pin(life.run(link)).await
    };
    let result = tokio::select! {
        result = life => result,
        never = bridge.ask_questions() => match never {},
    };
    bridge.end_record();
    match &result {
        // It has never changed what one before it did.
        Ok(Ending::Undone) if !bridge.was_linked() => {}
        Ok(Ending::Undone | Ending::InUse(_) | Ending::LeftByServer(_)) => folder.note_undone(),
        Ok(Ending::Removed) => {
            folder.note_undone();
            folder.note_end("the container was removed");
        }
        Ok(Ending::Away(_)) => folder.undo_later(),
        Err(error) => {
            if bridge.was_linked() {
                folder.undo_later();
            }
            folder.note_end(&error.message);
        }
    }
    let answer = match result.clone() {
        Ok(ending) => Reply::Ended { outcome: ending.outcome(bridge) },
        Err(error) => Reply::Failed(error),
    };
    server.close(answer).await;
    let is_removed = matches!(result, Ok(Ending::Removed));
    if !was_killed || bridge.was_linked() || is_removed {
        folder.remove_control_socket();
    }
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
            let read = input.take(INVOCATION_LIMIT).read_until(b'\n', &mut line).await;
            read.map_err(|error| Error::failed("reading standard input").caused_by(error))?;
        }
        serde_json::from_slice(&line).map_err(|error| {
            let message = format!("invalid settings on standard input: {error}");
            Error::new(ErrorKind::Usage, message)
                .hint("don't run keybridge serve by hand: keybridge up starts it")
        })
    }

    /// Waits until the starter has ended, once. For ever, if it has released this process with a line.
    async fn gone(&mut self) {
        let Some(input) = &mut self.0 else { return std::future::pending().await };
        let word = input.read(&mut [0]).await;
        self.0 = None;
        if word.is_ok_and(|count| count > 0) {
            std::future::pending::<()>().await;
        }
    }
}
