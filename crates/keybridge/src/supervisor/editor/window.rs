//! One window of an editor, and the bridge that it has or shares.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::supervisor::control::{self, Reply, Request};
use crate::supervisor::managed_bridge::ManagedBridge;
use crate::supervisor::state::StateFolder;
use crate::{Error, Result};

/// What a window has asked for, and what answers it.
pub(super) struct Window {
    now: RefCell<Now>,
    stop: watch::Sender<bool>,
}

enum Now {
    Waiting,
    /// Another window has the bridge.
    Shared(StateFolder),
    Has(Rc<ManagedBridge>),
}

impl Default for Window {
    fn default() -> Self {
        Self { now: RefCell::new(Now::Waiting), stop: watch::channel(false).0 }
    }
}

impl Window {
    pub(super) fn shares(&self, folder: &StateFolder) {
        *self.now.borrow_mut() = Now::Shared(folder.clone());
    }

    pub(super) fn has(&self, bridge: &Rc<ManagedBridge>) {
        *self.now.borrow_mut() = Now::Has(Rc::clone(bridge));
    }

    pub(super) fn ask_stop(&self) {
        self.stop.send_replace(true);
    }

    pub(super) async fn stop_asked(&self) {
        // The sender is ours, so it doesn't go first.
        let _ = self.stop.subscribe().wait_for(|asked| *asked).await;
    }

    /// Sends public keys, those of the settings or these.
    pub(super) async fn sync(&self, keys: Option<Vec<String>>) -> Result<Value> {
        let (bridge, folder) = match &*self.now.borrow() {
            Now::Waiting => (None, None),
            Now::Shared(folder) => (None, Some(folder.clone())),
            Now::Has(bridge) => (Some(Rc::clone(bridge)), None),
        };
        match (bridge, folder) {
            (Some(bridge), _) => {
                let (changes, warnings) = bridge.sync(keys.map(|keys| keys.join(","))).await?;
                Ok(synced(changes.new, changes.updated, changes.unchanged, &warnings))
            }
            (None, Some(folder)) => sync_shared(&folder, keys).await,
            (None, None) => Err(Error::failed("the bridge isn't up yet")),
        }
    }
}

/// The bridge of another window sends what that window's settings say.
async fn sync_shared(folder: &StateFolder, keys: Option<Vec<String>>) -> Result<Value> {
    if keys.is_some() {
        return Err(Error::failed("another window has the bridge of this remote")
            .hint("choose the keys in that window"));
    }
    match control::ask(&folder.control_socket(), &Request::Sync).await? {
        Reply::Synced { new, updated, unchanged } => Ok(synced(new, updated, unchanged, &[])),
        Reply::Status(_) | Reply::Done | Reply::Noted { .. } | Reply::Failed(_) => {
            Err(Error::failed("the other window gave an answer of another kind"))
        }
    }
}

fn synced(new: u32, updated: u32, unchanged: u32, warnings: &[String]) -> Value {
    json!({ "new": new, "updated": updated, "unchanged": unchanged, "warnings": warnings })
}
