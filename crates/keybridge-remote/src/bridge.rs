//! A bridge in the target: the lanes that it serves, the keys that it takes, and its end.

use std::cell::Cell;
use std::rc::Rc;

use keybridge_link::Link;
use keybridge_proto::Lane;
use keybridge_proto::report::Ready;
use keybridge_proto::session::FirstError;
use tokio::task::{JoinHandle, spawn_local};

use crate::error::{StartError, StopError};
use crate::place::{self, Place, TakenPlace};
use crate::probe::Question;
use crate::session::Common;
use crate::{Config, Gnupg, LaneHome, Stopping, keys};

/// A bridge in the target. To be stopped: dropping it leaves everything as it is.
#[must_use = "a bridge has to be stopped"]
pub struct Bridge {
    config: Config,
    link: Link,
    common: Common,
    places: Vec<Place>,
    warnings: Vec<String>,
    /// The host was told that the bridge is ready, by this helper or the one before it.
    came_about: Rc<Cell<bool>>,
    /// No more keys will come.
    keys_stopping: Stopping,
    taking_keys: Option<JoinHandle<()>>,
}

impl Bridge {
    /// A bridge that serves no lane yet.
    pub fn new(config: Config, link: Link) -> Self {
        let common = Common::new(link.clone(), config.limits, config.max_sessions);
        Self {
            config,
            link,
            common,
            places: Vec::new(),
            warnings: Vec::new(),
            came_about: Rc::default(),
            keys_stopping: Stopping::default(),
            taking_keys: None,
        }
    }

    /// Sets a lane up: locks its folder, edits the files, binds the socket, and serves it with tasks of
    /// the current [`tokio::task::LocalSet`]. After an error everything is as it was, but for a helper
    /// of the same bridge that has handed its place over: what it did is undone.
    ///
    /// The future is not to be dropped half-way.
    pub async fn add(&mut self, home: LaneHome) -> Result<(), StartError> {
        let TakenPlace { mut place, was_inherited, warnings } =
            place::take(&self.config, home).await?;
        place.serve(self.common.clone(), self.config.bridge.clone());
        self.places.push(place);
        self.warnings.extend(warnings);
        if was_inherited {
            self.came_about.set(true);
        }
        Ok(())
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether no lane is served.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Has the host told of something that doesn't stop the bridge.
    pub fn warn(&mut self, warning: String) {
        self.warnings.push(warning);
    }

    /// Takes keys from the link as they come, and says READY after each series, with what is set up by
    /// now. Keys are imported if the gpg lane is served. After the first time it says what the agents
    /// answer too, if they are to be asked.
    pub fn take_keys(&mut self, user: String, asks: bool) {
        let (ready, gnupg) = (self.ready(user), self.gnupg());
        let (link, reported) = (self.link.clone(), Rc::clone(&self.came_about));
        let question = asks.then(|| Question::of(&self.places));
        let stopping = self.keys_stopping.clone();
        let taking = keys::take_keys(link, gnupg, ready, question, reported, stopping);
        self.taking_keys = Some(spawn_local(taking));
    }

    /// Takes the exports of a version 1 host as they come, and says READY after the first one, unless that
    /// was said before. They are imported if the gpg lane is served.
    pub fn take_exports(&mut self) {
        let (link, reported) = (self.link.clone(), Rc::clone(&self.came_about));
        let taking = keys::take_exports(link, self.gnupg(), reported, self.keys_stopping.clone());
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
            let place = self.places.iter().find(|place| place.home().lane() == lane);
            place.map(|place| place.socket().path().display().to_string())
        };
        let gnupg = self.gnupg();
        Ready {
            user,
            gnupg: gnupg.as_ref().map_or_else(String::new, |gnupg| gnupg.version().to_owned()),
            home: gnupg.map_or_else(String::new, |gnupg| gnupg.home().display().to_string()),
            gpg_socket: socket(Lane::Gpg),
            ssh_socket: socket(Lane::Ssh),
            keys: None,
            warnings: self.warnings.clone(),
            answers: Vec::new(),
        }
    }

    fn gnupg(&self) -> Option<Rc<Gnupg>> {
        self.places.iter().find_map(|place| match place.home() {
            LaneHome::Gpg(gnupg) => Some(Rc::clone(gnupg)),
            LaneHome::Ssh(_) => None,
        })
    }

    /// Whether the bridge has come about: the host was told that it is ready.
    pub fn was_ready(&self) -> bool {
        self.came_about.get()
    }

    /// Waits until newer helpers of the same bridge have taken everything over. It is still to be
    /// stopped then.
    pub async fn handed_over(&self) {
        for place in &self.places {
            place.handed_over().wait().await;
        }
    }

    /// The link is over. The sockets stay, and every client gets an error, until the bridge stops.
    pub fn link_lost(&self) {
        self.keys_stopping.say();
    }

    /// Ends the bridge: no more clients, sessions ended, sockets removed, edits undone. What was handed
    /// over stays as it is. Every step is done; the first error is returned.
    pub async fn stop(self) -> Result<(), StopError> {
        self.keys_stopping.say();
        let mut result = FirstError::default();
        for place in &self.places {
            result.note(place.stop());
        }
        if let Some(task) = self.taking_keys {
            result.note(task.await.map_err(|error| StopError::Task(error.to_string())));
        }
        for place in self.places {
            result.note(place.leave().await);
        }
        result.into_result()
    }
}
