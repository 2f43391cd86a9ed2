//! The command interface, by which an editor drives the agent side with calls.
//!
//! A session is one connection to the agent, for its whole life. A call sends it a block of lines and
//! returns the agent's answers to all of them. Every line passes the gate, like those of a target.

mod budget;
mod caller;
mod error;
mod latin1;
pub(crate) mod lines;
pub mod rpc;
mod session;
mod version;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use keybridge_proto::gate::Policy;
use keybridge_proto::mux::DEFAULT_MAX_STREAMS;
use keybridge_proto::permission::Rules;
use keybridge_proto::session::{AgentSession, Limits, Operations, Recorder};
use tokio::sync::{Mutex, OwnedMutexGuard};
use uuid::Uuid;

use crate::agent::GpgAgent;
use crate::gnupg::Gnupg;
use crate::keys::{self, Form, KeyFilter, KeyInfo};
use budget::{Budget, Response};
pub use error::CallError;
use session::Session;
pub use version::VersionCheck;

/// The largest response. All sessions together hold at most two of this size, beside small ones.
pub const MAX_RESPONSE: usize = 16 * 1024 * 1024;

/// The sessions of one caller. Dropping it ends all of them.
#[derive(Debug)]
pub struct CommandInterface {
    gnupg: Gnupg,
    agent: GpgAgent,
    settings: Settings,
    budget: Budget,
    /// Locked during an export, so that only one is in memory.
    exports: Arc<Mutex<()>>,
    sessions: Rc<RefCell<HashMap<Uuid, Rc<Session>>>>,
    /// The private-key operations of all sessions.
    operations: Operations,
}

/// The settings of a command interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What callers may ask for.
    pub policy: Policy,
    /// The time limits of a session.
    pub limits: Limits,
    /// How many sessions can be open at once.
    pub max_sessions: usize,
    /// The public keys that callers may export.
    pub keys: KeyFilter,
    /// What is lent of that, and what a person is asked for.
    pub rules: Rules,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            limits: Limits::default(),
            max_sessions: DEFAULT_MAX_STREAMS,
            keys: KeyFilter::default(),
            rules: Rules::default(),
        }
    }
}

/// A new session.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Connected {
    /// Its id, for later calls.
    pub session_id: Uuid,
    /// The agent's first line, with its line end.
    pub greeting: String,
}

/// Public keys as text.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct ExportedKeys {
    /// The keys in armour; empty if there are none.
    pub armored: String,
    /// The keys in it.
    pub keys: Vec<KeyInfo>,
    /// What was asked for and doesn't exist.
    pub warnings: Vec<String>,
}

impl CommandInterface {
    /// An interface without sessions.
    pub fn new(gnupg: Gnupg, agent: GpgAgent, settings: Settings) -> Self {
        let (budget, exports, sessions) = (Budget::new(), Arc::default(), Rc::default());
        let operations = Operations::default();
        operations.set_rules(settings.rules.clone());
        Self { gnupg, agent, settings, budget, exports, sessions, operations }
    }

    /// Has the operations of all sessions recorded; if that is required, nothing is done without.
    pub(crate) fn record_with(&self, recorder: Rc<dyn Recorder>, is_required: bool) {
        let rules = self.operations.rules();
        self.operations.set_rules(Rules { needs_record: is_required, ..rules });
        self.operations.record_with(recorder);
    }

    /// Connects to the agent, under the caller's id or a new one. Must be called where local tasks can be spawned.
    pub async fn connect_agent(&self, session_id: Option<&str>) -> Result<Connected, CallError> {
        let id = session_id.map_or_else(|| Ok(Uuid::new_v4()), parse_id)?;
        if self.sessions.borrow().contains_key(&id) {
            return Err(CallError::IdInUse(id));
        }
        let limit = self.settings.max_sessions;
        if self.sessions.borrow().len() >= limit {
            return Err(CallError::TooManySessions { limit });
        }
        let Settings { policy, limits, .. } = &self.settings;
        let machine = AgentSession::new(policy.clone(), Arc::default(), *limits)
            .sharing(self.operations.clone())
            .asking(self.agent.keyring.clone());
        let (session, greeted) = Session::new(id, self.budget.clone());
        self.sessions.borrow_mut().insert(id, Rc::clone(&session));
        let ending = Forget { id, sessions: Rc::downgrade(&self.sessions) };
        tokio::task::spawn_local(Rc::clone(&session).run(machine, self.agent.clone(), ending));
        let greeting = latin1::to_text(greeted.answer().await?.pieces());
        Ok(Connected { session_id: id, greeting })
    }

    /// Sends a session lines of the client and returns the agent's answers: up to an OK, an ERR or an
    /// INQUIRE for each command. Lines that only continue an inquiry get no answer.
    pub async fn send_commands(&self, session_id: &str, block: &str) -> Result<String, CallError> {
        let response = self.send_block(session_id, latin1::to_bytes(block)?).await?;
        Ok(latin1::to_text(response.pieces()))
    }

    /// The same for bytes. The response counts towards the budget of all sessions until it is dropped.
    async fn send_block(&self, session_id: &str, block: Vec<u8>) -> Result<Response, CallError> {
        let session = self.session(parse_id(session_id)?)?;
        session.call(block)?.answer().await
    }

    /// Ends a session, whatever it is doing. A call under way is rejected; gpg-agent then closes the dialog
    /// of that call.
    pub async fn disconnect_agent(&self, session_id: &str) -> Result<(), CallError> {
        let session = self.session(parse_id(session_id)?)?;
        session.disconnect().await;
        Ok(())
    }

    /// Waits for other exports to end.
    async fn export_turn(&self) -> OwnedMutexGuard<()> {
        Arc::clone(&self.exports).lock_owned().await
    }

    /// Exports public keys, as far as the settings allow.
    pub async fn export_public_keys(&self, filter: &KeyFilter) -> Result<ExportedKeys, CallError> {
        let allowed = &self.settings.keys;
        let found = keys::export_allowed(&self.gnupg, filter, allowed, Form::Armored).await?;
        let armored = latin1::to_text([found.export.as_slice()]);
        Ok(ExportedKeys { armored, keys: found.keys, warnings: found.warnings })
    }

    /// Whether a caller of this version is compatible with us.
    pub fn check_version(&self, version: &str) -> Result<VersionCheck, CallError> {
        version::check(version)
    }

    /// How many sessions are open.
    pub fn sessions(&self) -> usize {
        self.sessions.borrow().len()
    }

    fn session(&self, id: Uuid) -> Result<Rc<Session>, CallError> {
        self.sessions.borrow().get(&id).cloned().ok_or(CallError::UnknownId(id))
    }
}

impl Drop for CommandInterface {
    fn drop(&mut self) {
        for session in self.sessions.borrow().values() {
            session.hang_up();
        }
    }
}

/// Removes a session from the list when its task ends, however it ends.
#[derive(Debug)]
struct Forget {
    id: Uuid,
    sessions: std::rc::Weak<RefCell<HashMap<Uuid, Rc<Session>>>>,
}

impl Drop for Forget {
    fn drop(&mut self) {
        let Some(sessions) = self.sessions.upgrade() else { return };
        let removed = sessions.borrow_mut().remove(&self.id);
        if let Some(session) = removed {
            session.left();
        }
    }
}

fn parse_id(text: &str) -> Result<Uuid, CallError> {
    // The parser's other forms would be second names of the same session.
    Uuid::try_parse(text)
        .ok()
        .filter(|_| text.len() == uuid::fmt::Hyphenated::LENGTH)
        .ok_or_else(|| CallError::MalformedId { size: text.chars().count() })
}
