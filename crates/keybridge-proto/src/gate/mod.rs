//! The gate: what a target may ask of the host's agents.
//!
//! Every request of a target goes through it before it is sent, even inside an inquiry. It is an
//! allow-list: an unknown request is refused.
//!
//! | lane | what passes |
//! |---|---|
//! | gpg | [`GpgGate`]: the lines of one table, for lent keys and the purposes they are lent for |
//! | ssh | [`decide_ssh`]: listing and signing with lent keys, and two extensions; with changes allowed, also adding plain keys and locking |

mod allowed_lines;
mod gpg;
#[cfg(test)]
mod gpg_tests;
mod key_description;
mod lent;
mod ssh;

use crate::ssh::KeySelection;
pub use allowed_lines::KeyOperation;
pub use gpg::{GpgGate, GpgVerdict};
pub(crate) use key_description::describe_key;
pub use lent::{KeyGrip, KeySource, LentKeys, ReadingKeys, Rights, Use};
pub use ssh::decide as decide_ssh;

/// Which of gpg-agent's sockets a session leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentSocket {
    /// The restricted one, which is made for being forwarded. Every connection has to prove that it is.
    #[default]
    Extra,
    /// The unrestricted one, only when the user has asked for it by name. The gate is then the only
    /// restriction.
    Main,
}

/// What the user allows a target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The socket that gpg requests go to.
    pub socket: AgentSocket,
    /// Let the target choose the text of a dialog on the host and read what is typed there. On the
    /// main socket it has no effect: there the agent would also give out cached passphrases.
    pub allow_get_passphrase: bool,
    /// Answer `KEYINFO` from `HAVEKEY` where an older agent forbids it.
    pub heal: bool,
    /// Let the target add and remove plain keys of the host's ssh-agent, and lock and unlock it.
    pub allow_ssh_changes: bool,
    /// Which keys of the host's ssh-agent the target may see and use.
    pub ssh_keys: KeySelection,
}

/// What happens to a request of the ssh lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is forwarded, byte for byte.
    Allow,
    /// It is answered with a refusal, as the agent would.
    Deny,
}
