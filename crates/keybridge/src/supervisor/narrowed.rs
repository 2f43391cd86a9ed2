//! What narrows that which a bridge lends, for people and for programs.

use keybridge_proto::permission::Limit;
use keybridge_proto::{Operation, OperationSet, printable};
use serde::{Deserialize, Serialize};

use crate::config::Narrowing;
use crate::known_hosts::KnownLogins;

/// The settings that narrow what is lent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Narrowed {
    /// What a person has to say yes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    ask: Option<OperationSet>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    committers: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    logins: Option<Vec<String>>,
    /// The hosts of these logins of which no key is known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    unknown_hosts: Vec<String>,
}

impl Narrowed {
    pub(super) fn new(narrowing: &Narrowing, known: &KnownLogins) -> Self {
        let Narrowing { ask, limit, committers, logins } = narrowing;
        let login = |(user, host): &(String, String)| format!("{user}@{host}");
        Self {
            ask: Some(*ask).filter(|ask| !ask.is_empty()),
            limit: limit.map(|limit| limit.to_string()),
            committers: committers.clone(),
            logins: logins.as_ref().map(|logins| logins.iter().map(login).collect()),
            unknown_hosts: known.unknown.clone(),
        }
    }

    /// What people are told of an operation.
    pub(super) fn word(&self, operation: Operation) -> String {
        let is_asked = self.ask.is_some_and(|ask| ask.has(operation));
        if is_asked { format!("{operation} after a question") } else { operation.to_string() }
    }

    /// What narrows these operations, after what is lent.
    pub(super) fn describe(&self, lent: OperationSet) -> String {
        let mut text = String::new();
        let limit = self.limit.as_ref().and_then(|limit| limit.parse::<Limit>().ok());
        if let Some(limit) = limit.filter(|_| !lent.is_empty()) {
            text = format!("; {} for each key", limit.words());
        }
        let signs_git = lent.has(Operation::Commit) || lent.has(Operation::Tag);
        let by = self
            .committers
            .as_ref()
            .filter(|_| signs_git)
            .map(|list| ("commits and tags by", list));
        let to = self.logins.as_ref().filter(|_| lent.has(Operation::Login));
        for (what, list) in by.into_iter().chain(to.map(|list| ("logins", list))) {
            let list = list.join(", ");
            text = format!("{text}; {what} {} alone", printable(&list));
        }
        text
    }

    /// What people may not expect: logins that are refused though they are allowed, and rules for commits that
    /// don't count for a hash.
    pub(super) fn warnings(&self, uses: OperationSet) -> Vec<String> {
        let hosts = self.unknown_hosts.iter().filter(|_| uses.has(Operation::Login));
        let warning = |host: &String| {
            format!(
                "your known_hosts has no key of {}, so logins to it are refused; log in to it with ssh \
                 once, then run keybridge up again",
                printable(host)
            )
        };
        hosts.map(warning).chain(self.way_around(uses)).collect()
    }

    /// A hash and a file can be those of a commit, of which the host then knows nothing.
    fn way_around(&self, uses: OperationSet) -> Option<String> {
        let of_git = [Operation::Commit, Operation::Tag];
        let ask = self.ask.unwrap_or(OperationSet::NONE);
        let is_narrowed = |one: &Operation| self.committers.is_some() || ask.has(*one);
        if !of_git.iter().any(|one| uses.has(*one) && is_narrowed(one)) {
            return None;
        }
        let blind = [Operation::Sign, Operation::Certify, Operation::Sshsig];
        let blind: OperationSet =
            blind.into_iter().filter(|one| uses.has(*one) && !ask.has(*one)).collect();
        (!blind.is_empty()).then(|| {
            format!(
                "{blind} can sign a commit or a tag without a look at it, as a hash: to have the rules for \
                 those count always, lend no more than you need, such as --uses commit,tag"
            )
        })
    }

    /// A warning of a question that is never asked.
    pub(super) fn asked_in_vain(&self, uses: OperationSet) -> Option<String> {
        let unlent = self.ask?.without(uses);
        (!unlent.is_empty())
            .then(|| format!("ask {unlent}: refused without a question, since uses is {uses}"))
    }

    /// The options that set the same.
    pub(crate) fn options(&self) -> Vec<String> {
        let ask = self.ask.map(|ask| ask.to_string());
        let list = |list: &Option<Vec<String>>| list.as_ref().map(|words| words.join(","));
        let named = [
            ("--ask", ask),
            ("--limit", self.limit.clone()),
            ("--committers", list(&self.committers)),
            ("--logins", list(&self.logins)),
        ];
        let named = named.into_iter().filter_map(|(name, value)| Some((name, value?)));
        named.flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_around_the_rules_for_commits_is_told() {
        let set = |words: &[Operation]| words.iter().copied().collect::<OperationSet>();
        let asks = Narrowed { ask: Some(set(&[Operation::Commit])), ..Narrowed::default() };
        let told = asks.warnings(OperationSet::default());
        assert!(told[0].starts_with("sign,sshsig can sign a commit"), "{told:?}");
        assert!(asks.warnings(set(&[Operation::Commit, Operation::Login])).is_empty());
        assert!(asks.warnings(set(&[Operation::Tag, Operation::Sign])).is_empty());
        let all = Narrowed { ask: Some(OperationSet::default()), ..Narrowed::default() };
        assert!(all.warnings(OperationSet::default()).is_empty());
        let committers = Some(vec!["*@example.org".to_owned()]);
        let by = Narrowed { committers, ..Narrowed::default() };
        assert_eq!(by.warnings(set(&[Operation::Tag, Operation::Sign])).len(), 1);
    }
}
