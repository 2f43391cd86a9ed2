//! The gate of the gpg lane: one for each session, in front of either of gpg-agent's sockets.
//!
//! A line has to be in [`TABLE`], and the key that it uses has to be lent. gpg-agent's own
//! restriction is the second line of defence: it depends on one flag of one connection, and it
//! ignores what a key is for.
//!
//! `SIGKEY` and `SETKEY` are one command that only chooses a key. The decision is made at `PKSIGN`
//! and `PKDECRYPT`, for the keys that are chosen then.

use std::sync::Arc;

use super::allowed_lines::{self, Rule};
use super::{AgentSocket, CallerSlot, KeyGrip, LentKeys, Policy, Rights, Use};
use crate::assuan::{Command, Reply, RequestLine};

/// What happens to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpgVerdict {
    /// It is forwarded, byte for byte.
    Forward,
    /// It is answered in the agent's place.
    Answer(Reply),
    /// It is answered with the keygrips of the lent keys, or with an error if there are more than the
    /// limit.
    ListKeys {
        /// How many the client accepts.
        limit: usize,
    },
    /// It is dropped: it has no answer and no effect.
    Skip,
}

/// Decides on the lines of one session.
#[derive(Debug)]
pub struct GpgGate {
    policy: Policy,
    lent: Arc<LentKeys>,
    caller: CallerSlot,
    key: InForce,
    /// The second key of a composite one (`SETKEY --another`).
    another: InForce,
    /// `SETHASH --inquire` has set data instead of a hash: from then on only X.509 keys may sign.
    has_raw_data: bool,
    /// What the forwarded line changes if the agent accepts it.
    pending: Option<Change>,
}

/// The key that the agent would use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InForce {
    None,
    /// A key, with its rights if it is lent.
    Key(Option<Rights>),
    /// The agent refused a change, so it may or may not still use the key before it.
    Unsure,
}

/// What a line changes once the agent has accepted it.
#[derive(Debug, Clone, Copy)]
enum Change {
    Choose(Slot, Rights),
    Reset,
}

/// Which of the two keys a line chooses.
#[derive(Debug, Clone, Copy)]
enum Slot {
    Key,
    Another,
}

const FORBIDDEN: GpgVerdict = GpgVerdict::Answer(Reply::Forbidden);
const NO_SECRET_KEY: GpgVerdict = GpgVerdict::Answer(Reply::NoSecretKey);

impl GpgGate {
    /// The gate of a new session, which keeps this set of keys until it ends.
    pub fn new(policy: Policy, lent: Arc<LentKeys>) -> Self {
        Self {
            policy,
            lent,
            caller: CallerSlot::default(),
            key: InForce::None,
            another: InForce::None,
            has_raw_data: false,
            pending: None,
        }
    }

    /// What the user allows.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// These keys may be used from now on. No key is in force yet.
    pub fn lend(&mut self, lent: Arc<LentKeys>) {
        self.lent = lent;
    }

    /// The keys that may be used.
    pub fn lent(&self) -> &LentKeys {
        &self.lent
    }

    /// Sets who asks.
    pub fn asked_by(&mut self, caller: CallerSlot) {
        self.caller = caller;
    }

    /// Decides on a line outside an inquiry. After a line that is forwarded, [`Self::answered`] has to be
    /// called before the next one.
    pub fn judge(&mut self, line: &RequestLine<'_>) -> GpgVerdict {
        let verdict = match line {
            RequestLine::Blank | RequestLine::Comment => GpgVerdict::Skip,
            RequestLine::Data => FORBIDDEN,
            RequestLine::Command(command) => match allowed_lines::find(command) {
                Some(rule) => self.apply(rule, command),
                None => FORBIDDEN,
            },
        };
        if verdict == FORBIDDEN {
            tracing::debug!(caller = %self.caller, "the gate refuses a line");
        }
        verdict
    }

    /// Decides on a line inside an inquiry. Only data and its end are allowed: anything else would
    /// end the inquiry, and the agent would run the lines after it as commands.
    pub fn judge_in_inquiry(line: &RequestLine<'_>) -> GpgVerdict {
        match line {
            RequestLine::Blank | RequestLine::Comment => GpgVerdict::Skip,
            RequestLine::Data => GpgVerdict::Forward,
            RequestLine::Command(command) if allowed_lines::ends_inquiry(command) => {
                GpgVerdict::Forward
            }
            RequestLine::Command(_) => FORBIDDEN,
        }
    }

    /// The agent answered the line that was forwarded last.
    pub fn answered(&mut self, ok: bool) {
        match self.pending.take() {
            None => {}
            Some(Change::Choose(slot, rights)) if ok => self.put(slot, InForce::Key(Some(rights))),
            Some(Change::Choose(slot, _)) => self.put(slot, InForce::Unsure),
            Some(Change::Reset) if ok => (self.key, self.another) = (InForce::None, InForce::None),
            Some(Change::Reset) => (self.key, self.another) = (InForce::Unsure, InForce::Unsure),
        }
    }

    fn apply(&mut self, rule: Rule, command: &Command<'_>) -> GpgVerdict {
        match rule {
            Rule::Forward => GpgVerdict::Forward,
            Rule::Affirm => GpgVerdict::Answer(Reply::Ok),
            Rule::Reset => self.change(Change::Reset),
            Rule::Key => self.choose(command, Slot::Key),
            Rule::AnotherKey => self.choose(command, Slot::Another),
            Rule::RawData if self.may(|key| key.sign >= Use::X509) => {
                self.has_raw_data = true;
                GpgVerdict::Forward
            }
            Rule::RawData => FORBIDDEN,
            Rule::Sign => {
                let needed = if self.has_raw_data { Use::X509 } else { Use::OpenPgp };
                self.operate(|key| key.sign >= needed)
            }
            Rule::Decrypt => self.operate(|key| key.decrypt >= Use::OpenPgp),
            Rule::DecryptX509 => self.operate(|key| key.decrypt >= Use::X509),
            Rule::AnyLent => {
                let mut keygrips = command.words().filter_map(KeyGrip::parse);
                if keygrips.any(|keygrip| self.lent.find(keygrip).is_some()) {
                    GpgVerdict::Answer(Reply::Ok)
                } else {
                    NO_SECRET_KEY
                }
            }
            Rule::ListLent => GpgVerdict::ListKeys { limit: allowed_lines::list_limit(command) },
            Rule::OnlyLent if self.named(command).is_some() => GpgVerdict::Forward,
            Rule::OnlyLent => GpgVerdict::Answer(Reply::NotFound),
            Rule::Dialog => match self.policy.socket {
                AgentSocket::Extra if self.policy.allow_get_passphrase => GpgVerdict::Forward,
                AgentSocket::Extra | AgentSocket::Main => FORBIDDEN,
            },
        }
    }

    /// A key that isn't lent is chosen only here: its keygrip is never sent to the agent.
    fn choose(&mut self, command: &Command<'_>, slot: Slot) -> GpgVerdict {
        if let Some(rights) = self.named(command) {
            return self.change(Change::Choose(slot, rights));
        }
        self.put(slot, InForce::Key(None));
        GpgVerdict::Answer(Reply::Ok)
    }

    const fn put(&mut self, slot: Slot, key: InForce) {
        match slot {
            Slot::Key => self.key = key,
            Slot::Another => self.another = key,
        }
    }

    fn change(&mut self, change: Change) -> GpgVerdict {
        self.pending = Some(change);
        GpgVerdict::Forward
    }

    /// The rights of the key that a command names last.
    fn named(&self, command: &Command<'_>) -> Option<Rights> {
        command.words().last().and_then(KeyGrip::parse).and_then(|grip| self.lent.find(grip))
    }

    /// An operation with the keys in force.
    fn operate(&self, may: impl Fn(Rights) -> bool) -> GpgVerdict {
        let is_unknown = matches!(self.key, InForce::None | InForce::Key(None));
        if is_unknown || self.another == InForce::Key(None) {
            NO_SECRET_KEY
        } else if self.may(may) {
            GpgVerdict::Forward
        } else {
            FORBIDDEN
        }
    }

    /// Whether a key is chosen, and every chosen key may.
    fn may(&self, may: impl Fn(Rights) -> bool) -> bool {
        let first = match self.key {
            InForce::Key(Some(rights)) => may(rights),
            InForce::None | InForce::Key(None) | InForce::Unsure => false,
        };
        let second = match self.another {
            InForce::None => true,
            InForce::Key(Some(rights)) => may(rights),
            InForce::Key(None) | InForce::Unsure => false,
        };
        first && second
    }
}

#[cfg(test)]
mod tests;
