//! The settings of a bridge in the target, from the command line of `serve`. A setting is declared only
//! here: a field, its default, and a row of the table.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use keybridge_proto::mux::DEFAULT_MAX_STREAMS;
use keybridge_proto::{Lane, PerLane, printable};
use tracing::Level;

use crate::{BridgeToken, FileId, GitSigning};

/// A process never has more descriptors.
const MOST_SESSIONS: usize = 65_536;

/// A week is longer than anyone waits for a bridge.
const LONGEST_OUTLIVING: u64 = 7 * 24 * 3600;

/// The settings.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Which lanes to serve.
    pub lanes: LaneSelection,
    /// How many clients are served at once; the link has to allow as many streams.
    pub max_sessions: usize,
    /// The host's own GnuPG home and ssh folder, which are never bridged.
    pub host_folders: PerLane<Option<FileId>>,
    /// Take over the sockets of agents and bridges that answer there.
    pub replace: bool,
    /// Ask the agents through the sockets when the bridge is ready.
    pub ask: bool,
    /// How git should sign, if it should.
    pub git: Option<GitSigning>,
    /// Where sandboxes find the pipes of the git lane, if not in the lane's own folder.
    pub pipes: Option<PathBuf>,
    /// Which bridge this is, if it has a name: a newer helper of the same one takes over.
    pub bridge: Option<BridgeToken>,
    /// How long to stay after the link is lost.
    pub outlive: Duration,
    /// What is logged.
    pub log: Level,
}

/// The lanes of a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneSelection {
    /// Those to set up. One that can't be is a warning, as long as another one can.
    pub served: Vec<Lane>,
    /// Those without which there is no bridge.
    pub needed: Vec<Lane>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lanes: LaneSelection { served: vec![Lane::Gpg], needed: Vec::new() },
            max_sessions: DEFAULT_MAX_STREAMS,
            host_folders: PerLane::default(),
            replace: false,
            ask: false,
            git: None,
            pipes: None,
            bridge: None,
            outlive: Duration::ZERO,
            log: Level::WARN,
        }
    }
}

/// An option of `serve`.
struct Row {
    flag: &'static str,
    /// The placeholder for its value in the help; empty for a switch.
    value: &'static str,
    /// Lines of the help.
    help: &'static [&'static str],
    read: fn(&mut Settings, &str) -> Result<(), String>,
}

const TABLE: &[Row] = &[
    Row {
        flag: "--lanes",
        value: "LANES",
        help: &["what to bridge: gpg, ssh and git, or some of them (gpg)"],
        read: |settings, text| lanes(text).map(|lanes| settings.lanes.served = lanes),
    },
    Row {
        flag: "--need",
        value: "LANES",
        help: &[
            "fail without these lanes. Otherwise a target without GnuPG, or an ssh lane that",
            "can't be set up, is a warning, as long as one lane works (none)",
        ],
        read: |settings, text| {
            let needed = if text.is_empty() { Vec::new() } else { lanes(text)? };
            settings.lanes.needed = needed;
            Ok(())
        },
    },
    Row {
        flag: "--max-sessions",
        value: "N",
        help: &["how many clients are served at once (256)"],
        read: |settings, text| {
            number(text, 1..=MOST_SESSIONS).map(|number| settings.max_sessions = number)
        },
    },
    Row {
        flag: "--host-home",
        value: "DEV:INO",
        help: &["device and inode of the host's own GnuPG home, which is never bridged"],
        read: |settings, text| parsed(text).map(|id| settings.host_folders.gpg = Some(id)),
    },
    Row {
        flag: "--host-ssh",
        value: "DEV:INO",
        help: &["the same of the host's own ssh folder"],
        read: |settings, text| parsed(text).map(|id| settings.host_folders.ssh = Some(id)),
    },
    Row {
        flag: "--replace",
        value: "",
        help: &[
            "take over the sockets of agents and bridges that answer there; units of systemd's",
            "that own them are masked until the bridge ends",
        ],
        read: |settings, _| {
            settings.replace = true;
            Ok(())
        },
    },
    Row {
        flag: "--ask",
        value: "",
        help: &[
            "when ready, ask the agents through the sockets and report what they say:",
            "gpg-agent its version, an ssh-agent how many keys it has",
        ],
        read: |settings, _| {
            settings.ask = true;
            Ok(())
        },
    },
    Row {
        flag: "--git",
        value: "KEY",
        help: &[
            "have git sign with gpg=FINGERPRINT, or with ssh=PUBLICKEY, a line as in the file",
            "of an SSH public key; with sandboxes, only what runs in a sandbox asks the host",
        ],
        read: |settings, text| parsed(text).map(|key| settings.git = Some(key)),
    },
    Row {
        flag: "--pipes",
        value: "DIR",
        help: &[
            "a folder that a sandbox may write to, for the pipes of the git lane; they are in",
            "the lane's own folder otherwise",
        ],
        read: |settings, text| folder(text).map(|folder| settings.pipes = Some(folder)),
    },
    Row {
        flag: "--bridge",
        value: "TOKEN",
        help: &[
            "8 to 64 hexadecimal digits that name the bridge: a newer helper of the same",
            "bridge takes over from an older one",
        ],
        read: |settings, text| parsed(text).map(|token| settings.bridge = Some(token)),
    },
    Row {
        flag: "--outlive",
        value: "SECONDS",
        help: &["stay this long after the link is lost, with an error for every client (0)"],
        read: |settings, text| {
            let seconds = number(text, 0..=LONGEST_OUTLIVING)?;
            settings.outlive = Duration::from_secs(seconds);
            Ok(())
        },
    },
    Row {
        flag: "--log",
        value: "LEVEL",
        help: &["error, warn, info, debug or trace, on standard error (warn)"],
        read: |settings, text| level(text).map(|level| settings.log = level),
    },
];

/// An option of `serve` that was found by its flag.
pub struct ServeOption(&'static Row);

impl ServeOption {
    /// Finds the option of a flag.
    pub fn find(flag: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.flag == flag).map(Self)
    }

    /// Whether it has a value.
    pub fn has_value(&self) -> bool {
        !self.0.value.is_empty()
    }

    /// Reads its value into the settings. An error names the option and the value.
    pub fn read(&self, settings: &mut Settings, value: &str) -> Result<(), String> {
        let named = |why| format!("{} {}: {why}", self.0.flag, printable(value));
        (self.0.read)(settings, value).map_err(named)
    }
}

impl Settings {
    /// Whether the settings fit each other.
    pub fn check(&self) -> Result<(), String> {
        let is_missing = |lane: &Lane| !self.lanes.served.contains(lane);
        if let Some(lane) = self.lanes.needed.iter().find(|lane| is_missing(lane)) {
            return Err(format!("--need {lane}: it is not among the --lanes"));
        }
        let needed = self.git.as_ref().filter(|_| is_missing(&Lane::Git)).map(GitSigning::lane);
        if let Some(lane) = needed.filter(is_missing) {
            return Err(format!("--git {lane}: it is not among the --lanes"));
        }
        Ok(())
    }

    /// The lines of the help, one or more for each option.
    pub fn help() -> String {
        let row = |Row { flag, value, help, .. }: &Row| -> String {
            let lines = help.iter().enumerate().map(|(number, line)| {
                let left = if number == 0 { format!("{flag} {value}") } else { String::new() };
                format!("  {left:<20} {line}\n")
            });
            lines.collect()
        };
        TABLE.iter().map(row).collect()
    }
}

fn parsed<T: FromStr<Err = &'static str>>(text: &str) -> Result<T, String> {
    text.parse().map_err(str::to_owned)
}

fn folder(text: &str) -> Result<PathBuf, String> {
    let folder = PathBuf::from(text);
    if folder.is_absolute() { Ok(folder) } else { Err("expected an absolute path".to_owned()) }
}

fn number<T>(text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    let number = text.parse().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| format!("expected {} to {}", range.start(), range.end()))
}

fn lanes(text: &str) -> Result<Vec<Lane>, String> {
    let lane = |word: &str| word.parse::<Lane>().map_err(|error| error.to_string());
    text.split(',').map(lane).collect()
}

fn level(text: &str) -> Result<Level, String> {
    match text {
        "error" => Ok(Level::ERROR),
        "warn" => Ok(Level::WARN),
        "info" => Ok(Level::INFO),
        "debug" => Ok(Level::DEBUG),
        "trace" => Ok(Level::TRACE),
        _ => Err("expected error, warn, info, debug or trace".to_owned()),
    }
}
