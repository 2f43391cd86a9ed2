//! The gate of the gpg lane: one for each session, in front of either of gpg-agent's sockets.
//!
//! A line has to be in [`TABLE`], and the key that it uses has to be lent. gpg-agent's own
//! restriction is the second line of defence: it depends on one flag of one connection, and it
//! ignores what a key is for.
//!
//! `SIGKEY` and `SETKEY` are one command that only chooses a key. The decision is made at `PKSIGN`
//! and `PKDECRYPT`, for the keys that are chosen then.

use std::sync::Arc;

use super::allowed_lines::{self, KeyOperation, Rule};
use super::{AgentSocket, KeyGrip, LentKeys, Policy, Rights, Use, describe_key};
use crate::assuan::{Command, Reply, RequestLine};

/// What happens to a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GpgVerdict {
    /// It is forwarded, byte for byte.
    Forward,
    /// It is forwarded as `GpgGate::describe` makes it.
    Describe,
    /// It is forwarded, byte for byte, when its turn comes: it uses the keys that are chosen.
    Operate,
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
    key: InForce,
    /// The second key of a composite one (`SETKEY --another`).
    another: InForce,
    /// `SETHASH --inquire` has set data instead of a hash: from then on only X.509 keys may sign.
    has_raw_data: bool,
    /// The key that was named last to be used, if it isn't lent.
    unlent: Option<KeyGrip>,
    /// The agent has a text for the next dialog.
    is_described: bool,
    /// What the forwarded line changes if the agent accepts it.
    pending: Option<Change>,
}

/// The key that the agent would use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InForce {
    None,
    /// A key; `None` for one that wasn't lent, which the agent was never told.
    Key(Option<KeyGrip>),
    /// The agent refused a change, so it may or may not still use the key before it.
    Unsure,
}

/// What a line changes once the agent has accepted it.
#[derive(Debug, Clone, Copy)]
enum Change {
    Choose(Slot, KeyGrip),
    Describe,
    Operate,
    Reset,
}

/// Which of the two keys a line chooses.
#[derive(Debug, Clone, Copy)]
enum Slot {
    Key,
    Another,
}

pub(super) const FORBIDDEN: GpgVerdict = GpgVerdict::Answer(Reply::Forbidden);
pub(super) const NO_SECRET_KEY: GpgVerdict = GpgVerdict::Answer(Reply::NoSecretKey);

impl GpgGate {
    /// The gate of a new session, which lends these keys until it is told of others.
    pub fn new(policy: Policy, lent: Arc<LentKeys>) -> Self {
        Self {
            policy,
            lent,
            key: InForce::None,
            another: InForce::None,
            has_raw_data: false,
            unlent: None,
            is_described: false,
            pending: None,
        }
    }

    /// What the user allows.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// These keys may be used from now on. That counts for those that are chosen already, too.
    pub fn lend(&mut self, lent: Arc<LentKeys>) {
        self.lent = lent;
    }

    /// The keys that may be used.
    pub fn lent(&self) -> &LentKeys {
        &self.lent
    }

    /// The keys that an operation would use.
    pub(crate) fn keys_in_force(&self) -> [Option<KeyGrip>; 2] {
        [self.key, self.another].map(|key| match key {
            InForce::Key(key) => key,
            InForce::None | InForce::Unsure => None,
        })
    }

    /// The key that a refused operation was meant for, if one was named.
    pub(crate) fn refused_key(&self) -> Option<KeyGrip> {
        self.unlent.or(self.keys_in_force()[0])
    }

    /// The operation with the chosen keys that a line asks for, if it does. `judge_operation`
    /// decides on it, for the keys that are lent when it begins.
    pub fn operation(line: &RequestLine<'_>) -> Option<KeyOperation> {
        match allowed_lines::find(&line.command()?)? {
            Rule::Operate(operation) => Some(operation),
            _ => None,
        }
    }

    /// Decides on an operation with the chosen keys.
    pub(crate) fn judge_operation(&self, operation: KeyOperation) -> GpgVerdict {
        match operation {
            KeyOperation::Sign => {
                let needed = if self.has_raw_data { Use::X509 } else { Use::OpenPgp };
                self.operate(|key| key.sign >= needed)
            }
            KeyOperation::Decrypt => self.operate(|key| key.decrypt >= Use::OpenPgp),
            KeyOperation::DecryptX509 => self.operate(|key| key.decrypt >= Use::X509),
        }
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
            tracing::debug!("the gate refuses a line");
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
            Some(Change::Choose(slot, key)) if ok => self.put(slot, InForce::Key(Some(key))),
            Some(Change::Choose(slot, _)) => self.put(slot, InForce::Unsure),
            Some(Change::Describe) => self.is_described = ok,
            Some(Change::Operate) => self.is_described = false,
            Some(Change::Reset) => {
                let key = if ok { InForce::None } else { InForce::Unsure };
                (self.key, self.another, self.is_described) = (key, key, false);
            }
        }
    }

    /// Whether the dialog of an operation says that it comes from a remote site. gpg-agent says so in the
    /// text that a client describes a key with, and forgets that text after one operation.
    pub(crate) const fn is_described(&self) -> bool {
        self.is_described
    }

    /// The line that describes a key with this text. [`Self::answered`] has to be called before the next one.
    pub(crate) fn describe(&mut self, text: &[u8]) -> Vec<u8> {
        self.pending = Some(Change::Describe);
        describe_key(text, self.policy.socket)
    }

    /// The operation that was allowed is forwarded.
    pub(crate) fn operation_begins(&mut self) {
        self.pending = Some(Change::Operate);
    }

    fn apply(&mut self, rule: Rule, command: &Command<'_>) -> GpgVerdict {
        match rule {
            Rule::Forward => GpgVerdict::Forward,
            Rule::Describe => GpgVerdict::Describe,
            Rule::Affirm => GpgVerdict::Answer(Reply::Ok),
            Rule::Reset => {
                self.unlent = None;
                self.change(Change::Reset)
            }
            Rule::Key => self.choose(command, Slot::Key),
            Rule::AnotherKey => self.choose(command, Slot::Another),
            Rule::RawData if self.may(|key| key.sign >= Use::X509) => {
                self.has_raw_data = true;
                GpgVerdict::Forward
            }
            Rule::RawData => FORBIDDEN,
            Rule::Operate(operation) => self.judge_operation(operation),
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
        if let Some(keygrip) = self.named(command) {
            self.unlent = None;
            return self.change(Change::Choose(slot, keygrip));
        }
        self.unlent = command.words().last().and_then(KeyGrip::parse);
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

    /// The key that a command names last, if it is lent.
    fn named(&self, command: &Command<'_>) -> Option<KeyGrip> {
        let keygrip = command.words().last().and_then(KeyGrip::parse)?;
        self.lent.find(keygrip).map(|_| keygrip)
    }

    /// An operation with the keys in force, if they are still lent.
    fn operate(&self, may: impl Fn(Rights) -> bool) -> GpgVerdict {
        let is_lent = |key| match key {
            InForce::None | InForce::Unsure => true,
            InForce::Key(keygrip) => keygrip.is_some_and(|grip| self.lent.find(grip).is_some()),
        };
        if self.key == InForce::None || !is_lent(self.key) || !is_lent(self.another) {
            NO_SECRET_KEY
        } else if self.may(may) {
            GpgVerdict::Operate
        } else {
            FORBIDDEN
        }
    }

    /// Whether a key is chosen, and every chosen key may now.
    fn may(&self, may: impl Fn(Rights) -> bool) -> bool {
        let may_key = |keygrip: Option<KeyGrip>| {
            keygrip.and_then(|keygrip| self.lent.find(keygrip)).is_some_and(&may)
        };
        let first = match self.key {
            InForce::Key(keygrip) => may_key(keygrip),
            InForce::None | InForce::Unsure => false,
        };
        let second = match self.another {
            InForce::None => true,
            InForce::Key(keygrip) => may_key(keygrip),
            InForce::Unsure => false,
        };
        first && second
    }
}
