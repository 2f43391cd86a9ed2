//! The lifecycle of one bridge: it makes links again until it is stopped or its target is removed.
//!
//! ```text
//!              ┌──────────── link lost, target stopped ───────────┐
//!              │                                                  ▼
//!  first ──▶ Ready ◀──▶ Paused           ┌── the target runs ── Waiting
//!              ▲                         ▼                        ▲
//!              └────── it works ──── an attempt ── it fails ──▶ Failed, with a growing pause
//! ```

use std::rc::Rc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::managed_bridge::ManagedBridge;
use crate::output::Report;
use crate::setup::{BridgeSetup, LiveBridge, LogQuota};
use crate::target::{Following, Presence, Questions, Target};
use crate::{Error, ErrorKind, Result};

/// How long one attempt to make a link again may take: an engine may never answer.
const ATTEMPT_TIME: Duration = Duration::from_secs(30);

/// How long an attempt may take if a person may be asked.
pub(super) const ASKING_TIME: Duration = Duration::from_mins(10);

/// The pause after the first attempt that failed; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The pause after a login that was refused: it will be again, until a person does something, and hosts
/// lock out those who try too often.
const REFUSED_PAUSE: Duration = Duration::from_mins(5);

/// How long an attempt may take at least, even if the network keeps changing.
const LOGIN_TIME: Duration = Duration::from_secs(3);

/// A link that ended sooner isn't made again at once: something is wrong with it.
const GOOD_LIFE: Duration = Duration::from_secs(10);

/// The engine reports a container's end well within this time.
const NEWS_TIME: Duration = Duration::from_secs(2);

/// How long an attempt may take.
pub(super) const fn attempt_time(questions: &Questions) -> Duration {
    match questions {
        Questions::AskedAt(_) => ASKING_TIME,
        Questions::NotAsked => ATTEMPT_TIME,
    }
}

/// How a bridge ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// Everything is undone in the target.
    Undone,
    /// The target can't be reached, for this reason; it has to be undone later.
    Away(String),
    /// The target was removed, and everything in it.
    Removed,
}

/// Runs one bridge.
pub(super) struct Lifecycle<'a> {
    bridge: &'a ManagedBridge,
    target: &'a Target,
    /// Identifies the bridge to its helpers.
    token: &'a str,
    following: Following,
    pause: Duration,
    /// How much the helpers may log, over all links.
    quota: Rc<LogQuota>,
}

/// Why a link ended.
enum LinkEnd {
    StopAsked,
    TargetRemoved,
    /// It broke, or has to be made again.
    Lost(String),
}

/// What ended the wait for another link.
enum NextLink {
    Made(Rc<LiveBridge>),
    StopAsked,
    TargetRemoved,
}

impl<'a> Lifecycle<'a> {
    /// Starts to follow the target.
    pub(super) async fn new(bridge: &'a ManagedBridge, target: &'a Target, token: &'a str) -> Self {
        let following = target.follow().await;
        Self { bridge, target, token, following, pause: FIRST_PAUSE, quota: Rc::default() }
    }

    /// Makes the first link, for a person who waits. A failure ends the bridge.
    pub(super) async fn begin(&mut self, report: &Report) -> Result<Rc<LiveBridge>> {
        let settings = self.bridge.settings();
        let (target, _) = self.bridge.target_for_link();
        let setup =
            BridgeSetup::new(&target, &settings).with_token(self.token).with_quota(&self.quota);
        let mut told = false;
        let stopped = async || {
            if std::mem::replace(&mut told, true) {
                // Only Ctrl-C in the foreground stops a second time.
                std::future::pending::<()>().await;
            } else {
                self.bridge.is_stopped().await;
            }
        };
        let live = setup.run_until(stopped, report).await;
        let live = live.inspect_err(|error| self.bridge.failed(error.clone()))?;
        let live = Rc::new(live);
        self.bridge.linked(&live);
        if self.bridge.are_current(&settings) {
            self.bridge.attempted();
        } else {
            // The `up` that changed them waits for the next link.
            self.bridge.request_link();
        }
        Ok(live)
    }

    /// Runs until the bridge ends, from a first link or without one.
    pub(super) async fn run(mut self, mut link: Option<Rc<LiveBridge>>) -> Result<Ending> {
        loop {
            let live = match link.take() {
                Some(live) => live,
                None => match Box::pin(self.link_again()).await {
                    NextLink::Made(live) => {
                        self.bridge.linked(&live);
                        self.bridge.attempted();
                        live
                    }
                    NextLink::StopAsked => return self.undo().await,
                    NextLink::TargetRemoved => return Ok(removed()),
                },
            };
            let began = Instant::now();
            let lost = self.wait_for_end(&live).await;
            let is_good = began.elapsed() >= GOOD_LIFE;
            match lost {
                LinkEnd::StopAsked => return self.stop(live).await,
                LinkEnd::TargetRemoved => return Ok(removed()),
                LinkEnd::Lost(why) => {
                    tracing::warn!("the link is lost: {why}");
                    self.bridge.waits(why);
                }
            }
            drop(live);
            if is_good {
                self.pause = FIRST_PAUSE;
            } else {
                self.pause().await;
            }
        }
    }

    /// Waits until the link has ended.
    async fn wait_for_end(&mut self, live: &LiveBridge) -> LinkEnd {
        loop {
            match self.following.now() {
                Presence::Running => {
                    live.resume();
                    self.bridge.resumed();
                }
                Presence::Paused => {
                    live.pause();
                    self.bridge.paused();
                }
                Presence::Stopped => {
                    return LinkEnd::Lost("the container isn't running".to_owned());
                }
                Presence::Removed => return LinkEnd::TargetRemoved,
                // The link may still work; if not, its own pings show it.
                Presence::Unreachable(error) => tracing::info!("{error}"),
            }
            tokio::select! {
                end = live.ended() => return LinkEnd::Lost(end.to_string()),
                () = self.bridge.is_stopped() => return LinkEnd::StopAsked,
                () = self.bridge.link_requested() => {
                    return LinkEnd::Lost("the settings have changed".to_owned());
                }
                // Whatever has changed, the link may have died of it.
                _ = self.following.changed() => live.check_link(),
            }
        }
    }

    /// Makes another link as soon as the target runs.
    async fn link_again(&mut self) -> NextLink {
        loop {
            let away = match self.following.now() {
                Presence::Running => None,
                Presence::Removed => return NextLink::TargetRemoved,
                Presence::Paused => Some("the container is paused".to_owned()),
                Presence::Stopped => Some("the container isn't running".to_owned()),
                Presence::Unreachable(error) => Some(error.to_string()),
            };
            if let Some(reason) = away {
                self.bridge.waits(reason);
                self.pause = FIRST_PAUSE;
                tokio::select! {
                    _ = self.following.changed() => continue,
                    () = self.bridge.is_stopped() => return NextLink::StopAsked,
                }
            }
            let settings = self.bridge.settings();
            let (target, time) = self.bridge.target_for_link();
            let setup =
                BridgeSetup::new(&target, &settings).with_token(self.token).with_quota(&self.quota);
            let report = self.bridge.attempt_report();
            let attempt = timeout(time, setup.link(&report));
            // A login that began in another network may wait for an answer that can't come.
            let earliest = Instant::now() + LOGIN_TIME;
            let outdated = async {
                let mut presence = self.following.changed().await;
                // A person who is being asked is not interrupted.
                while presence == Presence::Running && time == ASKING_TIME {
                    presence = self.following.changed().await;
                }
                if presence == Presence::Running {
                    sleep_until(earliest).await;
                }
            };
            let failed = tokio::select! {
                linked = attempt => match linked {
                    // A hostile target may delay it until the user has narrowed the settings.
                    Ok(Ok(_)) if !self.bridge.are_current(&settings) => continue,
                    Ok(Ok(live)) => return NextLink::Made(Rc::new(live)),
                    Ok(Err(error)) => error,
                    Err(_) => Error::failed(format!("the link wasn't ready within {} s", time.as_secs())),
                },
                () = outdated => continue,
                () = self.bridge.is_stopped() => return NextLink::StopAsked,
            };
            tracing::warn!("making a link failed, trying again: {failed}");
            match failed.kind {
                ErrorKind::LoginRefused => {
                    self.bridge.failed(failed);
                    self.pause_until_wanted().await;
                }
                ErrorKind::NoTarget => {
                    self.bridge.away(&failed);
                    self.pause().await;
                }
                _ => {
                    self.bridge.failed(failed);
                    self.pause().await;
                }
            }
        }
    }

    /// Waits before another attempt, longer each time. News of the target or an `up` ends the wait.
    async fn pause(&mut self) {
        tokio::select! {
            () = sleep(self.pause) => {
                self.pause = (self.pause * 2).min(self.target.longest_pause());
            }
            _ = self.following.changed() => self.pause = FIRST_PAUSE,
            () = self.bridge.retry_requested() => self.pause = FIRST_PAUSE,
            () = self.bridge.is_stopped() => {}
        }
    }

    /// Waits after a login that was refused: a network that changes doesn't help.
    async fn pause_until_wanted(&mut self) {
        tokio::select! {
            () = sleep(REFUSED_PAUSE) => {}
            () = self.bridge.retry_requested() => {}
            () = self.bridge.is_stopped() => {}
        }
        self.pause = FIRST_PAUSE;
    }

    /// Ends a bridge that has a link.
    async fn stop(&mut self, live: Rc<LiveBridge>) -> Result<Ending> {
        // A paused helper can't answer. It sees the end of its link when it runs again.
        if self.following.now() == Presence::Paused {
            return Ok(Ending::Away("it is paused".to_owned()));
        }
        let Err(error) = live.stop().await else { return Ok(Ending::Undone) };
        tracing::warn!("can't stop the helper over the link, undoing without it: {error}");
        drop(live);
        self.undo().await
    }

    /// Undoes the changes in the target without a link.
    async fn undo(&mut self) -> Result<Ending> {
        if !self.bridge.was_linked() {
            return Ok(Ending::Undone);
        }
        match self.following.now() {
            Presence::Running => {
                let settings = self.bridge.settings();
                let setup = BridgeSetup::new(self.target, &settings)
                    .with_token(self.token)
                    .with_quota(&self.quota);
                let Err(error) = setup.undo().await else { return Ok(Ending::Undone) };
                // The target may have ended just now.
                let gone = self.following.wait_for(|presence| *presence != Presence::Running);
                match timeout(NEWS_TIME, gone).await {
                    Ok(Presence::Removed) => Ok(Ending::Removed),
                    Ok(_) => Ok(Ending::Away(error.message)),
                    Err(_) if error.means_away() => Ok(Ending::Away(error.message)),
                    Err(_) => Err(error),
                }
            }
            Presence::Removed => Ok(Ending::Removed),
            Presence::Paused => Ok(Ending::Away("it is paused".to_owned())),
            Presence::Stopped => Ok(Ending::Away("it isn't running".to_owned())),
            Presence::Unreachable(error) => Ok(Ending::Away(error.to_string())),
        }
    }
}

fn removed() -> Ending {
    tracing::warn!("the container was removed; the bridge ends");
    Ending::Removed
}
