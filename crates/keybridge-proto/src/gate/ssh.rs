//! What a target may ask of the host's ssh-agent.
//!
//! | request | allowed |
//! |---|---|
//! | list | always; the answer has only the lent keys |
//! | sign | with a lent key |
//! | `session-bind@openssh.com`, `query` | always |
//! | add a plain key | with changes allowed, unless keys are lent by their comments |
//! | remove a key | with changes allowed, if it is lent |
//! | remove all keys | with changes allowed, if all are lent |
//! | lock, unlock | with changes allowed |
//! | anything else | never |

use super::{Policy, Verdict};
use crate::ssh::{AddedKey, Request};

/// Decides on one request of the ssh lane.
pub fn decide(policy: &Policy, request: &Request<'_>) -> Verdict {
    let Policy { allow_ssh_changes: may_change, ssh_keys: keys, .. } = policy;
    let is_allowed = match request {
        Request::RequestIdentities => true,
        Request::SignRequest { key, .. } => keys.lends(key),
        Request::Extension { name } => HARMLESS_EXTENSIONS.contains(name),
        // A target that adds a key chooses its comment.
        Request::AddIdentity(AddedKey::Plain) | Request::AddIdConstrained(AddedKey::Plain) => {
            *may_change && !keys.has_comments()
        }
        Request::RemoveIdentity { key } => *may_change && keys.lends(key),
        Request::RemoveAllIdentities => *may_change && keys.is_all(),
        Request::Lock | Request::Unlock => *may_change,
        // These make the agent load a library, or could.
        Request::AddIdentity(AddedKey::Other)
        | Request::AddIdConstrained(AddedKey::Other)
        | Request::AddSmartcardKey
        | Request::AddSmartcardKeyConstrained
        | Request::RemoveSmartcardKey
        | Request::Unknown(_) => false,
    };
    if is_allowed { Verdict::Allow } else { Verdict::Deny }
}

/// Extensions that change nothing outside their own connection. Others can: one of them sets the
/// environment of gpg-agent's pinentry.
const HARMLESS_EXTENSIONS: [&[u8]; 2] = [Request::SESSION_BIND, Request::QUERY];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::{Fingerprint, KeySelection, MessageType, Purpose};
    use AddedKey::{Other, Plain};
    use Request as R;
    use Verdict::{Allow, Deny};

    fn verdict(policy: &Policy, request: Request<'_>) -> Verdict {
        decide(policy, &request)
    }

    fn sign(key: &[u8]) -> Request<'_> {
        R::SignRequest { key, purpose: Purpose::Login }
    }

    #[test]
    fn an_agent_is_changed_only_by_the_users_word_and_loads_nothing_even_then() {
        let message = Purpose::Message { namespace: b"git" };
        let table = [
            (Allow, Allow, R::RequestIdentities),
            (Allow, Allow, sign(b"k")),
            (Allow, Allow, R::SignRequest { key: b"k", purpose: message }),
            (Allow, Allow, R::Extension { name: b"session-bind@openssh.com" }),
            (Allow, Allow, R::Extension { name: b"query" }),
            (Deny, Deny, R::Extension { name: b"ssh-env@gnupg.org" }),
            (Deny, Deny, R::Extension { name: b"Query" }),
            (Deny, Deny, R::Extension { name: b"query\0" }),
            (Deny, Deny, R::Extension { name: b"" }),
            (Deny, Allow, R::AddIdentity(Plain)),
            (Deny, Allow, R::AddIdConstrained(Plain)),
            (Deny, Deny, R::AddIdentity(Other)),
            (Deny, Deny, R::AddIdConstrained(Other)),
            (Deny, Allow, R::RemoveIdentity { key: b"k" }),
            (Deny, Allow, R::RemoveAllIdentities),
            (Deny, Deny, R::AddSmartcardKey),
            (Deny, Deny, R::AddSmartcardKeyConstrained),
            (Deny, Deny, R::RemoveSmartcardKey),
            (Deny, Allow, R::Lock),
            (Deny, Allow, R::Unlock),
            (Deny, Deny, R::Unknown(MessageType(9))),
        ];
        let changes = Policy { allow_ssh_changes: true, ..Policy::default() };
        for (by_default, with_changes, request) in table {
            assert_eq!(verdict(&Policy::default(), request), by_default, "{request:?}");
            assert_eq!(verdict(&changes, request), with_changes, "{request:?}");
        }
    }

    #[test]
    fn only_lent_keys_are_used_and_removed() {
        let lent = Fingerprint::of(b"lent").unwrap().to_string();
        let policy = |allow_ssh_changes, words: &[&str]| Policy {
            allow_ssh_changes,
            ssh_keys: KeySelection::of_words(words.iter().copied()).unwrap(),
            ..Policy::default()
        };
        let (by_print, by_comment) = (policy(true, &[&lent]), policy(true, &[&lent, "*"]));
        for policy in [&by_print, &by_comment, &policy(false, &[&lent])] {
            assert_eq!(verdict(policy, sign(b"lent")), Allow);
            assert_eq!(verdict(policy, sign(b"other")), Deny);
            assert_eq!(verdict(policy, R::RequestIdentities), Allow);
            assert_eq!(verdict(policy, R::RemoveIdentity { key: b"other" }), Deny);
            assert_eq!(verdict(policy, R::RemoveAllIdentities), Deny);
        }
        for policy in [&by_print, &by_comment] {
            assert_eq!(verdict(policy, R::RemoveIdentity { key: b"lent" }), Allow);
            assert_eq!(verdict(policy, R::Lock), Allow);
        }
        for request in [R::AddIdentity(Plain), R::AddIdConstrained(Plain)] {
            assert_eq!(verdict(&by_print, request), Allow);
            assert_eq!(verdict(&by_comment, request), Deny, "a target would choose the comment");
        }
    }
}
