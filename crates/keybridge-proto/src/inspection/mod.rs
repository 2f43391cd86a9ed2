//! What `keybridge-remote inspect` finds in a target: a line with JSON, since a login shell may print
//! something before it. All of it is untrusted, and bounded as a [report](crate::report) is.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::PerLane;
use crate::report::{Bounds, Unreadable, User, find_line, to_line};

/// The longest text, and the longest list: the parts of a key.
const BOUNDS: Bounds = Bounds { text: 1024, entries: Inspection::MOST_PARTS };

/// How the line begins.
const WORD: &[u8] = b"keybridge-inspection";

/// Everything that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Inspection {
    /// The user that the helper runs as.
    pub user: User,
    /// GnuPG. `None` if there is no gpg on the PATH.
    pub gnupg: Option<GnupgFacts>,
    /// What was found for each lane.
    pub lanes: PerLane<LaneFacts>,
    /// The public keys that were asked for, in that order.
    pub keys: Vec<KeyFacts>,
    /// git. `None` if there is none on the PATH.
    pub git: Option<GitFacts>,
    /// The outcome of a signature, if one was asked for.
    pub signature: Option<SignatureOutcome>,
}

/// What was found about GnuPG.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GnupgFacts {
    /// The path of gpg.
    pub program: String,
    /// Its version, or why that can't be known: gpg hangs, or prints something else.
    pub version: Result<String, String>,
    /// GnuPG's home folder, if gpgconf names one.
    pub home: Option<String>,
    /// Whether that folder exists.
    pub has_home: bool,
    /// What is wrong with that folder. `None` if it is fine, or if there is none yet.
    pub home_problem: Option<HomeProblem>,
}

/// Why GnuPG's home can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HomeProblem {
    /// The kind of problem.
    pub kind: HomeProblemKind,
    /// What is wrong, with the path.
    pub message: String,
    /// What to do in the target about it: a command, or a sentence if no command can do it.
    pub fix: Option<String>,
}

/// The kinds of problem with GnuPG's home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HomeProblemKind {
    /// The folder belongs to another user.
    WrongOwner,
    /// Other users can write to the folder.
    TooOpen,
    /// Anything else: it is no folder, or others can change one above it.
    Other,
}

/// What was found for a lane.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaneFacts {
    /// The path of the socket that clients use, if it can be known.
    pub socket: Option<String>,
    /// What is at that path.
    pub listener: Listener,
    /// Whether our lines are in place: those in gpg.conf that keep gpg from starting an agent, or those
    /// in ssh's settings that name the socket. `None` if that can't be known.
    pub is_set_up: Option<bool>,
    /// What would start another agent, or lead clients to one.
    pub starters: Vec<AgentStarter>,
    /// Why the lane can't be used, if it can't.
    pub problem: Option<String>,
}

/// What is at the path of a lane's socket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Listener {
    /// Nothing, or a socket that no process listens at.
    #[default]
    Nobody,
    /// A helper of keybridge.
    Helper {
        /// Its process, if it is one of this target.
        pid: Option<u32>,
        /// Its version, if it can be known.
        version: Option<String>,
    },
    /// Another agent.
    Agent {
        /// Its process, if it is one of this target.
        pid: Option<u32>,
        /// The name of its program.
        program: Option<String>,
        /// Whether it has secret keys, if that can be known.
        has_secret_keys: Option<bool>,
    },
    /// Something else, or something that doesn't answer: what it does.
    Unknown(String),
}

/// Something that would start another agent at a lane's socket, or lead clients away from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentStarter {
    /// The kind of cause.
    pub kind: StarterKind,
    /// The unit's name, the file and its line, or the variable's value.
    pub name: String,
    /// The command that removes the cause, run as the user in the target.
    pub fix: String,
}

/// The kinds of [`AgentStarter`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StarterKind {
    /// A systemd unit of the user's listens at the socket, or will after the next login.
    SystemdUnit,
    /// A line of gpg.conf that defeats ours.
    GpgConf,
    /// `SSH_AUTH_SOCK` names another socket.
    SshAuthSock,
}

/// What was found about a public key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyFacts {
    /// The fingerprint that was asked for.
    pub fingerprint: String,
    /// What is known about it.
    pub status: KeyStatus,
}

/// What is known about a public key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KeyStatus {
    /// It isn't in the keyring.
    Missing,
    /// It is in the keyring.
    Present(PublicKey),
    /// It can't be known: why.
    Unknown(String),
}

/// A public key as `gpg --with-colons` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PublicKey {
    /// The ownertrust that is set, as `gpg --export-ownertrust` writes it: 2 undefined to 6 ultimate.
    pub ownertrust: Option<u8>,
    /// When the primary key expires, in seconds since 1970.
    pub expires: Option<u64>,
    /// Its subkeys.
    pub subkeys: Vec<Subkey>,
    /// GnuPG's hash of each of its user ids, in hexadecimal digits.
    pub user_ids: Vec<String>,
}

/// A subkey of a public key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subkey {
    /// Its fingerprint.
    pub fingerprint: String,
    /// When it expires, in seconds since 1970.
    pub expires: Option<u64>,
}

/// What was found about git.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitFacts {
    /// Its version, or why that can't be known.
    pub version: Result<String, String>,
    /// Why its settings can't be read, if they can't.
    pub problem: Option<String>,
    /// `user.email`.
    pub email: Option<GitSetting>,
    /// `user.signingkey`.
    pub signing_key: Option<GitSetting>,
    /// `gpg.format`.
    pub format: Option<GitSetting>,
    /// `commit.gpgsign`.
    pub sign_commits: Option<GitSetting>,
    /// `gpg.program`, or `gpg.openpgp.program`, which is the same.
    pub gpg_program: Option<GitSetting>,
    /// `gpg.ssh.program`.
    pub ssh_program: Option<GitSetting>,
    /// The programs that a bridge has put there for git.
    pub entries: Vec<String>,
}

/// One of git's settings, as any repository of the user's gets it unless it has its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GitSetting {
    /// Its value.
    pub value: String,
    /// The file that sets it. `None` if a variable of the environment does.
    pub file: Option<String>,
}

/// The outcome of a signature that the target's gpg made and verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignatureOutcome {
    /// The fingerprint of the key that it was asked to sign with.
    pub fingerprint: String,
    /// How long signing took, or why there is no good signature, in one line.
    pub result: Result<Duration, String>,
}

impl Inspection {
    /// The longest output; a reader gives up after that.
    pub const MAX_SIZE: usize = 512 * 1024;

    /// How many keys can be asked for.
    pub const MOST_KEYS: usize = 32;

    /// How many subkeys and how many user ids of a key are kept.
    const MOST_PARTS: usize = 32;

    /// The line.
    pub fn to_bytes(&self) -> Vec<u8> {
        to_line(WORD, self, BOUNDS)
    }

    /// Parses the output of a helper.
    pub fn parse(text: &[u8]) -> Result<Self, Unreadable> {
        let text = text.get(..Self::MAX_SIZE).unwrap_or(text);
        find_line(WORD, text, BOUNDS)
    }
}

impl GitFacts {
    /// git without any setting.
    pub fn new(version: Result<String, String>) -> Self {
        Self {
            version,
            problem: None,
            email: None,
            signing_key: None,
            format: None,
            sign_commits: None,
            gpg_program: None,
            ssh_program: None,
            entries: Vec::new(),
        }
    }

    /// The setting with this name, as git spells it.
    pub fn setting_mut(&mut self, name: &str) -> Option<&mut Option<GitSetting>> {
        match name {
            "user.email" => Some(&mut self.email),
            "user.signingkey" => Some(&mut self.signing_key),
            "gpg.format" => Some(&mut self.format),
            "commit.gpgsign" => Some(&mut self.sign_commits),
            "gpg.program" | "gpg.openpgp.program" => Some(&mut self.gpg_program),
            "gpg.ssh.program" => Some(&mut self.ssh_program),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
