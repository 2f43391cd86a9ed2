//! The settings that narrow what is lent: questions, a limit, committers and logins.

use std::str::FromStr;

use keybridge_proto::permission::{Limit, LoginRule, Rules};
use keybridge_proto::{OperationSet, printable};

use super::{Options, usage};
use crate::Result;

/// What narrows what a target may have done, with every word checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Narrowing {
    /// What a person has to say yes to.
    pub(crate) ask: OperationSet,
    /// How often each key may be used without a question.
    pub(crate) limit: Option<Limit>,
    /// Whose commits and tags may be signed.
    pub(crate) committers: Option<Vec<String>>,
    /// Users and hosts, the hosts as `known_hosts` has them.
    pub(crate) logins: Option<Vec<(String, String)>>,
}

impl Narrowing {
    pub(super) fn new(options: &Options) -> Result<Self> {
        let ask = match words("ask", options.ask.as_deref(), NONE)? {
            Some(words) => {
                words.into_iter().map(|word| parse("ask", word)).collect::<Result<_>>()?
            }
            None => OperationSet::NONE,
        };
        let limit = options.limit.as_deref().map(str::trim).filter(|limit| *limit != NONE);
        let logins = words("logins", options.logins.as_deref(), ALL)?.map(|words| {
            words
                .into_iter()
                .map(|word| LoginRule::parse(word).map_err(|error| wrong("logins", word, error)))
                .collect::<Result<_>>()
        });
        let committers = words("committers", options.committers.as_deref(), ALL)?;
        Ok(Self {
            ask,
            limit: limit.map(|limit| parse("limit", limit)).transpose()?,
            committers: committers.map(|words| words.into_iter().map(str::to_owned).collect()),
            logins: logins.transpose()?,
        })
    }

    /// The rules of a bridge that lends `uses`, with the keys that the hosts of the logins have.
    pub(crate) fn rules(&self, uses: OperationSet, logins: &[LoginRule]) -> Rules {
        Rules {
            uses,
            ask: self.ask,
            limit: self.limit,
            committers: self.committers.clone(),
            logins: self.logins.as_ref().map(|_| logins.to_vec()),
            ..Rules::default()
        }
    }
}

/// The word that undoes a setting of a weaker layer, or of an earlier `up`.
const NONE: &str = "none";
const ALL: &str = "all";

/// The words of a list, none if it was undone.
fn words<'a>(name: &str, list: Option<&'a [String]>, undone: &str) -> Result<Option<Vec<&'a str>>> {
    let Some(list) = list else { return Ok(None) };
    let words: Vec<&str> = list.iter().map(|word| word.trim()).collect();
    if words == [undone] {
        return Ok(None);
    }
    if words.iter().all(|word| word.is_empty()) {
        return Err(usage(format!("{name} is empty")).hint(format!("the default is {undone}")));
    }
    match words.iter().find(|word| word.is_empty() || **word == undone) {
        Some(word) => Err(usage(format!("{name}: \"{word}\" is no word of a list"))),
        None => Ok(Some(words)),
    }
}

fn parse<T: FromStr<Err: std::fmt::Display>>(name: &str, word: &str) -> Result<T> {
    word.parse().map_err(|error| wrong(name, word, error))
}

fn wrong(name: &str, word: &str, error: impl std::fmt::Display) -> crate::Error {
    usage(format!("{name}: {}: {error}", printable(word)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use keybridge_proto::Operation;

    fn read(text: &str) -> Result<Narrowing> {
        Narrowing::new(&toml::from_str(text).unwrap())
    }

    #[test]
    fn each_setting_becomes_a_rule() {
        let rules = |text| read(text).unwrap().rules(OperationSet::default(), &[]);
        assert_eq!(rules(""), Rules::default());
        let ask = [Operation::Tag, Operation::Login].into_iter().collect();
        assert_eq!(rules("ask = ['tag', ' login']"), Rules { ask, ..Rules::default() });
        let limit = "30/h".parse().ok();
        assert_eq!(rules("limit = '30/h'"), Rules { limit, ..Rules::default() });
        let committers = Some(vec!["*@example.org".to_owned()]);
        assert_eq!(
            rules("committers = ['*@example.org']"),
            Rules { committers, ..Rules::default() }
        );
        let none_known = Rules { logins: Some(Vec::new()), ..Rules::default() };
        assert_eq!(rules("logins = ['git@github.com']"), none_known);
        let undone = "ask = ['none']\nlimit = 'none'\ncommitters = ['all']\nlogins = ['all']";
        assert_eq!(rules(undone), Rules::default());
    }

    #[test]
    fn a_wrong_word_is_named_with_what_is_accepted() {
        for (text, expected) in [
            ("ask = ['tags']", "ask: tags: no such use; the uses are commit, tag,"),
            ("ask = ['all']", "ask: all: no such use"),
            ("ask = ['tag', 'none']", "ask: \"none\" is no word of a list"),
            ("limit = '30/x'", "limit: 30/x: expected a number from 1 to 10000 and m, h or d"),
            ("limit = ''", "limit: : expected a number"),
            (
                "logins = ['github.com']",
                "logins: github.com: expected a user and a host, as in git@",
            ),
            ("logins = ['git@*.com']", "logins: git@*.com: expected a user and a host"),
            ("logins = ['']", "logins is empty"),
            ("ask = []", "ask is empty"),
            ("committers = []", "committers is empty"),
            ("committers = ['a@b', '']", "committers: \"\" is no word of a list"),
        ] {
            let error = read(text).unwrap_err();
            let is_told = error.kind == ErrorKind::Usage && error.message.starts_with(expected);
            assert!(is_told, "{text}: {error}");
        }
    }
}
