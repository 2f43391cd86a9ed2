//! Runs one bridge: makes links again until it is stopped or its target is removed. `life.rs` decides what
//! is done when.

use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_link::until;
use tokio::time::timeout;

use super::DownOutcome;
use super::life::{Action, Event, Failure, Life};
use super::managed_bridge::ManagedBridge;
use crate::config::Settings;
use crate::keyring::Ceiling;
use crate::output::Report;
use crate::setup::{Link, LinkSetup, LogQuota};
use crate::target::{Following, Presence, Questions, Target};
use crate::{Error, ErrorKind, Result};

/// How long one attempt to make a link again may take: an engine may never answer.
const ATTEMPT_TIME: Duration = Duration::from_secs(30);

/// How long an attempt may take if a person may be asked.
const ASKING_TIME: Duration = Duration::from_mins(10);

/// How long a target may take to be undone.
pub(super) const UNDO_TIME: Duration = Duration::from_secs(90);

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
pub(crate) enum Ending {
    /// Everything is undone in the target.
    Undone,
    /// The same, but for where another bridge's helper is at work.
    InUse(Vec<String>),
    /// The version 1 server there has ended, which alone knows what it did. This is left.
    LeftByServer(Vec<String>),
    /// The target can't be reached, for this reason; it has to be undone later.
    Away(String),
    /// The target was removed, and everything in it.
    Removed,
}

impl Ending {
    /// What a person is told of it.
    pub(super) fn outcome(self, bridge: &ManagedBridge) -> DownOutcome {
        match self {
            Self::Undone | Self::Removed => {
                DownOutcome::Undone { may_ask: bridge.operations().may_ask() }
            }
            Self::InUse(by) => DownOutcome::InUse(by),
            Self::LeftByServer(left) => DownOutcome::LeftByServer(left),
            Self::Away(why) => DownOutcome::Later(why),
        }
    }
}

/// Runs one bridge.
pub(crate) struct Lifecycle<'a> {
    bridge: &'a ManagedBridge,
    target: &'a Target,
    /// Identifies the bridge to its helpers.
    token: &'a str,
    following: Following,
    /// How much the helpers may log, over all links.
    quota: Rc<LogQuota>,
}

impl<'a> Lifecycle<'a> {
    /// Starts to follow the target.
    pub(super) async fn new(bridge: &'a ManagedBridge, target: &'a Target, token: &'a str) -> Self {
        let following = target.follow().await;
        Self { bridge, target, token, following, quota: Rc::default() }
    }

    /// Makes the first link, for a person who waits. A failure ends the bridge.
    pub(crate) async fn begin(&mut self, report: &Report) -> Result<Rc<Link>> {
        self.bridge.refresh_logins().await;
        let settings = self.bridge.settings();
        let (target, _) = self.bridge.target_for_link();
        let setup = setup_of(self.bridge, &target, &settings, self.token, &self.quota);
        let mut told = false;
        let stopped = async || {
            if std::mem::replace(&mut told, true) {
                // Who doesn't wait for what is undone drops this.
                std::future::pending::<()>().await;
            } else {
                self.bridge.until_stopped().await;
            }
        };
        let link = setup.run_until(stopped, report).await;
        let link = link.inspect_err(|error| self.bridge.set_failed(error.clone()))?;
        if !self.bridge.ceiling().is_set() {
            // There is no gpg-agent now. One that appears later lends nothing by itself.
            self.bridge.ceiling().set(Ceiling::default())?;
        }
        let link = Rc::new(link);
        self.bridge.set_linked(&link);
        if self.bridge.are_current(&settings) {
            self.bridge.end_attempt();
        } else {
            // The `up` that changed them waits for the next link.
            self.bridge.request_link();
        }
        Ok(link)
    }

    /// Runs until the bridge ends, from a first link or without one.
    pub(super) async fn run(mut self, mut link: Option<Rc<Link>>) -> Result<Ending> {
        let bridge = self.bridge;
        let mut attempt: Option<Attempt<'_>> = None;
        let mut machine = Life::new(self.following.now(), self.target.longest_pause());
        let mut action = machine.begin(link.is_some(), Instant::now());
        loop {
            match (action, &link) {
                (Action::Link, _) => {
                    let (target, questions) = bridge.target_for_link();
                    if questions.are_asked() {
                        machine.allow_questions();
                    }
                    let time = attempt_time(&questions);
                    attempt =
                        Some(Box::pin(link_to(bridge, target, time, self.token, &self.quota)));
                }
                (Action::Rest(presence), _) => {
                    attempt = None;
                    link = None;
                    bridge.set_waiting(why_away(&presence));
                }
                (Action::CheckLink, Some(link)) => link.check_link(),
                (Action::PauseLink, Some(link)) => {
                    link.pause();
                    bridge.set_paused();
                }
                (Action::ResumeLink, Some(link)) => {
                    link.check_link();
                    link.resume();
                    bridge.set_running();
                }
                (Action::Stop, _) => {
                    drop(attempt);
                    return in_time(self.end(link)).await;
                }
                (Action::TargetRemoved, _) => {
                    tracing::warn!("the container was removed; the bridge ends");
                    return Ok(Ending::Removed);
                }
                (Action::GoOn | Action::CheckLink | Action::PauseLink | Action::ResumeLink, _) => {}
            }
            let event = tokio::select! {
                presence = self.following.changed() => Event::Target(presence),
                made = finished(&mut attempt) => {
                    attempt = None;
                    made.map_or_else(
                        |error| note_failure(bridge, error),
                        |made| {
                            link = made;
                            if link.is_some() { Event::Linked } else { Event::Outdated }
                        },
                    )
                }
                why = lost(link.as_deref(), bridge) => {
                    tracing::warn!("the link is lost: {why}");
                    bridge.set_waiting(why);
                    link = None;
                    Event::LinkLost
                }
                () = bridge.until_stopped() => Event::StopAsked,
                () = bridge.retry_requested() => Event::Wanted,
                () = until(machine.deadline()) => {
                    action = machine.timeout(Instant::now());
                    continue;
                }
            };
            action = machine.handle(event, Instant::now());
        }
    }

    /// Ends the bridge, with its link if it has one.
    async fn end(&mut self, link: Option<Rc<Link>>) -> Result<Ending> {
        match link {
            // A paused helper can't answer. It sees the end of its link when it runs again.
            Some(link) if self.following.now() != Presence::Paused => self.stop(link).await,
            Some(_) | None => self.undo().await,
        }
    }

    /// Ends a bridge that has a link.
    async fn stop(&mut self, link: Rc<Link>) -> Result<Ending> {
        let stopped = link.stop().await;
        if link.is_version_1() {
            let mut left = link.left_by_server().await;
            left.extend(stopped.err().map(|_| "the server, which doesn't end".to_owned()));
            return Ok(Ending::LeftByServer(left));
        }
        let Err(error) = stopped else { return Ok(Ending::Undone) };
        tracing::warn!("can't stop the helper over the link, undoing without it: {error}");
        drop(link);
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
                let setup = setup_of(self.bridge, self.target, &settings, self.token, &self.quota);
                let error = match setup.undo().await {
                    Ok(_) if settings.options.helper.is_some() => {
                        return Ok(Ending::LeftByServer(Vec::new()));
                    }
                    Ok(in_use) if in_use.is_empty() => return Ok(Ending::Undone),
                    Ok(in_use) => return Ok(Ending::InUse(in_use)),
                    Err(error) => error,
                };
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

fn setup_of<'a>(
    bridge: &ManagedBridge,
    target: &'a Target,
    settings: &'a Settings,
    token: &'a str,
    quota: &Rc<LogQuota>,
) -> LinkSetup<'a> {
    let setup = LinkSetup::new(target, settings)
        .with_token(token)
        .with_quota(quota)
        .with_operations(bridge.operations())
        .with_ceiling(bridge.ceiling());
    if bridge.is_in_foreground() { setup.ending_with_link() } else { setup }
}

/// Ends a bridge whose target doesn't answer.
async fn in_time(ending: impl Future<Output = Result<Ending>>) -> Result<Ending> {
    let late = || Ending::Away(format!("it doesn't answer within {} s", UNDO_TIME.as_secs()));
    timeout(UNDO_TIME, ending).await.unwrap_or_else(|_| Ok(late()))
}

/// An attempt to make a link; it makes none if the settings have changed meanwhile.
type Attempt<'a> = Pin<Box<dyn Future<Output = Result<Option<Rc<Link>>>> + 'a>>;

async fn link_to(
    bridge: &ManagedBridge,
    target: Target,
    time: Duration,
    token: &str,
    quota: &Rc<LogQuota>,
) -> Result<Option<Rc<Link>>> {
    bridge.refresh_logins().await;
    let settings = bridge.settings();
    let setup = setup_of(bridge, &target, &settings, token, quota);
    let linked = timeout(time, setup.relink(&bridge.attempt_report())).await;
    let link = linked.unwrap_or_else(|_| {
        Err(Error::failed(format!("the link wasn't ready within {} s", time.as_secs())))
    })?;
    // A hostile target may delay it until the user has narrowed the settings.
    if !bridge.are_current(&settings) {
        return Ok(None);
    }
    let link = Rc::new(link);
    bridge.set_linked(&link);
    bridge.end_attempt();
    Ok(Some(link))
}

/// Waits for the end of an attempt, for ever if there is none.
async fn finished(attempt: &mut Option<Attempt<'_>>) -> Result<Option<Rc<Link>>> {
    match attempt {
        Some(attempt) => attempt.await,
        None => std::future::pending().await,
    }
}

/// Waits until a link has ended, or has to be made again, for ever if there is none. Says why.
async fn lost(link: Option<&Link>, bridge: &ManagedBridge) -> String {
    let Some(link) = link else { return std::future::pending().await };
    tokio::select! {
        end = link.ended() => end.to_string(),
        () = bridge.link_requested() => "the settings have changed".to_owned(),
    }
}

fn note_failure(bridge: &ManagedBridge, error: Error) -> Event {
    tracing::warn!("making a link failed, trying again: {error}");
    let failure = match error.kind {
        ErrorKind::LoginRefused => Failure::Refused,
        _ => Failure::Other,
    };
    if error.kind == ErrorKind::NoTarget {
        bridge.set_away(&error);
    } else {
        bridge.set_failed(error);
    }
    Event::Failed(failure)
}

/// Why a bridge waits for a target that is away.
fn why_away(presence: &Presence) -> String {
    match presence {
        Presence::Paused => "the container is paused".to_owned(),
        Presence::Unreachable(error) => error.to_string(),
        Presence::Stopped | Presence::Running | Presence::Removed => {
            "the container isn't running".to_owned()
        }
    }
}
