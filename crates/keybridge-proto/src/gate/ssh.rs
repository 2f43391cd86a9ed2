//! What a target may ask of the host's ssh-agent.
//!
//! | request | allowed |
//! |---|---|
//! | list | always; the answer has only the lent keys |
//! | sign | with a lent key, a login or a message as it is lent; what is neither, if both are |
//! | `session-bind@openssh.com` | if it is proven; else no signature follows |
//! | `query` | always |
//! | add a plain key | with changes allowed, unless keys are lent by their comments |
//! | remove a key | with changes allowed, if it is lent |
//! | remove all keys | with changes allowed, if all are lent |
//! | lock, unlock | with changes allowed |
//! | anything else | never |

use super::{Policy, Verdict};
use crate::ssh::{AddedKey, Purpose, Request};
use crate::{Operation, OperationSet};

/// Decides on one request of the ssh lane.
pub fn decide(policy: &Policy, uses: OperationSet, request: &Request<'_>) -> Verdict {
    let Policy { allow_ssh_changes: may_change, ssh_keys: keys, .. } = policy;
    let is_allowed = match request {
        Request::SignRequest { key, purpose } => {
            let is_lent = match purpose {
                Purpose::Login(_) => uses.has(Operation::Login),
                Purpose::Message { .. } => uses.has(Operation::Sshsig),
                Purpose::Other => uses.has(Operation::Login) && uses.has(Operation::Sshsig),
            };
            is_lent && keys.lends(key)
        }
        // The session verifies binds.
        Request::RequestIdentities | Request::SessionBind { .. } => true,
        // Others than this one can change things: one sets the environment of gpg-agent's pinentry.
        Request::Extension { name } => *name == Request::QUERY,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ssh::{Fingerprint, KeySelection, Login, MessageType};
    use AddedKey::{Other, Plain};
    use Request as R;
    use Verdict::{Allow, Deny};

    fn verdict(policy: &Policy, request: Request<'_>) -> Verdict {
        decide(policy, OperationSet::default(), &request)
    }

    fn sign(key: &[u8]) -> Request<'_> {
        let login = Login { session_id: b"s", user: b"git", host_key: None };
        R::SignRequest { key, purpose: Purpose::Login(login) }
    }

    #[test]
    fn an_agent_is_changed_only_by_the_users_word_and_loads_nothing_even_then() {
        let message = Purpose::Message { namespace: b"git" };
        let table = [
            (Allow, Allow, R::RequestIdentities),
            (Allow, Allow, sign(b"k")),
            (Allow, Allow, R::SignRequest { key: b"k", purpose: message }),
            (Allow, Allow, R::SessionBind { body: b"" }),
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

    #[test]
    fn what_is_signed_is_what_is_lent() {
        let message = || R::SignRequest { key: b"k", purpose: Purpose::Message { namespace: b"" } };
        let other = || R::SignRequest { key: b"k", purpose: Purpose::Other };
        for (words, logs_in, signs, does_both) in [
            (&["login", "sshsig"][..], Allow, Allow, Allow),
            (&["login", "decrypt"], Allow, Deny, Deny),
            (&["sshsig"], Deny, Allow, Deny),
            (&["commit", "tag", "sign"], Deny, Deny, Deny),
        ] {
            let uses: OperationSet =
                words.iter().map(|word| word.parse::<Operation>().unwrap()).collect();
            let decide = |request: Request<'_>| decide(&Policy::default(), uses, &request);
            assert_eq!(decide(sign(b"k")), logs_in, "{words:?}");
            assert_eq!(decide(message()), signs, "{words:?}");
            assert_eq!(decide(other()), does_both, "{words:?}");
            assert_eq!(decide(R::RequestIdentities), Allow, "{words:?}");
        }
    }
}
