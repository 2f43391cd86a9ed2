//! The settings of one bridge, checked.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use keybridge_proto::gate::{AgentSocket, Policy};
use keybridge_proto::mux::DEFAULT_MAX_STREAMS;
use keybridge_proto::permission::{LoginRule, Rules};
use keybridge_proto::session::Limits;
use keybridge_proto::ssh::KeySelection;
use keybridge_proto::{Lane, Operation, OperationSet, printable};

use super::narrowing::Narrowing;
use super::{Environment, Invocation, Options, usage};
use crate::Result;
use crate::asking::Way;
use crate::gnupg::Gnupg;
use crate::keyring::Lending;
use crate::keys::KeyFilter;
use crate::record::RecordMode;

/// The settings of one bridge, with every word checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// What was set, over all layers. What needs no checking is read here.
    pub(crate) options: Options,
    /// Which public keys are sent, and which secret keys may be used.
    pub(crate) lending: Lending,
    /// What narrows that.
    pub(crate) narrowing: Narrowing,
    /// Whether operations are recorded.
    pub(crate) record: RecordMode,
    /// How a person is asked.
    pub(crate) ask_by: Vec<Way>,
    /// Which agents are lent, where a target can use both.
    pub(crate) lanes: Vec<Lane>,
    /// `SSH_AUTH_SOCK` where `up` was called; empty if it isn't set.
    pub(crate) ssh_auth_sock: PathBuf,
    /// GnuPG's home on the host; empty for the default one.
    pub(crate) gnupg_home: PathBuf,
    /// What the target may ask.
    pub(crate) policy: Policy,
    /// How many clients can be connected at once.
    pub(crate) max_sessions: usize,
    /// How long things may take.
    pub(crate) limits: Limits,
    /// How long the helper waits for a link that was lost.
    pub(crate) outlive: Duration,
}

/// Which lanes a target can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneScope {
    /// All.
    Target,
    /// It is on the host, where the agents are.
    SecondHome,
    /// They have the host's own home, and can reach no socket.
    Sandboxes,
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
        let uses = options.uses.as_deref().map(parse_uses).transpose()?;
        if let Some(pipes) = options.pipes.as_ref().filter(|pipes| !pipes.starts_with('/')) {
            let message = format!("pipes {}: expected an absolute path", printable(pipes));
            return Err(usage(message));
        }
        let gnupg_home = options.gnupg_home.as_ref().unwrap_or(&environment.gnupg_home);
        Ok(Self {
            lending: Lending { lend: options.lend.clone(), keys: options.keys.clone(), uses },
            narrowing: Narrowing::new(&options)?,
            record: record(options.record.as_deref())?,
            ask_by: ask_by(options.ask_by.as_deref())?,
            lanes: lanes(&options)?,
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
            outlive: options.outlive.map_or(DEFAULT_OUTLIVE, Duration::from_secs),
            options,
        })
    }

    /// GnuPG on the host.
    pub(crate) fn gnupg(&self) -> Gnupg {
        let programs = self.options.gnupg_programs.as_deref();
        Gnupg::in_folder(Some(self.gnupg_home.clone()), programs)
    }

    /// These settings with what another call of `up` names. A file isn't asked again: it must not
    /// widen what a bridge that is up lends.
    pub(crate) fn with(&self, invocation: &Invocation) -> Result<Self> {
        let options = invocation.options.clone().or(&self.options);
        let environment = invocation.environment.clone().or(&self.environment());
        Self::new(options, &environment)
    }

    /// What of the environment they depend on.
    fn environment(&self) -> Environment {
        Environment {
            gnupg_home: self.gnupg_home.clone().into(),
            ssh_auth_sock: self.ssh_auth_sock.clone(),
        }
    }

    /// What a caller would name to get them without a file.
    pub(crate) fn as_invocation(&self) -> Invocation {
        let (options, environment) = (self.options.clone(), self.environment());
        Invocation { options, environment, ..Invocation::default() }
    }

    /// Whether a link that was made with these settings can be used with others. Only the choice of
    /// keys, what narrows it and `SSH_AUTH_SOCK` can be changed on a link; everything else needs another one.
    pub(crate) fn can_share_link(&self, others: &Self, scope: LaneScope) -> bool {
        let other = others.options.clone();
        let has_same_lanes = self.lanes_for(scope) == others.lanes_for(scope);
        let adapted = Self {
            lanes: if has_same_lanes { others.lanes.clone() } else { self.lanes.clone() },
            options: Options {
                lend: other.lend,
                keys: other.keys,
                uses: other.uses,
                ask: other.ask,
                limit: other.limit,
                committers: other.committers,
                logins: other.logins,
                ask_by: other.ask_by,
                ssh_keys: other.ssh_keys,
                record: other.record,
                // The same user by another name: another user is refused before.
                user: other.user,
                ..self.options.clone()
            },
            lending: others.lending.clone(),
            narrowing: others.narrowing.clone(),
            record: others.record,
            ask_by: others.ask_by.clone(),
            policy: Policy { ssh_keys: others.policy.ssh_keys.clone(), ..self.policy.clone() },
            ssh_auth_sock: others.ssh_auth_sock.clone(),
            ..self.clone()
        };
        adapted == *others
    }

    /// The lanes to bridge. A second home can use the ssh-agent anyway, so it gets the ssh lane only by name.
    pub(crate) fn lanes_for(&self, scope: LaneScope) -> Vec<Lane> {
        match scope {
            LaneScope::SecondHome if !self.lanes_are_named() => {
                self.lanes.iter().copied().filter(|lane| *lane != Lane::Ssh).collect()
            }
            LaneScope::Target | LaneScope::SecondHome => self.lanes.clone(),
            LaneScope::Sandboxes => vec![Lane::Git],
        }
    }

    /// Whether the lanes were asked for, by name or by what they are for: one that isn't there is an error then.
    pub(crate) const fn lanes_are_named(&self) -> bool {
        self.options.lanes.is_some() || self.options.uses.is_some()
    }

    /// Whether the place of a lane's agent was set.
    pub(crate) const fn names_agent(&self, lane: Lane) -> bool {
        match lane {
            Lane::Gpg => self.options.gnupg_home.is_some(),
            Lane::Ssh => self.options.ssh_socket.is_some(),
            Lane::Git => false,
        }
    }

    /// Whose keys the git lane lends: who names the lane of one agent, or chooses keys of one, lends it
    /// nothing of the other.
    pub(crate) fn agents_for_git(&self) -> Vec<Lane> {
        let mut named = Lane::AGENTS.to_vec();
        named.retain(|agent| self.options.lanes.is_some() && self.lanes.contains(agent));
        if !named.is_empty() {
            return named;
        }
        let unnamed = Options { lanes: None, uses: None, ..self.options.clone() };
        lanes(&unnamed).unwrap_or_default()
    }

    /// Whether keys of gpg-agent are lent, on its own lane or on git's.
    pub(crate) fn lends_openpgp(&self, scope: LaneScope) -> bool {
        let lanes = self.lanes_for(scope);
        lanes.contains(&Lane::Gpg)
            || lanes.contains(&Lane::Git) && self.agents_for_git().contains(&Lane::Gpg)
    }

    /// What the target may have done.
    pub(crate) fn uses(&self) -> OperationSet {
        self.lending.uses.unwrap_or_default()
    }

    /// The rules of the bridge, with the keys that the hosts of the logins have.
    pub(crate) fn rules(&self, logins: &[LoginRule]) -> Rules {
        let needs_record = self.record == RecordMode::Required;
        Rules { needs_record, ..self.narrowing.rules(self.uses(), logins) }
    }

    /// Whether git in the target is to sign. Who lends commits or tags by name wants that.
    pub(crate) fn git(&self) -> bool {
        let is_lent = || self.options.uses.is_some() && self.lanes.contains(&Lane::Git);
        self.options.git.unwrap_or_else(is_lent)
    }
}

/// The lanes that are named, or those that carry what is lent by name, or both agents', and git's where git is
/// to sign: but who chooses keys of one agent lends nothing of the other.
fn lanes(options: &Options) -> Result<Vec<Lane>> {
    let uses = options.uses.as_deref().map(parse_uses).transpose()?;
    let Some(names) = &options.lanes else {
        // A server of version 1 has no git lane.
        let can_have_git = options.helper.is_none();
        if let Some(uses) = uses {
            let carries =
                |lane: &Lane| uses.has_any_of(*lane) && (*lane != Lane::Git || can_have_git);
            let lanes: Vec<Lane> = Lane::ALL.into_iter().filter(carries).collect();
            return if lanes.is_empty() {
                Err(usage(format!("uses {uses}: a version 1 server has no lane for that")))
            } else {
                Ok(lanes)
            };
        }
        let chooses_gpg = [&options.lend, &options.keys].into_iter().flatten().any(|words| {
            let Ok(filter) = words.parse();
            matches!(filter, KeyFilter::List(_))
        });
        let names_gpg = options.lend.is_some() || options.keys.is_some();
        let chooses_ssh = !ssh_keys(options.ssh_keys.as_deref())?.is_all();
        let mut lanes = match options.ssh_keys {
            None if chooses_gpg => vec![Lane::Gpg],
            Some(_) if chooses_ssh && !names_gpg => vec![Lane::Ssh],
            None | Some(_) => Lane::AGENTS.to_vec(),
        };
        if options.git == Some(true) && can_have_git {
            lanes.push(Lane::Git);
        }
        return Ok(lanes);
    };
    let parse = |name: &String| {
        let lane: Lane =
            name.parse().map_err(|error| usage(format!("lanes: {}: {error}", printable(name))))?;
        match uses.filter(|uses| !uses.has_any_of(lane)) {
            Some(uses) => {
                Err(usage(format!("lanes: uses {uses} lends nothing of the {lane} lane")))
            }
            None => Ok(lane),
        }
    };
    names.iter().map(parse).collect()
}

/// Reads what is lent.
fn parse_uses(words: &[String]) -> Result<OperationSet> {
    let uses: OperationSet = parse_words::<Operation>("uses", words)?.into();
    if uses.is_empty() {
        return Err(usage("uses is empty").hint("leave it out to lend what is usual"));
    }
    Ok(uses)
}

/// Reads how a person is asked.
fn ask_by(words: Option<&[String]>) -> Result<Vec<Way>> {
    words.map_or(Ok(Way::ALL.into()), |words| parse_words("ask-by", words))
}

fn record(mode: Option<&str>) -> Result<RecordMode> {
    let Some(mode) = mode else { return Ok(RecordMode::default()) };
    mode.parse().map_err(|error| usage(format!("record {}: {error}", printable(mode))))
}

fn parse_words<T: FromStr<Err: Display>>(setting: &str, words: &[String]) -> Result<Vec<T>> {
    let parse = |word: &String| {
        let wrong = |error| usage(format!("{setting}: {}: {error}", printable(word)));
        word.trim().parse().map_err(wrong)
    };
    words.iter().map(parse).collect()
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
        assert!(check(lanes("gpgg")).message.contains("the lanes are gpg, ssh and git"));
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
    fn who_chooses_keys_of_one_agent_never_lends_those_of_the_other() {
        let (gpg, ssh, both) = (&[Lane::Gpg][..], &[Lane::Ssh][..], &Lane::AGENTS[..]);
        for (set, lanes) in [
            ("", both),
            ("lend = 'A!'", gpg),
            ("keys = 'A,B'", gpg),
            ("keys = 'pairs'", both),
            ("keys = 'all'", both),
            ("keys = 'pairs'\nlend = 'A'", gpg),
            ("ssh-keys = ['me@*']", ssh),
            ("ssh-keys = ['all']", both),
            ("lend = 'A!'\nssh-keys = ['me@*']", both),
            ("lend = 'A!'\nssh-keys = ['all']", both),
            ("keys = 'pairs'\nssh-keys = ['me@*']", both),
            ("lend = 'A!'\nlanes = ['gpg', 'ssh']", both),
            ("ssh-keys = ['me@*']\nlanes = ['gpg']", gpg),
        ] {
            let options: Options = toml::from_str(set).unwrap();
            let settings = ConfigFile::default().settings("x", &options).unwrap();
            assert_eq!(settings.lanes, lanes, "{set}");
        }
    }

    #[test]
    fn what_is_lent_by_name_decides_which_lanes_there_are() {
        use Lane::{Git, Gpg, Ssh};
        for (set, lanes, signs_git) in [
            ("uses = ['commit']", &[Git][..], true),
            ("uses = ['commit', 'tag']\ngit = false", &[Git], false),
            ("uses = ['sign']", &[Gpg], false),
            ("uses = ['sign']\ngit = true", &[Gpg], true),
            ("uses = ['login', 'decrypt']\nlend = 'A!'", &[Gpg, Ssh], false),
            ("uses = ['tag', 'sshsig']\nssh-keys = ['me@*']", &[Ssh, Git], true),
            ("uses = ['sign', 'login']\nlanes = ['gpg']", &[Gpg], false),
            ("uses = ['commit', 'sign']\nhelper = '/server'", &[Gpg], false),
        ] {
            let options: Options = toml::from_str(set).unwrap();
            let settings = ConfigFile::default().settings("x", &options).unwrap();
            assert_eq!((&*settings.lanes, settings.git()), (lanes, signs_git), "{set}");
        }
        for (set, error) in [
            ("uses = []", "uses is empty"),
            ("uses = ['authenticate']", "no such use; the uses are commit, tag,"),
            ("uses = ['sign', '']", "no such use"),
            ("uses = ['sign']\nlanes = ['ssh']", "uses sign lends nothing of the ssh lane"),
            ("uses = ['commit']\nhelper = '/server'", "a version 1 server has no lane"),
        ] {
            let options: Options = toml::from_str(set).unwrap();
            let failed = ConfigFile::default().settings("x", &options).unwrap_err();
            assert!(failed.kind == ErrorKind::Usage && failed.message.contains(error), "{failed}");
        }
    }

    #[test]
    fn git_never_signs_with_keys_of_an_agent_that_is_not_lent() {
        let (gpg, ssh, both) = (&[Lane::Gpg][..], &[Lane::Ssh][..], &Lane::AGENTS[..]);
        for (set, agents) in [
            ("lanes = ['git']", both),
            ("lanes = ['git', 'gpg']", gpg),
            ("lanes = ['ssh', 'git']", ssh),
            ("lanes = ['gpg', 'ssh', 'git']", both),
            ("lanes = ['git']\nlend = 'A!'", gpg),
            ("lanes = ['git']\nssh-keys = ['me@*']", ssh),
            ("lanes = ['gpg', 'git']\nssh-keys = ['me@*']", gpg),
            ("uses = ['commit']", both),
            ("uses = ['commit', 'login']", both),
            ("uses = ['commit', 'login']\nlend = 'A!'", gpg),
        ] {
            let options: Options = toml::from_str(set).unwrap();
            let settings = ConfigFile::default().settings("x", &options).unwrap();
            assert_eq!(settings.agents_for_git(), agents, "{set}");
            let lends_openpgp = agents.contains(&Lane::Gpg);
            assert_eq!(settings.lends_openpgp(LaneScope::Target), lends_openpgp, "{set}");
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
