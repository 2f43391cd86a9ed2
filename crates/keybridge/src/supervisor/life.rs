//! The life of one bridge: over as many links as it takes, until it is ended or its target is gone.
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

use tokio::time::{Instant, sleep, timeout};

use super::managed_bridge::ManagedBridge;
use crate::report::Report;
use crate::setup::{BridgeSetup, LiveBridge, Quota};
use crate::target::{Following, Presence, Target};
use crate::{Error, Result};

/// How long one attempt to make a link again may take: an engine can be silent for ever.
pub(super) const ATTEMPT_TIME: Duration = Duration::from_secs(30);

/// The pause after the first attempt that failed; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// The longest pause: a person who repairs something doesn't want to wait longer.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A link that lived for less has something wrong with it, and is not made again at once.
const GOOD_LIFE: Duration = Duration::from_secs(10);

/// The engine tells of a container that has gone well within this time.
const NEWS_TIME: Duration = Duration::from_secs(2);

/// How a life came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// Everything is undone in the target.
    Undone,
    /// The target can't be reached, and is to be undone when it can.
    Away(String),
    /// The target was removed, and everything in it.
    Removed,
}

/// One bridge that lives.
pub(super) struct Life<'a> {
    bridge: &'a ManagedBridge,
    target: &'a Target,
    /// Who the helper in the target belongs to.
    token: &'a str,
    following: Following,
    pause: Duration,
    /// What the helpers may say, over all links.
    quota: Rc<Quota>,
}

/// Why a link is no more.
enum Lost {
    Asked,
    Removed,
    /// It went, or has to.
    Link(String),
}

/// What came of waiting for another link.
enum Again {
    Linked(Rc<LiveBridge>),
    Asked,
    Removed,
}

impl<'a> Life<'a> {
    /// Begins to follow the target.
    pub(super) async fn new(bridge: &'a ManagedBridge, target: &'a Target, token: &'a str) -> Self {
        let following = target.follow().await;
        Self { bridge, target, token, following, pause: FIRST_PAUSE, quota: Rc::default() }
    }

    /// Makes the first link, for a person who waits for it; one that can't be made ends the life.
    pub(super) async fn begin(&mut self, report: &Report) -> Result<Rc<LiveBridge>> {
        let settings = self.bridge.settings();
        let setup =
            BridgeSetup::new(self.target, &settings).outliving(self.token).sharing(&self.quota);
        let mut told = false;
        let stopped = async || {
            if std::mem::replace(&mut told, true) {
                // Nobody is there to say it twice.
                std::future::pending::<()>().await;
            } else {
                self.bridge.is_stopped().await;
            }
        };
        let live = setup.run_until(stopped, report).await;
        let live = live.inspect_err(|error| self.bridge.failed(error.clone()))?;
        let live = Rc::new(live);
        self.bridge.linked(&live);
        if !self.bridge.are_current(&settings) {
            self.bridge.wants_another_link();
        }
        Ok(live)
    }

    /// Lives on from a link, or without one yet.
    pub(super) async fn go_on(mut self, mut link: Option<Rc<LiveBridge>>) -> Result<Ending> {
        loop {
            let live = match link.take() {
                Some(live) => live,
                None => match self.link_again().await {
                    Again::Linked(live) => {
                        self.bridge.linked(&live);
                        live
                    }
                    Again::Asked => return self.undo().await,
                    Again::Removed => return Ok(removed()),
                },
            };
            tracing::info!("ready");
            let began = Instant::now();
            let lost = self.hold(&live).await;
            let is_good = began.elapsed() >= GOOD_LIFE;
            match lost {
                Lost::Asked => return self.stop(live).await,
                Lost::Removed => return Ok(removed()),
                Lost::Link(why) => {
                    tracing::warn!("the link is lost: {why}");
                    self.bridge.waits(why);
                }
            }
            drop(live);
            if is_good {
                self.pause = FIRST_PAUSE;
            } else {
                self.rest().await;
            }
        }
    }

    /// Waits until the link is no more.
    async fn hold(&mut self, live: &LiveBridge) -> Lost {
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
                Presence::Stopped => return Lost::Link("the container isn't running".to_owned()),
                Presence::Removed => return Lost::Removed,
                // The link may well live on; it tells itself if it doesn't.
                Presence::Unreachable(error) => tracing::info!("{error}"),
            }
            tokio::select! {
                end = live.ended() => return Lost::Link(end.to_string()),
                () = self.bridge.is_stopped() => return Lost::Asked,
                () = self.bridge.is_relinked() => {
                    return Lost::Link("the settings have changed".to_owned());
                }
                _ = self.following.changed() => {}
            }
        }
    }

    /// Makes another link as soon as the target is there.
    async fn link_again(&mut self) -> Again {
        loop {
            let away = match self.following.now() {
                Presence::Running => None,
                Presence::Removed => return Again::Removed,
                Presence::Paused => Some("the container is paused".to_owned()),
                Presence::Stopped => Some("the container isn't running".to_owned()),
                Presence::Unreachable(error) => Some(error.to_string()),
            };
            if let Some(reason) = away {
                self.bridge.waits(reason);
                self.pause = FIRST_PAUSE;
                tokio::select! {
                    _ = self.following.changed() => continue,
                    () = self.bridge.is_stopped() => return Again::Asked,
                }
            }
            let settings = self.bridge.settings();
            let setup =
                BridgeSetup::new(self.target, &settings).outliving(self.token).sharing(&self.quota);
            let silent = Report::silent();
            let attempt = timeout(ATTEMPT_TIME, setup.link(&silent));
            let failed = tokio::select! {
                linked = attempt => match linked {
                    // A target may have dragged it out until the user lends something else.
                    Ok(Ok(_)) if !self.bridge.are_current(&settings) => continue,
                    Ok(Ok(live)) => return Again::Linked(Rc::new(live)),
                    Ok(Err(error)) => error,
                    Err(_) => Error::failed(format!("no link within {} s", ATTEMPT_TIME.as_secs())),
                },
                _ = self.following.wait_for(|presence| *presence != Presence::Running) => continue,
                () = self.bridge.is_stopped() => return Again::Asked,
            };
            tracing::warn!("no link yet: {failed}");
            self.bridge.failed(failed);
            self.rest().await;
        }
    }

    /// Waits before another attempt, longer each time, unless something is new.
    async fn rest(&mut self) {
        tokio::select! {
            () = sleep(self.pause) => self.pause = (self.pause * 2).min(LONGEST_PAUSE),
            _ = self.following.changed() => self.pause = FIRST_PAUSE,
            () = self.bridge.is_hurried() => self.pause = FIRST_PAUSE,
            () = self.bridge.is_stopped() => {}
        }
    }

    /// Ends a bridge that has a link.
    async fn stop(&mut self, live: Rc<LiveBridge>) -> Result<Ending> {
        // One that is frozen can't answer. It notices the end of its link when it goes on.
        if self.following.now() == Presence::Paused {
            return Ok(Ending::Away("it is paused".to_owned()));
        }
        let Err(error) = live.stop().await else { return Ok(Ending::Undone) };
        tracing::warn!("ending the bridge over its link: {error}");
        drop(live);
        self.undo().await
    }

    /// Undoes what was done in a target to which there is no link.
    async fn undo(&mut self) -> Result<Ending> {
        if !self.bridge.was_linked() {
            return Ok(Ending::Undone);
        }
        match self.following.now() {
            Presence::Running => {
                let settings = self.bridge.settings();
                let setup = BridgeSetup::new(self.target, &settings)
                    .outliving(self.token)
                    .sharing(&self.quota);
                let Err(error) = setup.undo().await else { return Ok(Ending::Undone) };
                // It may have gone this moment.
                let gone = self.following.wait_for(|presence| *presence != Presence::Running);
                match timeout(NEWS_TIME, gone).await {
                    Ok(Presence::Removed) => Ok(Ending::Removed),
                    Ok(_) => Ok(Ending::Away(error.message)),
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
