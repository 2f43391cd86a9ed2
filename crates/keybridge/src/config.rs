//! Settings and their three layers: a flag, then an environment variable `KEYBRIDGE_…`, then
//! `config.toml`, each with the same words.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use keybridge_proto::gate::{AgentSocket, Policy};
use keybridge_proto::mux::DEFAULT_MAX_STREAMS;
use keybridge_proto::session::Limits;
use keybridge_proto::ssh::KeySelection;
use keybridge_proto::wildcard::matches;
use keybridge_proto::{Lane, printable};
use serde::Deserialize;

use crate::bridge::LinkPath;
use crate::keyring::{Lending, Uses};
use crate::{Error, ErrorKind, Result};

/// What can be set for a target. What isn't set is left to the next layer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Options {
    /// The addresses that a table of the file is for. Stands here since a table is the same words
    /// otherwise, and only one struct can refuse the ones it doesn't know.
    #[arg(skip)]
    pub r#match: Option<String>,
    /// Which public keys to send: pairs (those whose secret half is at home), all, or a list
    /// KEY,KEY
    #[arg(long, value_name = "WHICH", env = "KEYBRIDGE_KEYS", hide_env_values = true)]
    pub keys: Option<String>,
    /// Which secret keys the target may use: a list KEY,KEY of fingerprints, key ids, `SUBKEY!`,
    /// `&KEYGRIP` or addresses; by default those of --keys
    #[arg(long, value_name = "KEYS", env = "KEYBRIDGE_LEND", hide_env_values = true)]
    pub lend: Option<String>,
    /// What the target may use them for: sign, decrypt, certify; by default sign,decrypt
    #[arg(
        long,
        value_name = "USES",
        value_delimiter = ',',
        env = "KEYBRIDGE_USES",
        hide_env_values = true
    )]
    pub uses: Option<Vec<String>>,
    /// Which agents to lend: gpg, ssh; by default both, where this machine has them
    #[arg(
        long,
        value_name = "LANES",
        value_delimiter = ',',
        env = "KEYBRIDGE_LANES",
        hide_env_values = true
    )]
    pub lanes: Option<Vec<String>>,
    /// The user in the target; its own default user otherwise
    #[arg(long, value_name = "NAME", env = "KEYBRIDGE_USER", hide_env_values = true)]
    pub user: Option<String>,
    /// The GnuPG home on this machine whose agent is lent
    #[arg(long, value_name = "DIR", env = "KEYBRIDGE_GNUPG_HOME", hide_env_values = true)]
    pub gnupg_home: Option<PathBuf>,
    /// Which socket of gpg-agent is lent: extra, which gpg-agent restricts itself, or main, which
    /// only keybridge restricts
    #[arg(long, value_name = "SOCKET", env = "KEYBRIDGE_SOCKET", hide_env_values = true)]
    pub socket: Option<String>,
    /// The socket of the ssh-agent that is lent; otherwise that of `SSH_AUTH_SOCK`, of ssh's own
    /// configuration, or gpg-agent's
    #[arg(long, value_name = "PATH", env = "KEYBRIDGE_SSH_SOCKET", hide_env_values = true)]
    pub ssh_socket: Option<PathBuf>,
    /// Which keys of the ssh-agent are lent: fingerprints SHA256:..., or comments with * and ?; by
    /// default all
    #[arg(
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        env = "KEYBRIDGE_SSH_KEYS",
        hide_env_values = true
    )]
    pub ssh_keys: Option<Vec<String>>,
    /// Let the target add and remove plain keys of the ssh-agent, and lock and unlock it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", env = "KEYBRIDGE_ALLOW_SSH_CHANGES", hide_env_values = true)]
    pub allow_ssh_changes: Option<bool>,
    /// Have git in the target sign its commits and tags, with the key that git signs with here
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", env = "KEYBRIDGE_GIT", hide_env_values = true)]
    pub git: Option<bool>,
    /// Let the target open a passphrase dialog of its own making on this machine
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", env = "KEYBRIDGE_ALLOW_GET_PASSPHRASE", hide_env_values = true)]
    pub allow_get_passphrase: Option<bool>,
    /// Answer gpg 2.3 and later what an older agent at home forbids (KEYINFO); on by default
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", env = "KEYBRIDGE_HEAL", hide_env_values = true)]
    pub heal: Option<bool>,
    /// How many clients can be connected at once
    #[arg(long, value_name = "NUMBER", env = "KEYBRIDGE_MAX_SESSIONS", hide_env_values = true)]
    pub max_sessions: Option<usize>,
    /// Seconds that an answer of the agent may take; no limit by default, since a person may be
    /// at the pinentry
    #[arg(long, value_name = "SECONDS", env = "KEYBRIDGE_RESPONSE_LIMIT", hide_env_values = true)]
    pub response_limit: Option<u64>,
    /// Take the socket in the target over from whoever has it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", env = "KEYBRIDGE_REPLACE", hide_env_values = true)]
    pub replace: Option<bool>,
    /// Have all bytes carried by the container's engine, also where there is a way past it
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true,
          default_missing_value = "true", env = "KEYBRIDGE_NO_DIRECT", hide_env_values = true)]
    pub no_direct: Option<bool>,
    /// Seconds that the helper in the target waits for a link that was lost, before it undoes what it
    /// did and ends (600)
    #[arg(long, value_name = "SECONDS", env = "KEYBRIDGE_OUTLIVE", hide_env_values = true)]
    pub outlive: Option<u64>,
    /// A server of version 1 that is in the target, to be driven instead of keybridge's helper: its
    /// path there
    #[arg(long, value_name = "PATH", env = "KEYBRIDGE_HELPER", hide_env_values = true)]
    pub helper: Option<String>,
    /// A program to use as the helper in the target instead of the one that keybridge carries
    #[arg(long, value_name = "FILE", env = "KEYBRIDGE_HELPER_PROGRAM", hide_env_values = true)]
    pub helper_program: Option<PathBuf>,
}

/// The settings of one bridge, with every word checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Which public keys are sent, and which secret keys may be used.
    pub lending: Lending,
    /// Which agents are lent.
    pub lanes: Vec<Lane>,
    /// Whether they were asked for by name: one that isn't there is an error then.
    pub lanes_are_named: bool,
    /// The ssh-agent's socket, if one is set.
    pub ssh_socket: Option<PathBuf>,
    /// `SSH_AUTH_SOCK` where `up` was called; empty if it isn't set.
    pub ssh_auth_sock: PathBuf,
    /// What the caller said about the keys of the ssh-agent, and not a file. A bridge that lives takes
    /// over that alone: no other command widens what was lent.
    pub said_ssh_keys: Option<Vec<String>>,
    /// The same for the keys of gpg-agent.
    pub said_lending: Lending,
    /// Whether git in the target is to sign.
    pub git: bool,
    /// The user in the target, if it isn't the default one.
    pub user: Option<String>,
    /// GnuPG's home on this machine; empty for the default one.
    pub gnupg_home: PathBuf,
    /// What the target may ask.
    pub policy: Policy,
    /// How many clients can be connected at once.
    pub max_sessions: usize,
    /// How long things may take.
    pub limits: Limits,
    /// Whether the socket is taken over from whoever has it.
    pub replace: bool,
    /// Which way the bytes are to take, where there is a choice.
    pub path: LinkPath,
    /// How long the helper waits for a link that was lost.
    pub outlive: Duration,
    /// A server of version 1 in the target that is driven instead of the helper.
    pub helper: Option<String>,
    /// A helper to use instead of the carried one.
    pub helper_program: Option<PathBuf>,
}

/// The configuration file.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFile {
    /// Where it was read from.
    #[serde(skip)]
    path: Option<PathBuf>,
    defaults: Options,
    target: Vec<Options>,
}

impl ConfigFile {
    /// Reads the file, if it is there.
    pub fn load(path: &Path) -> Result<Self> {
        match std::fs::read_to_string(path) {
            Ok(text) => {
                let file = Self::parse(&text, path)?;
                Ok(Self { path: Some(path.to_owned()), ..file })
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(usage(format!("{}: {error}", path.display()))),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self> {
        let file: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
            let message = printable(error.message()).to_string();
            usage(format!("{} line {line}: {message}", path.display()))
        })?;
        if file.defaults.r#match.is_some() {
            return Err(usage(format!("{}: [defaults] has no `match`", path.display())));
        }
        if file.target.iter().any(|table| table.r#match.is_none()) {
            return Err(usage(format!("{}: a [[target]] without `match`", path.display()))
                .hint("write match = \"local:*\", say; * stands for any text"));
        }
        Ok(file)
    }

    /// Where it was read from, if it was there.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The settings for a target: what was said on the command line, or in the environment, or in
    /// the last table that matches, or in the defaults.
    pub fn settings(&self, target: &str, said: &Options) -> Result<Settings> {
        let mut options = said.clone();
        for table in self.target.iter().rev() {
            if table.r#match.as_ref().is_some_and(|pattern| matches(pattern, target)) {
                options = options.or(table);
            }
        }
        let settings = options.or(&self.defaults).check()?;
        let said_lending = said.lending()?;
        Ok(Settings { said_ssh_keys: said.ssh_keys.clone(), said_lending, ..settings })
    }
}

/// Where the configuration is looked for.
pub fn default_path() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = match std::env::consts::OS {
        "windows" => set("APPDATA"),
        "macos" => set("HOME").map(|home| home.join("Library/Application Support")),
        _ => set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config"))),
    };
    folder.map(|folder| folder.join("keybridge/config.toml"))
}

impl Options {
    /// The flags that say the same on a command line.
    pub fn to_flags(&self) -> Vec<OsString> {
        let mut flags = Vec::new();
        let mut add = |name: &str, value: Option<OsString>| {
            flags.extend(value.map(|value| {
                let mut flag = OsString::from(name);
                flag.push("=");
                flag.push(value);
                flag
            }));
        };
        let text = |value: &dyn ToString| OsString::from(value.to_string());
        add("--keys", self.keys.as_ref().map(|keys| text(keys)));
        add("--lend", self.lend.as_ref().map(|keys| text(keys)));
        add("--uses", self.uses.as_ref().map(|uses| text(&uses.join(","))));
        add("--lanes", self.lanes.as_ref().map(|lanes| text(&lanes.join(","))));
        add("--user", self.user.as_ref().map(|user| text(user)));
        add("--gnupg-home", self.gnupg_home.as_ref().map(|path| path.clone().into()));
        add("--socket", self.socket.as_ref().map(|socket| text(socket)));
        add("--ssh-socket", self.ssh_socket.as_ref().map(|path| path.clone().into()));
        add("--ssh-keys", self.ssh_keys.as_ref().map(|keys| text(&keys.join(","))));
        add("--allow-ssh-changes", self.allow_ssh_changes.as_ref().map(|value| text(value)));
        add("--git", self.git.as_ref().map(|value| text(value)));
        add("--allow-get-passphrase", self.allow_get_passphrase.as_ref().map(|value| text(value)));
        add("--heal", self.heal.as_ref().map(|value| text(value)));
        add("--max-sessions", self.max_sessions.as_ref().map(|value| text(value)));
        add("--response-limit", self.response_limit.as_ref().map(|value| text(value)));
        add("--replace", self.replace.as_ref().map(|value| text(value)));
        add("--no-direct", self.no_direct.as_ref().map(|value| text(value)));
        add("--outlive", self.outlive.as_ref().map(|value| text(value)));
        add("--helper", self.helper.as_ref().map(|path| text(path)));
        add("--helper-program", self.helper_program.as_ref().map(|path| path.clone().into()));
        flags
    }

    fn or(self, weaker: &Self) -> Self {
        Self {
            r#match: None,
            keys: self.keys.or_else(|| weaker.keys.clone()),
            lend: self.lend.or_else(|| weaker.lend.clone()),
            uses: self.uses.or_else(|| weaker.uses.clone()),
            lanes: self.lanes.or_else(|| weaker.lanes.clone()),
            user: self.user.or_else(|| weaker.user.clone()),
            gnupg_home: self.gnupg_home.or_else(|| weaker.gnupg_home.clone()),
            socket: self.socket.or_else(|| weaker.socket.clone()),
            ssh_socket: self.ssh_socket.or_else(|| weaker.ssh_socket.clone()),
            ssh_keys: self.ssh_keys.or_else(|| weaker.ssh_keys.clone()),
            allow_ssh_changes: self.allow_ssh_changes.or(weaker.allow_ssh_changes),
            git: self.git.or(weaker.git),
            allow_get_passphrase: self.allow_get_passphrase.or(weaker.allow_get_passphrase),
            heal: self.heal.or(weaker.heal),
            max_sessions: self.max_sessions.or(weaker.max_sessions),
            response_limit: self.response_limit.or(weaker.response_limit),
            replace: self.replace.or(weaker.replace),
            no_direct: self.no_direct.or(weaker.no_direct),
            outlive: self.outlive.or(weaker.outlive),
            helper: self.helper.or_else(|| weaker.helper.clone()),
            helper_program: self.helper_program.or_else(|| weaker.helper_program.clone()),
        }
    }

    fn lending(&self) -> Result<Lending> {
        let uses = self.uses.as_deref().map(Uses::parse).transpose()?;
        Ok(Lending { lend: self.lend.clone(), keys: self.keys.clone(), uses })
    }

    fn check(self) -> Result<Settings> {
        let lanes_are_named = self.lanes.is_some();
        let lanes = match &self.lanes {
            Some(named) => named
                .iter()
                .map(|lane| {
                    lane.parse().map_err(|error| usage(format!("{}: {error}", printable(lane))))
                })
                .collect::<Result<Vec<Lane>>>()?,
            None => Lane::ALL.to_vec(),
        };
        let socket = match self.socket.as_deref() {
            None | Some("extra") => AgentSocket::Extra,
            Some("main") => AgentSocket::Main,
            Some(other) => {
                let other = printable(other);
                return Err(usage(format!("{other}: no such socket; it is extra or main")));
            }
        };
        let max_sessions = self.max_sessions.unwrap_or(DEFAULT_MAX_STREAMS);
        if !(1..=MOST_SESSIONS).contains(&max_sessions) {
            return Err(usage(format!("max-sessions has to be from 1 to {MOST_SESSIONS}")));
        }
        let lending = self.lending()?;
        Ok(Settings {
            lending,
            lanes,
            lanes_are_named,
            ssh_socket: self.ssh_socket.map(|path| absolute(&path)).transpose()?,
            ssh_auth_sock: std::env::var_os("SSH_AUTH_SOCK").unwrap_or_default().into(),
            said_ssh_keys: None,
            said_lending: Lending::default(),
            git: self.git.unwrap_or(false),
            user: self.user,
            gnupg_home: gnupg_home(self.gnupg_home)?,
            policy: Policy {
                socket,
                allow_get_passphrase: self.allow_get_passphrase.unwrap_or(false),
                heal: self.heal.unwrap_or(true),
                allow_ssh_changes: self.allow_ssh_changes.unwrap_or(false),
                ssh_keys: ssh_keys(self.ssh_keys.as_deref())?,
            },
            max_sessions,
            limits: Limits {
                response: self.response_limit.map(Duration::from_secs),
                ..Limits::default()
            },
            replace: self.replace.unwrap_or(false),
            path: match self.no_direct {
                Some(true) => LinkPath::Exec,
                Some(false) | None => LinkPath::Direct,
            },
            outlive: self.outlive.map_or(DEFAULT_OUTLIVE, Duration::from_secs),
            helper: self.helper,
            helper_program: self.helper_program,
        })
    }
}

/// Reads which keys of the ssh-agent are lent.
pub(crate) fn ssh_keys(words: Option<&[String]>) -> Result<KeySelection> {
    let words: Vec<&str> = match words {
        None => return Ok(KeySelection::default()),
        Some(words) => words.iter().map(|word| word.trim()).collect(),
    };
    if words == ["all"] {
        return Ok(KeySelection::default());
    }
    if words.iter().all(|word| word.is_empty()) {
        return Err(usage("ssh-keys names no key")
            .hint("leave it out to lend all of them; --lanes gpg lends none"));
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

/// The home that is named, or that of the environment; a bridge in the background has another one.
fn gnupg_home(named: Option<PathBuf>) -> Result<PathBuf> {
    let home = named.or_else(|| std::env::var_os("GNUPGHOME").map(PathBuf::from));
    match home.filter(|home| !home.as_os_str().is_empty()) {
        Some(home) => absolute(&home),
        None => Ok(PathBuf::new()),
    }
}

/// A bridge in the background may be in another folder.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|error| usage(format!("{}: {error}", path.display())))
}

/// A restart of the host's machine takes less.
const DEFAULT_OUTLIVE: Duration = Duration::from_mins(10);

/// Each session has a descriptor in the target; this many fit into the usual limit of 1024 there.
const MOST_SESSIONS: usize = 900;

fn usage(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Usage, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile> {
        ConfigFile::parse(text, Path::new("config.toml"))
    }

    #[test]
    fn what_was_said_is_stronger_than_a_table_and_a_table_than_the_defaults() {
        let file = parse(
            "[defaults]\nkeys = \"all\"\nmax-sessions = 7\nsocket = \"main\"\n\
             [[target]]\nmatch = \"local:*\"\nkeys = \"A\"\nmax-sessions = 8\n\
             [[target]]\nmatch = \"local:/x?\"\nkeys = \"B\"\n",
        )
        .unwrap();
        let nothing = Options::default();
        let settings = |target, said| file.settings(target, said).unwrap();
        assert_eq!(settings("docker://x", &nothing).lending.keys.as_deref(), Some("all"));
        assert_eq!(settings("docker://x", &nothing).max_sessions, 7);
        assert_eq!(settings("local:/y", &nothing).lending.keys.as_deref(), Some("A"));
        assert_eq!(settings("local:/xy", &nothing).lending.keys.as_deref(), Some("B"));
        assert_eq!(settings("local:/xy", &nothing).max_sessions, 8);
        assert_eq!(settings("local:/xy", &nothing).policy.socket, AgentSocket::Main);
        let said = Options { keys: Some("C".into()), ..Options::default() };
        assert_eq!(settings("local:/xy", &said).lending.keys.as_deref(), Some("C"));
        let built_in = ConfigFile::default().settings("x", &nothing).unwrap();
        assert_eq!((built_in.lending.keys.as_deref(), built_in.max_sessions), (None, 256));
    }

    #[test]
    fn an_unknown_word_is_named_with_its_line() {
        for (text, line, word) in [
            ("[defaults]\nkeys = \"all\"\nkyes = \"all\"\n", 3, "kyes"),
            ("\n\n[defualts]\n", 3, "defualts"),
            ("[[target]]\nmatch = \"x\"\nlnaes = []\n", 3, "lnaes"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage);
            let expected = format!("config.toml line {line}: unknown field `{word}`");
            assert!(error.message.starts_with(&expected), "{error}");
        }
        assert!(
            parse("[[target]]\nkeys = \"x\"\n").unwrap_err().message.contains("without `match`")
        );
        assert!(parse("[defaults]\nmatch = \"x\"\n").is_err());
        assert!(parse("[defaults\n").unwrap_err().message.starts_with("config.toml line 1: "));
    }

    #[test]
    fn wrong_values_are_refused() {
        let check = |options: Options| ConfigFile::default().settings("x", &options).unwrap_err();
        let lanes = |lane: &str| Options { lanes: Some(vec![lane.into()]), ..Options::default() };
        assert!(check(lanes("gpgg")).message.contains("the lanes are gpg and ssh"));
        let settings = ConfigFile::default().settings("x", &lanes("ssh")).unwrap();
        assert_eq!((settings.lanes, settings.lanes_are_named), (vec![Lane::Ssh], true));
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
