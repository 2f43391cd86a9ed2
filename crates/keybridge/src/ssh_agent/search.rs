//! The places where an ssh-agent is searched, and the result of each.

use std::fmt;
use std::path::PathBuf;

use crate::platform::System;
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
    /// The agent of the system's own OpenSSH, where it has one pipe for all.
    OpenSsh,
    /// `PuTTY`'s agent.
    Pageant,
    /// gpg-agent, which can also be an ssh-agent.
    GpgAgent,
}

impl Place {
    /// The places of a system, in the order of the search.
    pub(crate) fn of(system: &System) -> impl Iterator<Item = Self> {
        let first = [Self::Setting, Self::AuthSock, Self::IdentityAgent];
        let pipes = [Self::OpenSsh, Self::Pageant].into_iter();
        let pipes = pipes.filter(|_| system.openssh_pipe.is_some());
        first.into_iter().chain(pipes).chain([Self::GpgAgent])
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Setting => "the setting ssh-socket",
            Self::AuthSock => "SSH_AUTH_SOCK",
            Self::IdentityAgent => "IdentityAgent",
            Self::OpenSsh => "the service ssh-agent",
            Self::Pageant => "Pageant",
            Self::GpgAgent => "gpg-agent",
        })
    }
}

/// Why there is no agent at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is named there.
    NotSet,
    /// The user's configuration says to use none.
    None,
    /// The socket belongs to one of our own bridges.
    Ours(PathBuf),
    /// Connecting to the socket failed; why.
    Unreachable(PathBuf, String),
    /// The program that knows didn't say; why not.
    Unknown(String),
}

impl Outcome {
    /// Whether the search ends here.
    pub(crate) const fn is_last_word(&self, place: Place) -> bool {
        match self {
            // If the setting is set, nowhere else is searched.
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

/// A place that was searched, and the result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The place.
    pub place: Place,
    /// Why there is no agent.
    pub outcome: Outcome,
}

/// No ssh-agent was found; every place that was searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoSshAgent {
    /// The places, in the order of the search.
    pub attempts: Vec<Attempt>,
}

impl fmt::Display for NoSshAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A setting that isn't set needs no mention.
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
        let is_set = |attempt: &Attempt| {
            attempt.place == Place::Setting && attempt.outcome != Outcome::NotSet
        };
        let was_set = nobody.attempts.iter().any(is_set);
        let error = Self::from_source(ErrorKind::NoAgent, nobody);
        if was_set {
            return error.hint("correct the setting ssh-socket, or leave it out");
        }
        error
            .hint(System::here().start_ssh_agent)
            .hint("or let gpg-agent do it: enable-ssh-support in gpg-agent.conf")
            .hint("or name its socket with --ssh-socket")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_are_searched_where_the_system_has_them() {
        use Place::{AuthSock, GpgAgent, IdentityAgent, OpenSsh, Pageant, Setting};
        let places = |name| Place::of(System::of(name)).collect::<Vec<_>>();
        for unix in ["linux", "macos"] {
            assert_eq!(places(unix), [Setting, AuthSock, IdentityAgent, GpgAgent]);
        }
        let windows = [Setting, AuthSock, IdentityAgent, OpenSsh, Pageant, GpgAgent];
        assert_eq!(places("windows"), windows);
    }

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
        assert_eq!(error.hints, ["correct the setting ssh-socket, or leave it out".into()]);
    }
}
