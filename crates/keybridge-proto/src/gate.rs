//! The gate: what a target may ask of the host's agents.
//!
//! Every request of a target passes it before it is sent, whatever a session believes about
//! inquiries. It is an allow-list: a request that isn't known is refused.
//!
//! | lane | what passes |
//! |---|---|
//! | gpg | [`GpgGate`]: the lines of one table, with the keys that are lent, for what they are lent |
//! | ssh | listing, signing and two extensions; more if the policy allows changes |

mod gpg;
mod lent;
mod table;

use crate::ssh;
pub use gpg::{GpgGate, GpgVerdict};
pub use lent::{KeyGrip, LentKeys, Rights, Use};

/// Which of gpg-agent's sockets a session leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentSocket {
    /// The restricted one, which is made for being forwarded. Proven at every dial.
    #[default]
    Extra,
    /// The unrestricted one, only when the user asked for it by name. The gate is the only
    /// restriction then.
    Main,
}

/// What the user allows a target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The socket that gpg requests go to.
    pub socket: AgentSocket,
    /// Let the target choose the text of a dialog on the host and read what is typed there. On the
    /// main socket it has no effect: there the agent would also give out what it has cached.
    pub allow_get_passphrase: bool,
    /// Answer `KEYINFO` from `HAVEKEY` where an older agent forbids it.
    pub heal: bool,
    /// Let the target add, remove, lock and unlock keys of the host's ssh-agent.
    pub allow_ssh_changes: bool,
}

/// What becomes of a request of the ssh lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on, byte for byte.
    Allow,
    /// It gets the agent's own kind of refusal and goes no further.
    Deny,
}

/// Decides on one request of the ssh lane.
pub fn decide_ssh(policy: &Policy, request: &ssh::Request<'_>) -> Verdict {
    use ssh::Request as R;
    let changes_nothing = match request {
        R::RequestIdentities | R::SignRequest { .. } => true,
        R::Extension { name } => HARMLESS_EXTENSIONS.contains(name),
        // What isn't known may change the agent too, as the requests of the protocol's version 1 did.
        R::Unknown(_)
        | R::AddIdentity
        | R::AddIdConstrained
        | R::RemoveIdentity { .. }
        | R::RemoveAllIdentities
        | R::AddSmartcardKey
        | R::AddSmartcardKeyConstrained
        | R::RemoveSmartcardKey
        | R::Lock
        | R::Unlock => false,
    };
    if changes_nothing || policy.allow_ssh_changes { Verdict::Allow } else { Verdict::Deny }
}

/// Extensions that change nothing beyond their own connection. Any other may: by one of them
/// gpg-agent takes the environment of its pinentry.
const HARMLESS_EXTENSIONS: [&[u8]; 2] = [ssh::Request::SESSION_BIND, ssh::Request::QUERY];

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Allow, Deny};

    #[test]
    fn an_ssh_agent_is_asked_and_not_changed() {
        use ssh::{Kind, Purpose, Request as R};
        let table = [
            (Allow, R::RequestIdentities),
            (Allow, R::SignRequest { key: b"k", purpose: Purpose::Login }),
            (Allow, R::SignRequest { key: b"k", purpose: Purpose::Message { namespace: b"git" } }),
            (Allow, R::Extension { name: b"session-bind@openssh.com" }),
            (Allow, R::Extension { name: b"query" }),
            (Deny, R::Extension { name: b"ssh-env@gnupg.org" }),
            (Deny, R::Extension { name: b"Query" }),
            (Deny, R::Extension { name: b"query\0" }),
            (Deny, R::Extension { name: b"" }),
            (Deny, R::AddIdentity),
            (Deny, R::AddIdConstrained),
            (Deny, R::RemoveIdentity { key: b"k" }),
            (Deny, R::RemoveAllIdentities),
            (Deny, R::AddSmartcardKey),
            (Deny, R::AddSmartcardKeyConstrained),
            (Deny, R::RemoveSmartcardKey),
            (Deny, R::Lock),
            (Deny, R::Unlock),
            (Deny, R::Unknown(Kind(9))),
        ];
        for (verdict, request) in table {
            assert_eq!(decide_ssh(&Policy::default(), &request), verdict, "{request:?}");
            let policy = Policy { allow_ssh_changes: true, ..Policy::default() };
            assert_eq!(decide_ssh(&policy, &request), Allow, "{request:?}");
        }
    }
}
