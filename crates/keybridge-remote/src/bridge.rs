//! A bridge in the target: the lanes that it serves, the keys that it takes, and its end.

pub(crate) mod token;

use std::cell::Cell;
use std::rc::Rc;

use keybridge_link::Link;
use keybridge_proto::report::Ready;
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

/// A bridge in the target. To be stopped: dropping it leaves everything as it is.
#[must_use = "a bridge has to be stopped"]
pub struct Bridge {
    settings: Settings,
    git: Option<Git>,
    link: Link,
    context: SessionContext,
    lanes: Vec<RunningLane>,
    warnings: Vec<String>,
    /// The host was told that the bridge is ready, by this helper or the one before it.
    came_about: Rc<Cell<bool>>,
    /// No more keys will come.
    stop_keys: StopSignal,
    taking_keys: Option<JoinHandle<()>>,
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
            lanes: Vec::new(),
            warnings: Vec::new(),
            came_about: Rc::default(),
            stop_keys: StopSignal::default(),
            taking_keys: None,
        }
    }

    /// Sets a lane up: locks its folder, edits the files, binds the socket, and serves it with tasks of
    /// the current [`tokio::task::LocalSet`]. After an error everything is as it was, but for a helper
    /// of the same bridge that has handed its lane over: what it did is undone.
    ///
    /// The future is not to be dropped half-way.
    pub async fn add(&mut self, discovered: DiscoveredLane) -> Result<(), Error> {
        let StartedLane { mut lane, was_inherited, warnings } =
            start_lane::start(&self.settings, self.git.as_ref(), discovered).await?;
        lane.serve(self.context.clone(), &self.settings);
        self.lanes.push(lane);
        self.warnings.extend(warnings);
        if was_inherited {
            self.came_about.set(true);
        }
        Ok(())
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Finds git in the target, if it should sign; where it can't, the host is warned. To be called
    /// before a lane is added.
    pub async fn find_git(&mut self, environment: &Environment) {
        let Some(signing) = self.settings.git.clone() else { return };
        match Git::find(environment, signing).await {
            Ok(git) => self.git = Some(git),
            Err(error) => self.warn(error.to_string()),
        }
    }

    /// The lane over which git signs, if it can.
    pub fn git_lane(&self) -> Option<Lane> {
        self.git.as_ref().map(|git| git.signing().lane())
    }

    /// Whether no lane is served.
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
    }

    /// Has the host told of something that doesn't stop the bridge.
    pub fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Takes keys from the link as they come, and says READY after each series, with what is set up by
    /// now. Keys are imported if the gpg lane is served. After the first time it says what the agents
    /// answer too, if they are to be asked.
    pub fn take_keys(&mut self, user: String) {
        let (ready, gnupg) = (self.ready(user), self.gnupg());
        let (link, reported) = (self.link.clone(), Rc::clone(&self.came_about));
        let question = self.settings.ask.then(|| AgentCheck::of(&self.lanes));
        let stop = self.stop_keys.clone();
        let taking = receive::take_keys(link, gnupg, ready, question, reported, stop);
        self.taking_keys = Some(spawn_local(taking));
    }

    /// Takes the exports of a version 1 host as they come, and says READY after the first one, unless that
    /// was said before. They are imported if the gpg lane is served.
    pub fn take_exports(&mut self) {
        let (link, reported) = (self.link.clone(), Rc::clone(&self.came_about));
        let taking = receive::take_exports(link, self.gnupg(), reported, self.stop_keys.clone());
        self.taking_keys = Some(spawn_local(taking));
    }

    /// Tells a version 1 host that what is to be served is, before any keys have come.
    pub fn say_ready(&self) {
        self.came_about.set(true);
        if let Err(error) = self.link.with_mux(|mux| mux.ready(b"")) {
            tracing::warn!(%error, "READY can't be said");
        }
    }

    fn ready(&self, user: String) -> Ready {
        let socket = |lane| {
            let running = self.lanes.iter().find(|running| running.discovered().lane() == lane);
            running.map(|running| running.socket().path().display().to_string())
        };
        let gnupg = self.gnupg();
        Ready {
            user,
            gnupg: gnupg.as_ref().map_or_else(String::new, |gnupg| gnupg.version().to_owned()),
            home: gnupg.map_or_else(String::new, |gnupg| gnupg.home().display().to_string()),
            sockets: PerLane::from_fn(socket),
            keys: None,
            warnings: self.warnings.clone(),
            answers: Vec::new(),
        }
    }

    fn gnupg(&self) -> Option<Rc<Gnupg>> {
        self.lanes.iter().find_map(|lane| lane.discovered().gnupg().cloned())
    }

    /// Whether the bridge has come about: the host was told that it is ready.
    pub fn was_ready(&self) -> bool {
        self.came_about.get()
    }

    /// Waits until newer helpers of the same bridge have taken everything over. It is still to be
    /// stopped then.
    pub async fn handed_over(&self) {
        for lane in &self.lanes {
            lane.handed_over().wait().await;
        }
    }

    /// The link is over. The sockets stay, and every client gets an error, until the bridge stops.
    pub fn link_lost(&self) {
        self.stop_keys.set();
    }

    /// Ends the bridge: no more clients, sessions ended, sockets removed, edits undone. What was handed
    /// over stays as it is. Every step is done; the first error is returned.
    pub async fn stop(self) -> Result<(), Error> {
        self.stop_keys.set();
        let mut result = FirstError::default();
        for lane in &self.lanes {
            result.note(lane.stop().await);
        }
        if let Some(task) = self.taking_keys {
            result.note(task.await.map_err(|error| Error::task("the task of the keys", error)));
        }
        // Backwards, as they were added: the first one has made what they share.
        for lane in self.lanes.into_iter().rev() {
            result.note(lane.leave().await);
        }
        result.into_result()
    }
}
