//! What came of looking for the ssh-agent, place by place.

use std::fmt;
use std::path::PathBuf;

use crate::{Error, ErrorKind};

/// A place where an ssh-agent's socket can be named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The user's setting.
    Setting,
    /// The environment of the last `up`.
    AuthSock,
    /// The configuration of ssh.
    IdentityAgent,
    /// gpg-agent, which can speak the protocol too.
    GpgAgent,
}

impl Place {
    /// Every place, in the order in which they are looked at.
    pub const ALL: [Self; 4] = [Self::Setting, Self::AuthSock, Self::IdentityAgent, Self::GpgAgent];
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setting => "the setting ssh-socket",
            Self::AuthSock => "SSH_AUTH_SOCK",
            Self::IdentityAgent => "IdentityAgent",
            Self::GpgAgent => "gpg-agent",
        })
    }
}

/// Why there is no agent at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is named there.
    NotSet,
    /// The user wants none.
    None,
    /// The socket leads back to a bridge of ours.
    Ours(PathBuf),
    /// Nobody answers at the socket, and why.
    Unreachable(PathBuf, String),
    /// What is named there can't be found out, and why.
    Unknown(String),
}

impl Outcome {
    /// Whether no further place is looked at.
    pub(super) const fn is_last_word(&self, place: Place) -> bool {
        match self {
            // A setting that is there is the only place.
            Self::Ours(_) | Self::Unreachable(..) | Self::Unknown(_) => {
                matches!(place, Place::Setting)
            }
            Self::NotSet => false,
            Self::None => true,
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSet => f.write_str("not set"),
            Self::None => f.write_str("none, by your configuration"),
            Self::Ours(path) => write!(f, "{} leads back to keybridge", path.display()),
            Self::Unreachable(path, why) => write!(f, "{}: {why}", path.display()),
            Self::Unknown(why) => f.write_str(why),
        }
    }
}

/// A place that was looked at, and what came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The place.
    pub place: Place,
    /// Why there is no agent.
    pub outcome: Outcome,
}

/// There is no ssh-agent, with every place that was looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoSshAgent {
    /// The places, in the order in which they were looked at.
    pub attempts: Vec<Attempt>,
}

impl fmt::Display for NoSshAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A setting that isn't there is not missed.
        let is_missed = |attempt: &&Attempt| {
            attempt.place != Place::Setting || attempt.outcome != Outcome::NotSet
        };
        let told = self.attempts.iter().filter(is_missed);
        let told: Vec<String> =
            told.map(|Attempt { place, outcome }| format!("{place}: {outcome}")).collect();
        write!(f, "no ssh-agent answers ({})", told.join("; "))
    }
}

impl std::error::Error for NoSshAgent {}

impl From<NoSshAgent> for Error {
    fn from(nobody: NoSshAgent) -> Self {
        let error = Self::new(ErrorKind::NoAgent, nobody.to_string());
        let is_set = |attempt: &Attempt| {
            attempt.place == Place::Setting && attempt.outcome != Outcome::NotSet
        };
        if nobody.attempts.iter().any(is_set) {
            return error.hint("correct the setting ssh-socket, or leave it out");
        }
        error
            .hint("start one with `eval \"$(ssh-agent)\"`, and run `keybridge up` again in that shell")
            .hint("or have gpg-agent be one: enable-ssh-support in gpg-agent.conf")
            .hint("or name its socket with --ssh-socket")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_and_what_came_of_them_are_told() {
        let attempt = |place, outcome| Attempt { place, outcome };
        let nobody = NoSshAgent {
            attempts: vec![
                attempt(Place::Setting, Outcome::NotSet),
                attempt(Place::AuthSock, Outcome::Unreachable("/s".into(), "refused".into())),
                attempt(Place::IdentityAgent, Outcome::NotSet),
                attempt(Place::GpgAgent, Outcome::Ours("/g".into())),
            ],
        };
        let error = Error::from(nobody);
        assert_eq!(
            error.message,
            "no ssh-agent answers (SSH_AUTH_SOCK: /s: refused; IdentityAgent: not set; \
             gpg-agent: /g leads back to keybridge)"
        );
        assert_eq!((error.kind, error.hints.len()), (ErrorKind::NoAgent, 3));
        let setting = attempt(Place::Setting, Outcome::Unreachable("/x".into(), "refused".into()));
        let error = Error::from(NoSshAgent { attempts: vec![setting] });
        assert_eq!(error.message, "no ssh-agent answers (the setting ssh-socket: /x: refused)");
        assert_eq!(error.hints, ["correct the setting ssh-socket, or leave it out"]);
    }
}
