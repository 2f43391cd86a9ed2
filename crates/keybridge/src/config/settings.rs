//! The settings of one bridge, checked.

use std::path::PathBuf;
use std::time::Duration;

use keybridge_proto::gate::{AgentSocket, Policy};
use keybridge_proto::mux::DEFAULT_MAX_STREAMS;
use keybridge_proto::session::Limits;
use keybridge_proto::ssh::KeySelection;
use keybridge_proto::{Lane, printable};

use super::{Environment, Invocation, Options, usage};
use crate::Result;
use crate::bridge::LinkPath;
use crate::gnupg::Gnupg;
use crate::keyring::{Lending, Uses};

/// The settings of one bridge, with every word checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// What was set, over all layers. What needs no checking is read here.
    pub options: Options,
    /// Which public keys are sent, and which secret keys may be used.
    pub lending: Lending,
    /// Which agents are lent.
    pub lanes: Vec<Lane>,
    /// `SSH_AUTH_SOCK` where `up` was called; empty if it isn't set.
    pub ssh_auth_sock: PathBuf,
    /// GnuPG's home on this machine; empty for the default one.
    pub gnupg_home: PathBuf,
    /// What the target may ask.
    pub policy: Policy,
    /// How many clients can be connected at once.
    pub max_sessions: usize,
    /// How long things may take.
    pub limits: Limits,
    /// Which way the bytes are to take, where there is a choice.
    pub path: LinkPath,
    /// How long the helper waits for a link that was lost.
    pub outlive: Duration,
}

impl Settings {
    /// Checks the options of a caller in this environment.
    pub(super) fn new(options: Options, environment: &Environment) -> Result<Self> {
        let max_sessions = options.max_sessions.unwrap_or(DEFAULT_MAX_STREAMS);
        if !(1..=MOST_SESSIONS).contains(&max_sessions) {
            return Err(usage(format!(
                "max-sessions {max_sessions}: expected a number from 1 to {MOST_SESSIONS}"
            )));
        }
        let uses = options.uses.as_deref().map(Uses::parse).transpose()?;
        let gnupg_home = options.gnupg_home.as_ref().unwrap_or(&environment.gnupg_home);
        Ok(Self {
            lending: Lending { lend: options.lend.clone(), keys: options.keys.clone(), uses },
            lanes: lanes(options.lanes.as_deref())?,
            ssh_auth_sock: environment.ssh_auth_sock.clone(),
            gnupg_home: gnupg_home.to_path_buf(),
            policy: Policy {
                socket: socket(options.socket.as_deref())?,
                allow_get_passphrase: options.allow_get_passphrase.unwrap_or(false),
                heal: options.heal.unwrap_or(true),
                allow_ssh_changes: options.allow_ssh_changes.unwrap_or(false),
                ssh_keys: ssh_keys(options.ssh_keys.as_deref())?,
            },
            max_sessions,
            limits: Limits {
                response: options.response_limit.map(Duration::from_secs),
                ..Limits::default()
            },
            path: match (options.no_direct, options.no_pass) {
                (Some(true), _) => LinkPath::Exec,
                (Some(false) | None, Some(true)) => LinkPath::Direct,
                (Some(false) | None, Some(false) | None) => LinkPath::Passed,
            },
            outlive: options.outlive.map_or(DEFAULT_OUTLIVE, Duration::from_secs),
            options,
        })
    }

    /// GnuPG on this machine.
    pub fn gnupg(&self) -> Gnupg {
        let programs = self.options.gnupg_programs.as_deref();
        Gnupg::in_folder(Some(self.gnupg_home.clone()), programs)
    }

    /// These settings with what another call of `up` names. A file isn't asked again: it must not
    /// widen what a bridge that is up lends.
    pub(crate) fn with(&self, invocation: &Invocation) -> Result<Self> {
        let options = invocation.options.clone().or(&self.options);
        Self::new(options, &invocation.environment)
    }

    /// Whether a link that was made with these settings can be used with others. Only the choice of
    /// keys and `SSH_AUTH_SOCK` can be changed on a link; everything else needs another one.
    pub(crate) fn can_share_link(&self, others: &Self) -> bool {
        let other = others.options.clone();
        let adapted = Self {
            options: Options {
                lend: other.lend,
                keys: other.keys,
                uses: other.uses,
                ssh_keys: other.ssh_keys,
                // The same user by another name: another user is refused before.
                user: other.user,
                ..self.options.clone()
            },
            lending: others.lending.clone(),
            policy: Policy { ssh_keys: others.policy.ssh_keys.clone(), ..self.policy.clone() },
            ssh_auth_sock: others.ssh_auth_sock.clone(),
            ..self.clone()
        };
        adapted == *others
    }

    /// Whether the lanes were asked for by name: one that isn't there is an error then.
    pub const fn lanes_are_named(&self) -> bool {
        self.options.lanes.is_some()
    }

    /// Whether the place of a lane's agent was set.
    pub const fn names_agent(&self, lane: Lane) -> bool {
        match lane {
            Lane::Gpg => self.options.gnupg_home.is_some(),
            Lane::Ssh => self.options.ssh_socket.is_some(),
        }
    }

    /// Whether git in the target is to sign.
    pub fn git(&self) -> bool {
        self.options.git.unwrap_or(false)
    }
}

fn lanes(names: Option<&[String]>) -> Result<Vec<Lane>> {
    let Some(names) = names else { return Ok(Lane::ALL.to_vec()) };
    let parse = |name: &String| {
        name.parse().map_err(|error| usage(format!("lanes: {}: {error}", printable(name))))
    };
    names.iter().map(parse).collect()
}

fn socket(name: Option<&str>) -> Result<AgentSocket> {
    match name {
        None | Some("extra") => Ok(AgentSocket::Extra),
        Some("main") => Ok(AgentSocket::Main),
        Some(other) => Err(usage(format!("socket {}: expected extra or main", printable(other)))),
    }
}

/// Reads which keys of the ssh-agent are lent.
fn ssh_keys(words: Option<&[String]>) -> Result<KeySelection> {
    let words: Vec<&str> = match words {
        None => return Ok(KeySelection::default()),
        Some(words) => words.iter().map(|word| word.trim()).collect(),
    };
    if words == ["all"] {
        return Ok(KeySelection::default());
    }
    if words.iter().all(|word| word.is_empty()) {
        return Err(usage("ssh-keys is empty")
            .hint("leave it out to lend all keys; use --lanes gpg to lend none"));
    }
    if let Some(word) = words.iter().find(|word| word.starts_with("MD5:")) {
        return Err(usage(format!(
            "ssh-keys {}: expected a fingerprint SHA256:...",
            printable(word)
        ))
        .hint("ssh-add -l shows them"));
    }
    KeySelection::of_words(words.into_iter().filter(|word| !word.is_empty()))
        .map_err(|error| usage(format!("ssh-keys: {error}")))
}

/// A restart of the host's machine takes less.
const DEFAULT_OUTLIVE: Duration = Duration::from_mins(10);

/// Each session has a descriptor in the target; this many fit into the usual limit of 1024 there.
const MOST_SESSIONS: usize = 900;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::config::ConfigFile;

    #[test]
    fn wrong_values_are_refused() {
        let check = |options: Options| ConfigFile::default().settings("x", &options).unwrap_err();
        let lanes = |lane: &str| Options { lanes: Some(vec![lane.into()]), ..Options::default() };
        assert!(check(lanes("gpgg")).message.contains("the lanes are gpg and ssh"));
        let settings = ConfigFile::default().settings("x", &lanes("ssh")).unwrap();
        assert_eq!((settings.lanes_are_named(), settings.lanes), (true, vec![Lane::Ssh]));
        let socket = Options { socket: Some("browser".into()), ..Options::default() };
        assert!(check(socket).message.contains("extra or main"));
        for max_sessions in [0, 901] {
            let options = Options { max_sessions: Some(max_sessions), ..Options::default() };
            assert!(check(options).message.contains("from 1 to 900"));
        }
    }

    #[test]
    fn ssh_keys_are_fingerprints_or_comments() {
        let read = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            ssh_keys(Some(&words))
        };
        assert!(ssh_keys(None).unwrap().is_all() && read(&["all"]).unwrap().is_all());
        assert!(read(&["me@*", " all"]).unwrap().has_comments());
        let fingerprint = format!("SHA256:{}", "A".repeat(43));
        assert!(!read(&[&fingerprint, ""]).unwrap().has_comments());
        for words in [&[][..], &[""], &["SHA256:short"], &["MD5:00:11"]] {
            assert_eq!(read(words).unwrap_err().kind, ErrorKind::Usage, "{words:?}");
        }
    }
}
