//! A bridge in the target: the lanes that it serves, the keys that it receives, and its end.

use std::cell::Cell;
use std::fmt;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::str::FromStr;

use keybridge_link::Link;
use keybridge_proto::report::{Ready, User};
use keybridge_proto::session::FirstError;
use keybridge_proto::{Lane, PerLane};
use tokio::task::{JoinHandle, spawn_local};

use crate::clients::session::SessionContext;
use crate::error::Error;
use crate::keys::receive;
use crate::lanes::agent_check::AgentCheck;
use crate::lanes::running_lane::RunningLane;
use crate::lanes::start_lane::{self, StartedLane};
use crate::{DiscoveredLane, Environment, Git, Gnupg, Settings, StopSignal};

/// A bridge in the target. It has to be stopped: dropping it leaves everything as it is.
#[must_use = "a bridge has to be stopped"]
pub struct Bridge {
    settings: Settings,
    git: Option<Git>,
    link: Link,
    context: SessionContext,
    lanes: PerLane<Option<RunningLane>>,
    warnings: Vec<String>,
    /// The host was told that the bridge is ready, by this helper or the one before it.
    was_ready: Rc<Cell<bool>>,
    /// No more keys will come.
    stop_keys: StopSignal,
    receiving_keys: Option<JoinHandle<()>>,
}

impl Bridge {
    /// A bridge that serves no lane yet.
    pub fn new(settings: Settings, link: Link) -> Self {
        let context = SessionContext::new(link.clone(), settings.max_sessions);
        Self {
            settings,
            git: None,
            link,
            context,
            lanes: PerLane::default(),
            warnings: Vec::new(),
            was_ready: Rc::default(),
            stop_keys: StopSignal::default(),
            receiving_keys: None,
        }
    }

    /// Sets up a lane: locks its folder, edits the files, binds the socket, and serves it with tasks of
    /// the current [`tokio::task::LocalSet`]. After an error everything is as it was, but for a helper
    /// of the same bridge that made way: what it did is undone.
    ///
    /// The future must not be dropped before it is done.
    pub async fn add(&mut self, discovered: DiscoveredLane) -> Result<(), Error> {
        let (git, was_ready) = (self.git.as_ref(), &self.was_ready);
        let StartedLane { mut lane, warnings } =
            start_lane::start(&self.settings, git, discovered, was_ready).await?;
        lane.serve(self.context.clone(), &self.settings);
        let name = lane.discovered().lane();
        self.lanes[name] = Some(lane);
        self.warnings.extend(warnings);
        Ok(())
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Finds git in the target, if it should sign; where it can't, the host is warned. To be called
    /// before a lane is added.
    pub(crate) async fn find_git(&mut self, environment: &Environment) {
        let Some(signing) = self.settings.git.clone() else { return };
        match Git::find(environment, signing, &self.settings.lanes.served).await {
            Ok(git) => self.git = Some(git),
            Err(error) => self.warn(error.to_string()),
        }
    }

    /// The lane over which git signs, if it can.
    pub(crate) fn git_lane(&self) -> Option<Lane> {
        self.git.as_ref().map(Git::lane)
    }

    /// The lanes that aren't served.
    pub(crate) fn unserved(&self) -> impl Iterator<Item = Lane> {
        self.lanes.iter().filter_map(|(lane, running)| running.is_none().then_some(lane))
    }

    /// Whether no lane is served.
    pub fn is_empty(&self) -> bool {
        self.running().next().is_none()
    }

    /// Warns the host of something that doesn't stop the bridge.
    pub(crate) fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Receives keys from the link, and sends READY after each series, with what is set up by now. Keys
    /// are imported if the gpg lane is served. After the first series the agents are asked, if they
    /// should be, and another READY has their answers.
    pub fn receive_keys(&mut self, user: User) {
        let (ready, gnupg) = (self.ready(user), self.gnupg());
        let (link, was_ready) = (self.link.clone(), Rc::clone(&self.was_ready));
        let agent_check = self.settings.ask.then(|| AgentCheck::of(self.running()));
        let stop = self.stop_keys.clone();
        let receiving = receive::receive_keys(link, gnupg, ready, agent_check, was_ready, stop);
        self.receiving_keys = Some(spawn_local(receiving));
    }

    /// Receives the exports of a version 1 host, and sends READY after the first one, unless that was sent
    /// before. They are imported if the gpg lane is served.
    pub fn receive_exports(&mut self) {
        let (link, was_ready) = (self.link.clone(), Rc::clone(&self.was_ready));
        let receiving =
            receive::receive_exports(link, self.gnupg(), was_ready, self.stop_keys.clone());
        self.receiving_keys = Some(spawn_local(receiving));
    }

    /// Tells a version 1 host that its sockets are served, before any keys have come.
    pub fn send_ready(&self) {
        self.was_ready.set(true);
        if let Err(error) = self.link.with_mux(|mux| mux.ready(b"")) {
            tracing::warn!(%error, "can't send READY");
        }
    }

    fn ready(&self, user: User) -> Ready {
        let socket = |_, running: &Option<RunningLane>| {
            running.as_ref().map(|running| running.socket().path().display().to_string())
        };
        let gnupg = self.gnupg();
        Ready {
            user: Some(user),
            gnupg: gnupg.as_ref().map_or_else(String::new, |gnupg| gnupg.version().to_owned()),
            home: gnupg.map_or_else(String::new, |gnupg| gnupg.home().display().to_string()),
            sockets: self.lanes.as_ref().map(socket),
            keys: None,
            warnings: self.warnings.clone(),
        }
    }

    fn gnupg(&self) -> Option<Rc<Gnupg>> {
        self.lanes.gpg.as_ref()?.discovered().gnupg().cloned()
    }

    fn running(&self) -> impl Iterator<Item = &RunningLane> {
        self.lanes.iter().filter_map(|(_, lane)| lane.as_ref())
    }

    /// Whether the host was told that the bridge is ready.
    pub fn was_ready(&self) -> bool {
        self.was_ready.get()
    }

    /// The link is over. The sockets stay, and every client gets an error, until the bridge stops.
    pub fn link_lost(&self) {
        self.stop_keys.set();
    }

    /// Ends the bridge: no more clients, sessions ended, sockets removed, edits undone. Every step is tried;
    /// the first error is returned.
    pub async fn stop(self) -> Result<(), Error> {
        self.end(RunningLane::undo).await
    }

    /// Ends the bridge and undoes nothing: a newer helper of the same bridge goes on.
    pub async fn make_way(self) -> Result<(), Error> {
        self.end(RunningLane::leave).await
    }

    async fn end(self, end: impl AsyncFn(RunningLane) -> Result<(), Error>) -> Result<(), Error> {
        self.stop_keys.set();
        let mut result = FirstError::default();
        self.running().for_each(RunningLane::stop);
        if let Some(task) = self.receiving_keys {
            result.note(task.await.map_err(|error| Error::task("the task of the keys", error)));
        }
        // Backwards, as they were added: the first one may have created folders for both.
        let lanes: Vec<_> = self.lanes.into_iter().filter_map(|(_, lane)| lane).collect();
        for lane in lanes.into_iter().rev() {
            result.note(end(lane).await);
        }
        result.into_result()
    }
}

/// Few digits would be the same by chance; many have no use.
const DIGITS: RangeInclusive<usize> = 8..=64;

/// Names one bridge of one host. It is an identity, not a secret: everyone of the target's user can
/// read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeToken(String);

impl FromStr for BridgeToken {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if DIGITS.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(Self(text.to_ascii_lowercase()));
        }
        Err("expected 8 to 64 hexadecimal digits")
    }
}

impl fmt::Display for BridgeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_hexadecimal_and_its_case_does_not_count() {
        let token: BridgeToken = "01234567abCDef".parse().unwrap();
        assert_eq!(token, "01234567ABcdEF".parse().unwrap());
        assert_eq!(token.to_string(), "01234567abcdef");
        for bad in ["", "1234567", "1234567g", "1234 5678", "+1234567", &"a".repeat(65)] {
            assert!(bad.parse::<BridgeToken>().is_err(), "{bad}");
        }
    }
}
