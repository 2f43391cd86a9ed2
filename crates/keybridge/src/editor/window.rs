//! One window of an editor, and its bridge or that of another window.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::supervisor::control;
use crate::supervisor::managed_bridge::ManagedBridge;
use crate::supervisor::state::StateFolder;
use crate::{Error, Result};

/// A window, for the messages that come from it.
pub(crate) struct Window {
    bridge: RefCell<WindowBridge>,
    stop: watch::Sender<bool>,
}

/// The bridge that a window uses.
enum WindowBridge {
    NotYet,
    /// That of another window.
    Others(StateFolder),
    Own(Rc<ManagedBridge>),
}

impl Default for Window {
    fn default() -> Self {
        Self { bridge: RefCell::new(WindowBridge::NotYet), stop: watch::channel(false).0 }
    }
}

impl Window {
    pub(crate) fn use_others(&self, folder: &StateFolder) {
        *self.bridge.borrow_mut() = WindowBridge::Others(folder.clone());
    }

    pub(crate) fn use_own(&self, bridge: &Rc<ManagedBridge>) {
        *self.bridge.borrow_mut() = WindowBridge::Own(Rc::clone(bridge));
    }

    pub(crate) fn ask_stop(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) async fn stop_asked(&self) {
        // The sender is in `self`, so this can't fail.
        let _ = self.stop.subscribe().wait_for(|asked| *asked).await;
    }

    /// Sends public keys, those of the settings or these.
    pub(crate) async fn sync(&self, keys: Option<Vec<String>>) -> Result<Value> {
        let (bridge, folder) = match &*self.bridge.borrow() {
            WindowBridge::NotYet => (None, None),
            WindowBridge::Others(folder) => (None, Some(folder.clone())),
            WindowBridge::Own(bridge) => (Some(Rc::clone(bridge)), None),
        };
        let synced = match (bridge, folder) {
            (Some(bridge), _) => bridge.sync(keys.map(|keys| keys.join(","))).await?,
            // The bridge of another window sends what that window's settings say.
            (None, Some(_)) if keys.is_some() => {
                return Err(Error::failed("another window has the bridge of this remote")
                    .hint("choose the keys in that window"));
            }
            (None, Some(folder)) => control::sync(&folder).await?,
            (None, None) => return Err(Error::failed("the bridge of this window isn't up yet")),
        };
        Ok(json!(synced))
    }
}
