//! Every setting, declared once: its flag, its environment variable, its type and its help text. The keys
//! of `config.toml`, the order of the layers and the JSON form come from the same list.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, ValueHint};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::keyring::Ceiling;
use crate::target::Questions;
use crate::{Error, Result};

/// Declares the settings. Each is a field of [`Options`] that may be unset, a flag and an environment
/// variable, and a key in the configuration file. Layers, flags and JSON are derived from this list.
macro_rules! settings {
    ($($(#[$attribute:meta])* $name:ident: $type:ty,)*) => {
        /// What can be set for a target. What isn't set is left to the next layer.
        #[derive(Debug, Clone, Default, PartialEq, Eq, Args, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Options {
            /// The addresses that a table of the file is for. It is here because serde can't refuse
            /// unknown fields in a table that is read into two structs.
            #[arg(skip)]
            #[serde(skip_serializing)]
            pub r#match: Option<String>,
            $(
                $(#[$attribute])*
                #[arg(long, hide_env_values = true)]
                #[serde(skip_serializing_if = "Option::is_none")]
                pub $name: Option<$type>,
            )*
        }

        impl Options {
            /// These settings, and those of a weaker layer where one isn't set.
            #[must_use]
            pub(crate) fn or(self, weaker: &Self) -> Self {
                Self {
                    r#match: None,
                    $($name: self.$name.or_else(|| weaker.$name.clone()),)*
                }
            }

            /// The names of the settings that have another value in `other`.
            pub(crate) fn differing(&self, other: &Self) -> Vec<String> {
                let mut names = Vec::new();
                $(
                    if self.$name != other.$name {
                        names.push(stringify!($name).replace('_', "-"));
                    }
                )*
                names
            }
        }
    };
}

settings! {
    /// Which public keys to send: pairs (those whose secret half is on the host), all, or a list
    /// KEY,KEY, which lends the gpg lane alone
    #[arg(value_name = "WHICH", env = "KEYBRIDGE_KEYS")]
    keys: String,
    /// Which secret keys the target may use: a list KEY,KEY of fingerprints, key ids, `SUBKEY!`,
    /// `&KEYGRIP` or addresses; by default those of --keys. A list lends the gpg lane alone
    #[arg(value_name = "KEYS", env = "KEYBRIDGE_LEND")]
    lend: String,
    /// What the target may have done: commit, tag (git, read by the host), sign, decrypt, certify
    /// (gpg), login, sshsig (ssh); all but certify by default. What is named decides the lanes
    #[arg(value_name = "USES", value_delimiter = ',', env = "KEYBRIDGE_USES")]
    uses: Vec<String>,
    /// What a person has to say yes to first: words of --uses, or none (the default)
    #[arg(value_name = "USES", value_delimiter = ',', env = "KEYBRIDGE_ASK")]
    ask: Vec<String>,
    /// How a person is asked: approve (keybridge approve, in a terminal), notification (of the
    /// desktop, by notify-send), pinentry (gpg-agent's, where there is no other); by default all
    /// that are there
    #[arg(value_name = "WAYS", value_delimiter = ',', env = "KEYBRIDGE_ASK_BY")]
    ask_by: Vec<String>,
    /// How often each key may be used without a question: 30/h, or /m and /d; none by default
    #[arg(value_name = "LIMIT", env = "KEYBRIDGE_LIMIT")]
    limit: String,
    /// Whose commits and tags may be signed: addresses with * and ?, or all (the default)
    #[arg(value_name = "ADDRESSES", value_delimiter = ',', env = "KEYBRIDGE_COMMITTERS")]
    committers: Vec<String>,
    /// Which logins are allowed: USER@HOST or USER@HOST:PORT, where the host proves a key that your
    /// `known_hosts` has for it; or all (the default)
    #[arg(value_name = "LOGINS", value_delimiter = ',', env = "KEYBRIDGE_LOGINS")]
    logins: Vec<String>,
    /// Whether operations are recorded: on (the default), required (what can't be recorded is refused), off
    #[arg(value_name = "WHEN", env = "KEYBRIDGE_RECORD")]
    record: String,
    /// What to bridge: gpg, ssh, git; by default both agents, where the host has them and no
    /// keys of one alone are named, and git with --git
    #[arg(value_name = "LANES", value_delimiter = ',', env = "KEYBRIDGE_LANES")]
    lanes: Vec<String>,
    /// The user in the target; by default its own default user
    #[arg(value_name = "NAME", env = "KEYBRIDGE_USER")]
    user: String,
    /// The GnuPG home on the host to use
    #[arg(value_name = "DIR", env = "KEYBRIDGE_GNUPG_HOME", value_hint = ValueHint::AnyPath,
          value_parser = AbsolutePath::parser())]
    gnupg_home: AbsolutePath,
    /// The folder of gpg and gpgconf on the host; by default `PATH` is searched, and then the
    /// usual folders
    #[arg(value_name = "DIR", env = "KEYBRIDGE_GNUPG_PROGRAMS", value_hint = ValueHint::AnyPath,
          value_parser = AbsolutePath::parser())]
    gnupg_programs: AbsolutePath,
    /// Which socket of gpg-agent to use: extra, which gpg-agent restricts itself, or main, which
    /// only keybridge restricts
    #[arg(value_name = "SOCKET", env = "KEYBRIDGE_SOCKET")]
    socket: String,
    /// The socket of the ssh-agent to use; by default that of `SSH_AUTH_SOCK`, of ssh's own
    /// configuration, or gpg-agent's
    #[arg(value_name = "PATH", env = "KEYBRIDGE_SSH_SOCKET", value_hint = ValueHint::AnyPath,
          value_parser = AbsolutePath::parser())]
    ssh_socket: AbsolutePath,
    /// Which keys of the ssh-agent to lend: fingerprints SHA256:..., or comments with * and ?; by
    /// default all. A list lends the ssh lane alone, unless --lend or --keys is there too
    #[arg(value_name = "KEYS", value_delimiter = ',', env = "KEYBRIDGE_SSH_KEYS")]
    ssh_keys: Vec<String>,
    /// Let the target add and remove plain keys of the ssh-agent, and lock and unlock it
    #[arg(value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", env = "KEYBRIDGE_ALLOW_SSH_CHANGES")]
    allow_ssh_changes: bool,
    /// Have git in the target sign, with the key that git signs with on the host: every commit and tag of a
    /// repository with a remote (git 2.36 or later), others with -S
    #[arg(value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", env = "KEYBRIDGE_GIT")]
    git: bool,
    /// A folder in the target that a sandbox may write to, for the pipes by which git there asks; by
    /// default they are in ~/.keybridge
    #[arg(value_name = "DIR", env = "KEYBRIDGE_PIPES")]
    pipes: String,
    /// Let the target open passphrase dialogs on the host, with a text that it chooses
    #[arg(value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", env = "KEYBRIDGE_ALLOW_GET_PASSPHRASE")]
    allow_get_passphrase: bool,
    /// Answer KEYINFO, which gpg 2.3 and later needs, where an older agent on the host forbids
    /// it; on by default
    #[arg(value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", env = "KEYBRIDGE_HEAL")]
    heal: bool,
    /// How many clients can be connected at once
    #[arg(value_name = "NUMBER", env = "KEYBRIDGE_MAX_SESSIONS")]
    max_sessions: usize,
    /// Seconds that the agent may take to answer; unlimited by default, since a person may be
    /// typing a passphrase
    #[arg(value_name = "SECONDS", env = "KEYBRIDGE_RESPONSE_LIMIT")]
    response_limit: u64,
    /// Take over the socket in the target from another agent; systemd units that own it are masked
    /// until the bridge ends
    #[arg(value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", env = "KEYBRIDGE_REPLACE")]
    replace: bool,
    /// Seconds that the helper in the target waits for a lost link before it undoes its changes and
    /// ends (600)
    #[arg(value_name = "SECONDS", env = "KEYBRIDGE_OUTLIVE")]
    outlive: u64,
    /// The path of a version 1 server in the target, to use instead of keybridge's helper
    #[arg(value_name = "PATH", env = "KEYBRIDGE_HELPER")]
    helper: String,
    /// A helper program to install in the target instead of the one inside keybridge
    #[arg(value_name = "FILE", env = "KEYBRIDGE_HELPER_PROGRAM", value_hint = ValueHint::AnyPath,
          value_parser = AbsolutePath::parser())]
    helper_program: AbsolutePath,
}

impl Options {
    /// The flags that set these options, wherever they were set.
    pub(crate) fn flags(&self) -> Result<Vec<String>> {
        let failed = |error| Error::failed("writing the settings as flags").caused_by(error);
        let settings: Map<String, Value> =
            serde_json::from_value(serde_json::to_value(self).map_err(failed)?).map_err(failed)?;
        let word = |value: &Value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let flag = |(name, value): (&String, &Value)| match value {
            Value::Array(list) => {
                format!("--{name}={}", list.iter().map(word).collect::<Vec<_>>().join(","))
            }
            value => format!("--{name}={}", word(value)),
        };
        Ok(settings.iter().map(flag).collect())
    }
}

/// What a caller of `up` asks for: what its command line and its `KEYBRIDGE_` variables say, and the
/// variables of other programs that matter. All of it is sent to the bridge in the background.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Invocation {
    /// The settings that the caller named; none from a file.
    pub(crate) options: Options,
    /// The caller's environment.
    pub(crate) environment: Environment,
    /// The socket through which the caller can be asked what a login asks, if it can.
    pub(crate) asker: Option<PathBuf>,
    /// Whether a person runs `up` itself, which may lend more than a bridge did before.
    pub(crate) raises: bool,
    /// What a new bridge may lend at most, if that is known already.
    pub(crate) ceiling: Option<Ceiling>,
}

/// The variables of other programs that say where agents are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Environment {
    /// `GNUPGHOME`; empty if it isn't set.
    pub(crate) gnupg_home: AbsolutePath,
    /// `SSH_AUTH_SOCK`; empty if it isn't set.
    pub(crate) ssh_auth_sock: PathBuf,
}

impl Invocation {
    /// These options in the environment of this process.
    pub(crate) fn new(options: Options) -> Self {
        let environment = Environment::of_this_process();
        Self { options, environment, ..Self::default() }
    }

    /// The same caller, who names nothing.
    pub(crate) fn naming_nothing(&self) -> Self {
        Self { asker: self.asker.clone(), ..Self::default() }
    }

    /// Who answers what a login asks.
    pub(crate) fn questions(&self) -> Questions {
        self.asker.clone().map_or(Questions::NotAsked, Questions::AskedAt)
    }
}

impl Environment {
    /// These variables, and those of another environment where one isn't set.
    #[must_use]
    pub(crate) fn or(self, other: &Self) -> Self {
        let or = |one: PathBuf, other: &Path| {
            if one.as_os_str().is_empty() { other.to_owned() } else { one }
        };
        Self {
            gnupg_home: or(self.gnupg_home.into(), &other.gnupg_home).into(),
            ssh_auth_sock: or(self.ssh_auth_sock, &other.ssh_auth_sock),
        }
    }

    /// That of this process.
    pub(crate) fn of_this_process() -> Self {
        let variable = |name| PathBuf::from(std::env::var_os(name).unwrap_or_default());
        Self { gnupg_home: variable("GNUPGHOME").into(), ssh_auth_sock: variable("SSH_AUTH_SOCK") }
    }
}

/// An absolute path, since the bridge in the background may have another working folder.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PathBuf")]
pub struct AbsolutePath(PathBuf);

impl AbsolutePath {
    /// Parses a command line argument, which can't be empty.
    fn parser() -> impl TypedValueParser<Value = Self> {
        PathBufValueParser::new().map(Self::from)
    }
}

impl From<PathBuf> for AbsolutePath {
    fn from(path: PathBuf) -> Self {
        // An empty path stays so: it means that nothing is set.
        Self(std::path::absolute(&path).unwrap_or(path))
    }
}

impl From<AbsolutePath> for PathBuf {
    fn from(path: AbsolutePath) -> Self {
        path.0
    }
}

impl Deref for AbsolutePath {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use serde_json::json;

    #[derive(Parser)]
    struct CommandLine {
        #[command(flatten)]
        options: Options,
    }

    /// Every setting with a value, as JSON: the list comes from the command line's own flags.
    fn all() -> Map<String, Value> {
        use clap::CommandFactory;
        let command = CommandLine::command();
        let flags = command.get_arguments().filter_map(|flag| flag.get_long().map(str::to_owned));
        let words = flags.filter(|name| name != "help").map(|name| {
            let value = match name.as_str() {
                "uses" | "ask" | "ask-by" | "committers" | "logins" | "lanes" | "ssh-keys" => {
                    json!(["a", "b"])
                }
                "max-sessions" | "response-limit" | "outlive" => json!(7),
                "allow-ssh-changes" | "git" | "allow-get-passphrase" | "heal" | "replace" => {
                    json!(false)
                }
                // Absolute on every system.
                _ => json!(std::env::temp_dir()),
            };
            (name, value)
        });
        words.collect()
    }

    #[test]
    fn every_setting_passes_through_json_and_the_layers() {
        let words = all();
        assert!(words.len() >= 20, "{words:?}");
        let options: Options = serde_json::from_value(Value::Object(words.clone())).unwrap();
        assert_eq!(serde_json::to_value(&options).unwrap(), Value::Object(words.clone()));
        // Each of them is taken from the weaker layer, and wins as the stronger one.
        assert_eq!(Options::default().or(&options), options);
        assert_eq!(options.clone().or(&Options::default()), options);
        let names: Vec<String> = words.keys().cloned().collect();
        let mut differing = options.differing(&Options::default());
        differing.sort();
        assert_eq!(differing, names);
        assert_eq!(serde_json::to_value(Options::default()).unwrap(), json!({}));
    }

    #[test]
    fn a_relative_path_is_made_absolute_where_it_is_read() {
        let here = std::env::current_dir().unwrap();
        let line = CommandLine::try_parse_from(["x", "--gnupg-home", "a"]).unwrap();
        assert_eq!(line.options.gnupg_home.as_deref(), Some(here.join("a").as_path()));
        let read: Options = toml::from_str("ssh-socket = \"b\"").unwrap();
        assert_eq!(read.ssh_socket.as_deref(), Some(here.join("b").as_path()));
        assert!(CommandLine::try_parse_from(["x", "--gnupg-home", ""]).is_err());
        assert_eq!(AbsolutePath::from(PathBuf::new()), AbsolutePath::default());
    }
}
