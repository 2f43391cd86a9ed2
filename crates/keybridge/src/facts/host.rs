//! What is gathered on the host.

use std::path::{Path, PathBuf};

use keybridge_proto::gate::KeyGrip;
use keybridge_proto::printable;

use crate::agent::{AgentDialer, QuestionError};
use crate::config::{Options, Settings};
use crate::facts::{HOST_TIME, not_known, within};
use crate::gnupg::{Dirs, Gnupg};
use crate::keyring::{Ceiling, Lending, Overview};
use crate::platform::{Privacy, privacy_of};
use crate::setup::agents::ssh_dialer;
use crate::ssh_agent::{FoundSshAgent, KeyList, LimitedKeys};
use crate::supervisor::BridgeManager;
use crate::supervisor::state::StateRoot;
use crate::target::TargetAddress;
use crate::{Error, ErrorKind, Result};

/// The host.
#[derive(Debug)]
pub(crate) struct HostFacts {
    pub(crate) gnupg: Gnupg,
    /// gpg's version.
    pub(crate) gpg: Result<String>,
    pub(crate) dirs: Result<Dirs>,
    /// The running agent. It isn't started for this.
    pub(crate) agent: Result<RunningAgent>,
    /// The process at the agent's socket, if it doesn't answer.
    pub(crate) hung_agent: Option<u32>,
    /// The socket that targets get, once it was proven to be restricted.
    pub(crate) extra_socket: Result<PathBuf>,
    pub(crate) keys: Result<Overview>,
    /// The first lent key that signs without a question, by its fingerprint; or why there is none.
    pub(crate) quiet_key: Result<String, String>,
    pub(crate) ssh: Result<(FoundSshAgent, KeyList)>,
    /// The keys of the ssh-agent that are limited to destinations.
    pub(crate) limited_keys: Option<LimitedKeys>,
    pub(crate) state: StateSummary,
}

/// gpg-agent, as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunningAgent {
    pub(crate) version: String,
    pub(crate) pid: String,
}

/// keybridge's own folder, and access to the bridges.
#[derive(Debug)]
pub(crate) struct StateFacts {
    summary: StateSummary,
    /// `None` if the folder is missing or can't be used.
    pub(crate) manager: Option<BridgeManager>,
}

/// keybridge's own folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StateSummary {
    pub(crate) path: PathBuf,
    /// `None` if it doesn't exist yet.
    pub(crate) privacy: Option<Privacy>,
    /// Targets whose bridges were killed.
    pub(crate) killed: Vec<TargetAddress>,
}

impl StateFacts {
    pub(crate) fn gather(options: &Options) -> Self {
        let path = StateRoot::path();
        let privacy = std::fs::symlink_metadata(&path).ok().map(|found| privacy_of(&path, &found));
        // It would create a folder that is missing.
        let manager = match privacy {
            Some(Privacy::Private) => BridgeManager::new(options.clone()).ok(),
            Some(Privacy::TooOpen | Privacy::NotOurs) | None => None,
        };
        let killed = manager.iter().flat_map(BridgeManager::killed).map(|(address, _)| address);
        let killed = killed.collect();
        Self { summary: StateSummary { path, privacy, killed }, manager }
    }

    /// Whether the folder doesn't exist yet.
    pub(crate) const fn is_missing(&self) -> bool {
        self.summary.privacy.is_none()
    }
}

impl HostFacts {
    /// Gathers everything. `lending` and `ceiling` are those of a bridge, if there is one.
    pub(crate) async fn gather(
        settings: &Settings,
        state: &StateFacts,
        lending: Option<Lending>,
        ceiling: Option<Ceiling>,
    ) -> Self {
        let gnupg = settings.gnupg();
        let lending = lending.unwrap_or_else(|| settings.lending.clone());
        let dialer = ssh_dialer(settings, &gnupg);
        let ssh = async {
            let found = within("the ssh-agent", HOST_TIME, dialer.find()).await;
            let limited = match &found {
                Ok(_) => tokio::time::timeout(HOST_TIME, dialer.limited_keys()).await.ok(),
                Err(_) => None,
            };
            (found, limited.flatten())
        };
        let (gpg, with_agent, (ssh, limited_keys)) = tokio::join!(
            within("gpg", HOST_TIME, version(&gnupg)),
            with_agent(&gnupg, settings, &lending, ceiling.as_ref()),
            ssh,
        );
        let WithAgent { dirs, agent, extra_socket, keys, quiet_key } = with_agent;
        let socket = dirs.as_ref().ok().filter(|_| agent.is_err()).map(|dirs| &dirs.agent_socket);
        let hung_agent = socket.and_then(|socket| listener_at(socket));
        let state = state.summary.clone();
        Self {
            gnupg,
            gpg,
            dirs,
            agent,
            hung_agent,
            extra_socket,
            keys,
            quiet_key,
            ssh,
            limited_keys,
            state,
        }
    }
}

async fn version(gnupg: &Gnupg) -> Result<String> {
    const LIMIT: usize = 64 * 1024;
    let output = gnupg.gpg(&["--version".into()], LIMIT).await?;
    let text = String::from_utf8_lossy(&output.stdout);
    let first = text.lines().next().unwrap_or_default();
    // `gpg (GnuPG) 2.2.40`, or `gpg (GnuPG/MacGPG2) 2.2.41`.
    match first.rsplit_once(' ') {
        Some((program, version)) if program.starts_with("gpg ") => {
            Ok(printable(version).to_string())
        }
        _ if !output.status.success() => Err(output.error("gpg")),
        _ => {
            let message = format!("`gpg --version` printed {}", printable(first));
            Err(Error::new(ErrorKind::NoAgent, message))
        }
    }
}

/// What depends on the running agent.
struct WithAgent {
    dirs: Result<Dirs>,
    agent: Result<RunningAgent>,
    extra_socket: Result<PathBuf>,
    keys: Result<Overview>,
    quiet_key: Result<String, String>,
}

impl WithAgent {
    /// Without an agent that answers.
    fn unknown(dirs: Result<Dirs>, agent: Result<RunningAgent>) -> Self {
        let (extra_socket, keys, quiet_key) =
            (Err(not_known()), Err(not_known()), Err(String::new()));
        Self { dirs, agent, extra_socket, keys, quiet_key }
    }
}

/// Gathers that. gpg would start an agent, and so change what is to be checked.
async fn with_agent(
    gnupg: &Gnupg,
    settings: &Settings,
    lending: &Lending,
    ceiling: Option<&Ceiling>,
) -> WithAgent {
    let dirs = match within("gpgconf", HOST_TIME, gnupg.dirs()).await {
        Ok(dirs) => dirs,
        Err(error) => return WithAgent::unknown(Err(error), Err(not_known())),
    };
    let main = AgentDialer::at(&dirs.agent_socket);
    let agent = within("gpg-agent", HOST_TIME, running_agent(&main)).await;
    if agent.is_err() {
        return WithAgent::unknown(Ok(dirs), agent);
    }
    let extra = async {
        let dialer = AgentDialer::find(gnupg.clone(), settings.policy.socket).await?;
        Ok(dialer.path().to_owned())
    };
    let keys = async {
        let keys = within("gpg", HOST_TIME, Overview::make(gnupg, lending, ceiling)).await;
        let quiet_key = match &keys {
            Ok(keys) => quiet_key(&main, keys).await,
            Err(_) => Err(String::new()),
        };
        (keys, quiet_key)
    };
    let extra = within("gpg-agent's restricted socket", HOST_TIME, extra);
    let (extra_socket, (keys, quiet_key)) = tokio::join!(extra, keys);
    WithAgent { dirs: Ok(dirs), agent, extra_socket, keys, quiet_key }
}

async fn running_agent(agent: &AgentDialer) -> Result<RunningAgent> {
    let commands = ["GETINFO version", "GETINFO pid"].map(str::to_owned);
    let answers = agent.ask(&commands).await.map_err(unanswered)?;
    let mut values = answers.into_iter().map(|answer| {
        let data = answer.ok().and_then(|lines| lines.into_iter().next());
        let data = data.and_then(|line| line.strip_prefix("D ").map(str::to_owned));
        printable(&data.unwrap_or_else(|| "unknown".to_owned())).to_string()
    });
    let (version, pid) = (values.next().unwrap_or_default(), values.next().unwrap_or_default());
    Ok(RunningAgent { version, pid })
}

fn unanswered(error: QuestionError) -> Error {
    match error {
        QuestionError::Dial(error) if error.is_absence() => {
            Error::new(ErrorKind::AgentAbsent, "gpg-agent isn't running")
        }
        other => Error::from_source(ErrorKind::NoAgent, other),
    }
}

/// How many keys gpg-agent is asked about.
const MOST_ASKED: usize = 8;

/// Finds a lent key that signs without a question: no card, and no passphrase or one that is cached.
async fn quiet_key(agent: &AgentDialer, keys: &Overview) -> std::result::Result<String, String> {
    let lent = keys.own.iter().filter(|key| key.signs && key.is_openpgp && key.is_valid);
    let lent: Vec<(&str, &KeyGrip)> = lent
        .filter_map(|key| Some((key.fingerprint.as_str(), key.keygrips.first()?)))
        .take(MOST_ASKED)
        .collect();
    if lent.is_empty() {
        return Err("no key is lent for signatures".to_owned());
    }
    let commands: Vec<String> = lent.iter().map(|(_, grip)| format!("KEYINFO {grip}")).collect();
    let ask = async { agent.ask(&commands).await.map_err(unanswered) };
    let answers = within("gpg-agent", HOST_TIME, ask).await.map_err(|error| error.message)?;
    let mut why = "gpg-agent has none of the lent keys".to_owned();
    for ((fingerprint, _), answer) in lent.iter().zip(answers) {
        let lines = answer.unwrap_or_default();
        match lines.iter().find_map(|line| KeyState::parse(line)) {
            Some(KeyState::Quiet) => return Ok((*fingerprint).to_owned()),
            Some(KeyState::Asks) => {
                why = "the lent key would ask for its passphrase".to_owned();
            }
            Some(KeyState::OnCard) => why = "the lent key is on a card".to_owned(),
            None => {}
        }
    }
    Err(why)
}

/// Whether a key asks before it signs.
#[derive(Debug, PartialEq, Eq)]
enum KeyState {
    Quiet,
    Asks,
    OnCard,
}

impl KeyState {
    /// Reads `S KEYINFO KEYGRIP TYPE SERIALNO IDSTR CACHED PROTECTION FPR TTL FLAGS`.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<&str> = line.strip_prefix("S KEYINFO ")?.split(' ').collect();
        let field = |number: usize| fields.get(number).copied().unwrap_or_default();
        // `c` is the flag of a key that asks for each use.
        let confirms = field(8).contains('c');
        match (field(1), field(4), field(5)) {
            ("T", ..) => Some(Self::OnCard),
            ("D", _, "C") | ("D", "1", _) if !confirms => Some(Self::Quiet),
            ("D", ..) => Some(Self::Asks),
            _ => None,
        }
    }
}

/// The process of this user that listens at a path, where `/proc` tells. The kernel's own answer to a client
/// names the process that called listen, which isn't gpg-agent any more: it goes on as a child of that one.
pub(crate) fn listener_at(path: &Path) -> Option<u32> {
    let sockets = std::fs::read_to_string("/proc/net/unix").ok()?;
    let inode = sockets.lines().find_map(|line| inode_of(line, path))?;
    let link = format!("socket:[{inode}]");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    pids.find(|pid: &u32| {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten();
        let mut links = descriptors.flatten().filter_map(|entry| entry.path().read_link().ok());
        links.any(|found| found.as_os_str() == link.as_str())
    })
}

/// Reads `NUMBER: REFERENCES PROTOCOL FLAGS TYPE STATE INODE PATH` of a socket that is listened at.
fn inode_of<'a>(line: &'a str, path: &Path) -> Option<&'a str> {
    const LISTENS: &str = "00010000";
    let mut fields = line.split_ascii_whitespace();
    let flags = fields.nth(3)?;
    let inode = fields.nth(2)?;
    (flags == LISTENS && Path::new(fields.next()?) == path).then_some(inode)
}

#[cfg(test)]
impl HostFacts {
    /// Nothing was gathered.
    pub(crate) fn none() -> Self {
        Self {
            gnupg: Gnupg::new(None),
            gpg: Err(not_known()),
            dirs: Err(not_known()),
            agent: Err(not_known()),
            hung_agent: None,
            extra_socket: Err(not_known()),
            keys: Err(not_known()),
            quiet_key: Err(String::new()),
            ssh: Err(not_known()),
            limited_keys: None,
            state: StateSummary { path: PathBuf::new(), privacy: None, killed: Vec::new() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_quiet_without_a_passphrase_or_with_one_that_is_cached() {
        let state = |rest: &str| KeyState::parse(&format!("S KEYINFO AB {rest}"));
        assert_eq!(state("D - - - C - - -"), Some(KeyState::Quiet));
        assert_eq!(state("D - - 1 P - - -"), Some(KeyState::Quiet));
        assert_eq!(state("D - - - P - - -"), Some(KeyState::Asks));
        assert_eq!(state("D - - 1 P - - c"), Some(KeyState::Asks));
        assert_eq!(state("T D27600 OPENPGP.1 - - - - -"), Some(KeyState::OnCard));
        assert_eq!(state("- - - - - - - -"), None);
        assert_eq!(KeyState::parse("D 123"), None);
    }

    #[test]
    fn only_a_socket_at_the_path_that_is_listened_at_counts() {
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 4711 /run/S.gpg-agent";
        let path = Path::new("/run/S.gpg-agent");
        assert_eq!(inode_of(line, path), Some("4711"));
        assert_eq!(inode_of(line, Path::new("/run/S")), None);
        assert_eq!(inode_of(&line.replace("00010000", "00000000"), path), None);
        assert_eq!(inode_of("Num RefCount Protocol Flags Type St Inode Path", path), None);
    }
}
