//! The rules of a bridge: what is lent, what is asked for, and what narrows it further.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::wanted::{Refusal, Subject, Wanted};
use crate::ssh::Fingerprint;
use crate::wildcard;
use crate::{Operation, OperationSet};

/// The highest count of a limit: each use is remembered until it is too old to count.
const MAX_COUNT: u32 = 10_000;

/// The port of which `known_hosts` says nothing.
const SSH_PORT: u16 = 22;

/// The rules of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// What is lent.
    pub uses: OperationSet,
    /// For what a person has to say yes.
    pub ask: OperationSet,
    /// How often each key may be used without a question.
    pub limit: Option<Limit>,
    /// Whose commits and tags may be signed: patterns of addresses. `None`: anybody's.
    pub committers: Option<Vec<String>>,
    /// The logins that are allowed. `None`: all.
    pub logins: Option<Vec<LoginRule>>,
    /// Nothing is done that can't be recorded.
    pub needs_record: bool,
}

/// How often a key may be used: `30/h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// So many times
    pub count: u32,
    /// in so much time.
    pub period: Period,
}

/// The time of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

/// A login that is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginRule {
    /// The user on the server; `*` and `?` stand for any text and any character.
    pub user: String,
    /// The keys that the user's own `known_hosts` has for the server.
    pub hosts: Vec<Fingerprint>,
}

/// A word that isn't a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRule {
    /// Not a limit.
    #[error("expected a number from 1 to {MAX_COUNT} and m, h or d, as in 30/h")]
    Limit,
    /// Not a login.
    #[error("expected a user and a host, as in git@github.com or git@host:2222")]
    Login,
}

/// Lends what is lent by default, and asks for nothing.
impl Default for Rules {
    fn default() -> Self {
        Self {
            uses: OperationSet::default(),
            ask: OperationSet::NONE,
            limit: None,
            committers: None,
            logins: None,
            needs_record: false,
        }
    }
}

impl Limit {
    /// In how much time the uses count.
    pub const fn time(self) -> Duration {
        match self.period {
            Period::Minute => Duration::from_mins(1),
            Period::Hour => Duration::from_hours(1),
            Period::Day => Duration::from_hours(24),
        }
    }

    /// What people are told of it: `30 an hour`.
    pub fn words(self) -> String {
        let period = match self.period {
            Period::Minute => "a minute",
            Period::Hour => "an hour",
            Period::Day => "a day",
        };
        format!("{} {period}", self.count)
    }
}

impl FromStr for Limit {
    type Err = BadRule;

    fn from_str(text: &str) -> Result<Self, BadRule> {
        let (count, period) = text.split_once('/').ok_or(BadRule::Limit)?;
        let period = match period {
            "m" => Period::Minute,
            "h" => Period::Hour,
            "d" => Period::Day,
            _ => return Err(BadRule::Limit),
        };
        // `parse` takes a sign.
        let is_number = count.bytes().all(|digit| digit.is_ascii_digit());
        match count.parse() {
            Ok(count @ 1..=MAX_COUNT) if is_number => Ok(Self { count, period }),
            Ok(_) | Err(_) => Err(BadRule::Limit),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let period = match self.period {
            Period::Minute => 'm',
            Period::Hour => 'h',
            Period::Day => 'd',
        };
        write!(f, "{}/{period}", self.count)
    }
}

impl LoginRule {
    /// The user and the host in `USER@HOST`; the host as `known_hosts` has it.
    pub fn parse(text: &str) -> Result<(String, String), BadRule> {
        let (user, host) = text.rsplit_once('@').ok_or(BadRule::Login)?;
        let (name, port) = host_and_port(host).ok_or(BadRule::Login)?;
        // An option for ssh-keygen must not come of it, nor a pattern.
        let is_name = !name.starts_with('-')
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-:%".contains(&byte));
        if user.is_empty() || user.contains([' ', ',', '\t']) || name.is_empty() || !is_name {
            return Err(BadRule::Login);
        }
        // ssh looks a name up in lower case.
        let name = name.to_ascii_lowercase();
        let host = if port == SSH_PORT { name } else { format!("[{name}]:{port}") };
        Ok((user.to_owned(), host))
    }
}

/// The host and the port in `HOST`, `HOST:PORT` or `[HOST]:PORT`.
fn host_and_port(text: &str) -> Option<(&str, u16)> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']')? {
            (name, "") => (name, None),
            (name, port) => (name, Some(port.strip_prefix(':')?)),
        },
        None => match text.rsplit_once(':') {
            Some((name, port)) if !name.contains(':') => (name, Some(port)),
            // An IPv6 address.
            Some(_) | None => (text, None),
        },
    };
    let port = port.map_or(Some(SSH_PORT), |port| port.parse().ok())?;
    Some((name, port))
}

impl Rules {
    /// Why an operation is refused whatever a person says.
    pub(super) fn refuse(&self, wanted: &Wanted) -> Option<Refusal> {
        if wanted.operations.is_empty() || !wanted.operations.without(self.uses).is_empty() {
            return Some(Refusal::NotLent);
        }
        if let (Some(patterns), Some(maker)) = (&self.committers, wanted.subject.maker()) {
            // Not of all letters: some others become those of ASCII.
            let email = maker.email.to_ascii_lowercase();
            let matches =
                |pattern: &String| wildcard::matches(&pattern.to_ascii_lowercase(), &email);
            if !patterns.iter().any(matches) {
                return Some(Refusal::Committer);
            }
        }
        if let Some(rules) = &self.logins
            && wanted.operations.has(Operation::Login)
            && !rules.iter().any(|rule| rule.allows(&wanted.subject))
        {
            return Some(Refusal::Login);
        }
        None
    }

    /// Whether a person has to say yes to an operation.
    pub(super) fn asks_for(&self, wanted: &Wanted) -> bool {
        !wanted.operations.in_both(self.ask).is_empty()
    }
}

impl LoginRule {
    fn allows(&self, subject: &Subject) -> bool {
        match subject {
            Subject::Login { user, host: Some(host) } => {
                wildcard::matches(&self.user, user) && self.hosts.contains(host)
            }
            Subject::Login { host: None, .. }
            | Subject::Commit { .. }
            | Subject::Tag { .. }
            | Subject::Hash
            | Subject::SessionKey
            | Subject::Message { .. }
            | Subject::Data => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_count_and_a_time() {
        for (text, seconds) in [("1/m", 60), ("30/h", 3600), ("10000/d", 86_400)] {
            let limit: Limit = text.parse().unwrap();
            assert_eq!((limit.to_string(), limit.time().as_secs()), (text.to_owned(), seconds));
        }
        assert_eq!("30/h".parse().map(Limit::words), Ok("30 an hour".to_owned()));
        for text in
            ["", "30", "30/x", "30/H", "/h", "0/h", "-1/h", "+1/h", "10001/d", "3 /h", "30/hh"]
        {
            assert_eq!(text.parse::<Limit>(), Err(BadRule::Limit), "{text}");
        }
    }

    #[test]
    fn a_login_is_a_user_and_a_host_as_known_hosts_has_it() {
        for (text, host) in [
            ("git@github.com", "github.com"),
            ("git@GitHub.com:22", "github.com"),
            ("git@[github.com]:22", "github.com"),
            ("git@[github.com]", "github.com"),
            ("git@host:2222", "[host]:2222"),
            ("git@[host]:2222", "[host]:2222"),
            ("git@2001:db8::1", "2001:db8::1"),
            ("git@[2001:db8::1]:2222", "[2001:db8::1]:2222"),
        ] {
            assert_eq!(LoginRule::parse(text), Ok(("git".to_owned(), host.to_owned())), "{text}");
        }
        assert_eq!(LoginRule::parse("a@b@c"), Ok(("a@b".to_owned(), "c".to_owned())));
        for text in [
            "",
            "github.com",
            "@github.com",
            "git@",
            "git@-oProxy",
            "git@a b",
            "git@a:x",
            "git@:22",
            "git@[]:22",
            "git@[host",
            "git@[host]2222",
            "git@host:65536",
            "git@*.example.org",
            "git@a,b",
            "git@!a",
        ] {
            assert_eq!(LoginRule::parse(text), Err(BadRule::Login), "{text}");
        }
    }
}
