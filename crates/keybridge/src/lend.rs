//! The way from nothing to a working bridge, step by step.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use keybridge_proto::mux::Cookie;
use keybridge_proto::printable;
use keybridge_proto::report::{KeyChanges, Ready};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use crate::agent::AgentDialer;
use crate::bridge::{self, Bridge, BridgeEnd};
use crate::config::Settings;
use crate::gnupg::Gnupg;
use crate::helper::Helper;
use crate::keys::{self, Form, KeyFilter, PublicKeys};
use crate::report::Report;
use crate::signals::Signals;
use crate::target::{Installed, Remaining, Target, TargetAddress, TargetCommand, install};
use crate::{Error, Result};

/// An agent that is lent to a target: a bridge that works, and the helper at its far end.
pub struct Lent {
    bridge: Bridge,
    helper: Mutex<Remaining>,
    log: HelperLog,
    target: Target,
    put: Installed,
}

/// Sets a bridge up, and shows each step. Ends with a question that went through the whole chain.
pub async fn lend(address: &TargetAddress, settings: &Settings, report: &Report) -> Result<Lent> {
    let gnupg = Gnupg::new(settings.gnupg_home.clone());
    let dialer = report.step("your gpg-agent", find_agent(&gnupg, settings)).await?;
    let find = async {
        let target = Target::find(address, settings.user.as_deref()).await?;
        let description = target.describe();
        Ok((target, description))
    };
    let target = report.step("the target", find).await?;
    let helper = Helper { program: settings.helper_program.clone() };
    let place = async { install(&target, &helper).await.map(|put| (put, String::new())) };
    let put = report.step("the helper in the target", place).await?;
    let lent = lend_with(&put, &target, address, gnupg, dialer, settings, report).await;
    if lent.is_err() && put.is_new {
        // Nothing is left behind of a bridge that could not be set up.
        let _ = remove(&target, &put).await;
    }
    lent
}

async fn remove(target: &Target, put: &Installed) -> Result<()> {
    target.output(&TargetCommand::new([&put.path, "remove"]), b"").await.map(|_| ())
}

/// Goes on when the helper is in place.
async fn lend_with(
    put: &Installed,
    target: &Target,
    address: &TargetAddress,
    gnupg: Gnupg,
    dialer: AgentDialer,
    settings: &Settings,
    report: &Report,
) -> Result<Lent> {
    let keys = report.step("public keys to send", export(&gnupg, settings)).await?;
    for warning in &keys.warnings {
        report.warn(warning);
    }
    let command = serve_command(&put.path, &gnupg, settings).await?;
    let start = async {
        let lent = start(target, put, address, command, settings, dialer, &keys).await?;
        let changes = describe(lent.keys().unwrap_or_default());
        Ok((lent, changes))
    };
    let lent = report.step("the bridge", start).await?;
    for warning in &lent.ready().warnings {
        report.warn(&printable(warning).to_string());
    }
    if let Err(error) =
        report.step("a question through the chain", ask(target, &put.path, &lent)).await
    {
        // What was set up is of no use, and is not left behind.
        let _ = lent.stop().await;
        return Err(error);
    }
    lent.log.loud.set(true);
    Ok(lent)
}

/// Sets a bridge up unless a signal comes; what was set up by then is undone.
pub(crate) async fn lend_until(
    signals: &mut Signals,
    address: &TargetAddress,
    settings: &Settings,
    report: &Report,
) -> Result<Lent> {
    let mut lending = Box::pin(lend(address, settings, report));
    tokio::select! {
        lent = &mut lending => lent,
        () = signals.received() => {
            // Not dropped half-way: the helper could not undo what it has done by then. A second
            // signal doesn't wait.
            tokio::select! {
                lent = lending => if let Ok(lent) = lent { lent.stop().await? },
                () = signals.received() => {}
            }
            Err(Error::failed("interrupted"))
        }
    }
}

impl Lent {
    /// What the helper has set up.
    pub fn ready(&self) -> &Ready {
        self.bridge.ready()
    }

    /// What the keys that were sent have changed in the target.
    pub fn keys(&self) -> Option<KeyChanges> {
        self.ready().keys
    }

    /// Waits until the bridge has ended by itself, and tells why.
    pub fn ended(&self) -> impl Future<Output = BridgeEnd> + use<> {
        self.bridge.ended()
    }

    /// What the bridge has carried.
    pub fn stats(&self) -> bridge::Stats {
        self.bridge.stats()
    }

    /// Sends the public keys again.
    pub async fn sync(&self, settings: &Settings) -> Result<KeyChanges> {
        let gnupg = Gnupg::new(settings.gnupg_home.clone());
        let (keys, _) = export(&gnupg, settings).await?;
        self.bridge.sync(&keys).await
    }

    /// Waits until the helper of a bridge that has ended has undone what it did; not for ever, since
    /// it may hang. Gives back its exit code.
    pub async fn settle(&self) -> Option<i32> {
        let mut helper = self.helper.lock().await;
        let ended = tokio::time::timeout(bridge::STOP_TIME, helper.wait()).await;
        ended.ok().and_then(Result::ok).flatten()
    }

    /// Removes the helper's program, if it was put there for this bridge.
    pub async fn remove_helper(&self) -> Result<()> {
        if self.put.is_new {
            remove(&self.target, &self.put).await?;
        }
        Ok(())
    }

    /// Ends the bridge, and has everything undone in the target.
    pub async fn stop(&self) -> Result<()> {
        let stopped = self.bridge.stop().await;
        let status = self.settle().await;
        stopped?;
        match status {
            Some(0) => Ok(()),
            Some(_) | None => {
                Err(self.log.explain(Error::failed("the helper ended with an error")))
            }
        }
    }
}

async fn find_agent(gnupg: &Gnupg, settings: &Settings) -> Result<(AgentDialer, String)> {
    let dialer = AgentDialer::find(gnupg.clone(), settings.policy.socket).await?;
    let path = dialer.path().display().to_string();
    Ok((dialer, path))
}

async fn export(gnupg: &Gnupg, settings: &Settings) -> Result<(PublicKeys, String)> {
    let Ok(filter) = settings.keys.parse::<KeyFilter>();
    let keys = keys::export(gnupg, &filter, Form::Binary).await?;
    let count = match keys.keys.len() {
        0 => "none".to_owned(),
        count => count.to_string(),
    };
    Ok((keys, count))
}

/// The command that starts the helper, without its cookie.
async fn serve_command(path: &str, gnupg: &Gnupg, settings: &Settings) -> Result<Vec<String>> {
    let mut words: Vec<String> = [path, "serve", "--mux", "2", "--lanes"].map(str::to_owned).into();
    let lanes: Vec<String> = settings.lanes.iter().map(ToString::to_string).collect();
    words.push(lanes.join(","));
    words.extend(["--max-sessions".to_owned(), settings.max_sessions.to_string()]);
    let home = gnupg.dirs().await?.home;
    if let Ok(status) = rustix::fs::stat(&home) {
        words.extend(["--host-home".to_owned(), format!("{}:{}", status.st_dev, status.st_ino)]);
    }
    if settings.replace {
        words.push("--replace".to_owned());
    }
    words.extend(["--log".to_owned(), log_level().to_owned()]);
    Ok(words)
}

/// The helper tells as much as we do.
fn log_level() -> &'static str {
    use tracing::level_filters::LevelFilter;
    match LevelFilter::current() {
        LevelFilter::TRACE => "trace",
        LevelFilter::DEBUG => "debug",
        LevelFilter::INFO => "info",
        _ => "warn",
    }
}

async fn start(
    target: &Target,
    put: &Installed,
    address: &TargetAddress,
    mut words: Vec<String>,
    settings: &Settings,
    dialer: AgentDialer,
    keys: &PublicKeys,
) -> Result<Lent> {
    let mut random = [0; 16];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| Error::failed(format!("random bytes: {error}")))?;
    let cookie = Cookie::new(random);
    words.extend(["--cookie".to_owned(), cookie.hex()]);
    let (stdout, stdin, mut helper) = target.run(&TargetCommand::new(words)).await?.split();
    let mut log = HelperLog::follow(helper.take_stderr());
    let bridge_settings = bridge::Settings {
        target: address.to_string(),
        policy: settings.policy.clone(),
        limits: settings.limits,
        max_sessions: settings.max_sessions,
        lanes: settings.lanes.clone(),
        ssh: None,
    };
    match Bridge::start(stdout, stdin, &cookie, bridge_settings, dialer, keys).await {
        Ok(bridge) => Ok(Lent {
            bridge,
            helper: Mutex::new(helper),
            log,
            target: target.clone(),
            put: put.clone(),
        }),
        Err(error) => {
            // The streams are closed, so it ends by itself; what it said last may tell why.
            let _ = tokio::time::timeout(bridge::STOP_TIME, helper.wait()).await;
            log.finish().await;
            Err(log.explain(error))
        }
    }
}

/// Asks the agent through the socket in the target.
async fn ask(target: &Target, path: &str, lent: &Lent) -> Result<((), String)> {
    let socket = lent.ready().gpg_socket.clone().unwrap_or_default();
    let answer = target.output(&TargetCommand::new([path, "probe", &socket]), b"").await?;
    Ok(((), format!("gpg-agent {} answers", printable(answer.trim()))))
}

fn describe(keys: KeyChanges) -> String {
    let KeyChanges { new, updated, unchanged, .. } = keys;
    match (new, updated, unchanged) {
        (0, 0, 0) => "no keys".to_owned(),
        (0, 0, 1) => "1 key, unchanged".to_owned(),
        (0, 0, _) => format!("{unchanged} keys, unchanged"),
        _ => format!("keys: {new} new, {updated} updated, {unchanged} unchanged"),
    }
}

/// What the helper complains about: passed on to our log, and the last lines kept for an error.
struct HelperLog {
    last: Rc<RefCell<VecDeque<String>>>,
    loud: Rc<Cell<bool>>,
    task: JoinHandle<()>,
}

/// Passes a line of the helper's log on, at the level that it has there. Not aloud while the bridge is
/// being set up: what fails then is told as an error of ours.
fn log_line(line: &str, aloud: bool) {
    match line.split_once(' ') {
        Some(("ERROR", text)) if aloud => tracing::error!("in the target: {text}"),
        Some(("WARN", text)) if aloud => tracing::warn!("in the target: {text}"),
        Some(("DEBUG", text)) => tracing::debug!("in the target: {text}"),
        Some(("TRACE", text)) => tracing::trace!("in the target: {text}"),
        Some(("INFO", text)) => tracing::info!("in the target: {text}"),
        Some(_) | None => tracing::info!("in the target: {line}"),
    }
}

/// Enough to tell why a program didn't start.
const KEPT_LINES: usize = 3;

/// The longest line of a log that is worth passing on.
const LINE_LIMIT: u64 = 4096;

impl HelperLog {
    fn follow(stderr: impl AsyncRead + Unpin + 'static) -> Self {
        let last = Rc::new(RefCell::new(VecDeque::new()));
        let kept = Rc::clone(&last);
        let loud = Rc::new(Cell::new(false));
        let aloud = Rc::clone(&loud);
        let task = tokio::task::spawn_local(async move {
            let mut lines = BufReader::new(stderr);
            let mut line = Vec::new();
            while (&mut lines)
                .take(LINE_LIMIT)
                .read_until(b'\n', &mut line)
                .await
                .is_ok_and(|n| n > 0)
            {
                let text = printable(line.trim_ascii()).to_string();
                line.clear();
                log_line(&text, aloud.get());
                let mut kept = kept.borrow_mut();
                if kept.len() == KEPT_LINES {
                    kept.pop_front();
                }
                kept.push_back(text);
            }
        });
        Self { last, loud, task }
    }

    /// Waits until everything was read that the helper wrote; not for long, since another process
    /// may hold its output open.
    async fn finish(&mut self) {
        let _ = tokio::time::timeout(Duration::from_secs(1), &mut self.task).await;
    }

    /// Adds what the helper said last.
    fn explain(&self, error: Error) -> Error {
        let last = self.last.borrow();
        let news = last.iter().filter(|line| !line.contains(&error.message)).cloned();
        let news: Vec<String> = news.collect();
        news.iter().fold(error, |error, line| error.hint(format!("the helper said: {line}")))
    }
}

impl Drop for HelperLog {
    fn drop(&mut self) {
        self.task.abort();
    }
}
