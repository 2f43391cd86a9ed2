//! One window of an editor, and the bridge that it has or shares.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::SystemTime;

use keybridge_proto::printable;
use keybridge_proto::report::KeyChanges;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::Ended;
use crate::bridge::Bridge;
use crate::config::Settings;
use crate::gnupg::Gnupg;
use crate::lend::{self, HelperLog};
use crate::supervisor::control::{self, Answer, Question};
use crate::supervisor::state::StateFolder;
use crate::supervisor::{BridgeState, BridgeStatus, LaneStatus, Lanes, utc};
use crate::{Error, Result};

/// What the input, the control socket and the bridge share.
pub(super) struct Window {
    target: String,
    settings: Settings,
    since: SystemTime,
    now: RefCell<Now>,
    expects_bytes: Cell<bool>,
    log: RefCell<Option<HelperLog>>,
    stop: watch::Sender<bool>,
    /// How it ended, for those who asked for it over the control socket.
    over: watch::Sender<Option<Answer>>,
}

enum Now {
    Starting,
    /// Another window has the bridge.
    Shared(StateFolder),
    Ready(Rc<Bridge>),
}

impl Window {
    pub(super) fn new(target: String, settings: Settings) -> Self {
        Self {
            target,
            settings,
            since: SystemTime::now(),
            now: RefCell::new(Now::Starting),
            expects_bytes: Cell::new(false),
            log: RefCell::new(None),
            stop: watch::channel(false).0,
            over: watch::channel(None).0,
        }
    }

    pub(super) fn target(&self) -> &str {
        &self.target
    }

    pub(super) fn ask_stop(&self) {
        self.stop.send_replace(true);
    }

    pub(super) async fn stop_asked(&self) {
        // The sender is ours, so it doesn't go first.
        let _ = self.stop.subscribe().wait_for(|asked| *asked).await;
    }

    pub(super) fn expect_bytes(&self) {
        self.expects_bytes.set(true);
    }

    pub(super) fn expects_bytes(&self) -> bool {
        self.expects_bytes.get()
    }

    pub(super) fn share(&self, folder: &StateFolder) {
        *self.now.borrow_mut() = Now::Shared(folder.clone());
    }

    pub(super) fn take_turn(&self) {
        *self.now.borrow_mut() = Now::Starting;
    }

    pub(super) fn ready(&self, bridge: Rc<Bridge>) {
        *self.now.borrow_mut() = Now::Ready(bridge);
    }

    /// Keeps what follows the helper's log, for as long as there is a window.
    pub(super) fn keep_log(&self, log: HelperLog) {
        self.log.replace(Some(log));
    }

    /// Adds what the helper said last.
    pub(super) fn explain(&self, error: Error) -> Error {
        match &*self.log.borrow() {
            Some(log) => log.explain(error),
            None => error,
        }
    }

    pub(super) fn over(&self, ended: &Result<Ended>) {
        let answer = match ended {
            Ok(Ended::Stopped) => Answer::Done,
            Ok(Ended::Broken(error) | Ended::Failed(error)) | Err(error) => {
                Answer::Failed(error.clone())
            }
        };
        self.over.send_replace(Some(answer));
    }

    pub(super) async fn ended(&self) -> Answer {
        let mut over = self.over.subscribe();
        let over = over.wait_for(Option::is_some).await;
        over.ok().and_then(|answer| answer.clone()).unwrap_or(Answer::Done)
    }

    /// How the bridge of this window is.
    pub(super) fn status(&self) -> BridgeStatus {
        let (state, bridge) = match &*self.now.borrow() {
            Now::Starting | Now::Shared(_) => (BridgeState::Starting, None),
            Now::Ready(bridge) => (BridgeState::Ready, Some(Rc::clone(bridge))),
        };
        let gpg = bridge.as_ref().and_then(|bridge| {
            let carried = bridge.stats().gpg;
            Some(LaneStatus {
                socket: printable(bridge.ready().gpg_socket.as_ref()?).to_string(),
                open: u64::try_from(carried.open).unwrap_or(u64::MAX),
                total: carried.total,
                bytes_in: carried.bytes_in,
                bytes_out: carried.bytes_out,
            })
        });
        BridgeStatus {
            target: self.target.clone(),
            state,
            reason: None,
            pid: std::process::id(),
            since: utc(self.since),
            user: bridge
                .map(|bridge| printable(&bridge.ready().user).to_string())
                .unwrap_or_default(),
            lanes: Lanes { gpg },
            reconnects: 0,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// Sends public keys, those of the settings or these.
    pub(super) async fn sync(&self, keys: Option<Vec<String>>) -> Result<Value> {
        let (bridge, folder) = match &*self.now.borrow() {
            Now::Starting => return Err(Error::failed("the bridge isn't up yet")),
            Now::Shared(folder) => (None, Some(folder.clone())),
            Now::Ready(bridge) => (Some(Rc::clone(bridge)), None),
        };
        if let Some(folder) = folder {
            return sync_shared(&folder, keys).await;
        }
        let Some(bridge) = bridge else { return Err(Error::failed("the bridge isn't up")) };
        let mut settings = self.settings.clone();
        if let Some(keys) = keys {
            settings.keys = keys.join(",");
        }
        let gnupg = Gnupg::new(settings.gnupg_home.clone());
        let (keys, _) = lend::export(&gnupg, &settings).await?;
        let mut changes = as_json(bridge.sync(&keys).await?);
        if let Some(changes) = changes.as_object_mut() {
            changes.insert("warnings".into(), keys.warnings.into());
        }
        Ok(changes)
    }
}

/// The bridge of another window sends what that window's settings say.
async fn sync_shared(folder: &StateFolder, keys: Option<Vec<String>>) -> Result<Value> {
    if keys.is_some() {
        return Err(Error::failed("another window has the bridge of this remote")
            .hint("choose the keys in that window"));
    }
    match control::ask(&folder.control_socket(), &Question::Sync).await? {
        Answer::Synced { new, updated, unchanged } => {
            Ok(json!({ "new": new, "updated": updated, "unchanged": unchanged, "warnings": [] }))
        }
        Answer::Status(_) | Answer::Done | Answer::Failed(_) => {
            Err(Error::failed("the other window gave an answer of another kind"))
        }
    }
}

/// What keys have changed, for a program.
pub(super) fn as_json(changes: KeyChanges) -> Value {
    let KeyChanges { new, updated, unchanged, ownertrust } = changes;
    json!({ "new": new, "updated": updated, "unchanged": unchanged, "ownertrust": ownertrust })
}
