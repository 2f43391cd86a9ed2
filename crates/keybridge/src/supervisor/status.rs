//! The status of a bridge, for people and for programs.

use std::fmt;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use keybridge_proto::report::User;
use keybridge_proto::session::Pending;
use keybridge_proto::{Lane, Operation, OperationSet, PerLane, printable, printable_json};
use serde::{Deserialize, Serialize};

use super::narrowed::Narrowed;
use crate::bridge::LaneStats;
use crate::keyring::{self, Lending};
use crate::{Error, ErrorKind, Hint};

/// The status of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct BridgeStatus {
    /// The target's address.
    pub target: String,
    /// The state.
    pub state: BridgeState,
    /// Why it is in this state, if that needs explaining.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What kind of failure the reason is, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<ErrorKind>,
    /// What a person can do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<Hint>,
    /// The pid of the bridge's process.
    pub pid: u32,
    /// When it began, in UTC.
    pub since: String,
    /// How many seconds ago that was.
    pub age: u64,
    /// The user in the target, once it is known.
    pub user: Option<User>,
    /// What it carries, for each lane that it has.
    #[serde(with = "lanes")]
    pub lanes: PerLane<Option<LaneStatus>>,
    /// Which keys of gpg-agent it should lend.
    pub lending: Lending,
    /// Which keys of the ssh-agent it should lend, if not all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh_keys: Option<Vec<String>>,
    /// What narrows that.
    #[serde(flatten)]
    pub narrowed: Narrowed,
    /// The agents whose keys sign commits and tags over the git lane.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub git_agents: Vec<Lane>,
    /// Why operations can't be recorded, if they can't.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_problem: Option<String>,
    /// The operations that have waited for a second, maybe for a person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<WaitingOperation>,
    /// How many times the link was made again.
    pub reconnects: u32,
    /// The version of the bridge's program.
    pub version: String,
}

/// The state of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BridgeState {
    /// It is being set up.
    #[default]
    Starting,
    /// It works.
    Ready,
    /// The target doesn't run or can't be reached; the bridge waits for it.
    Waiting,
    /// The last attempt failed; there will be another one.
    Failed,
}

/// An operation that isn't done yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WaitingOperation {
    /// What it is: one, or several if the host can't tell which.
    pub what: OperationSet,
    /// What it waits for.
    pub waits_for: WaitsFor,
    /// For how many seconds.
    pub seconds: u64,
}

/// What an operation waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WaitsFor {
    /// A person's yes.
    Answer,
    /// The agent, which may have a dialog open or wait for a touch.
    Agent,
}

impl WaitingOperation {
    /// Those that have waited for a second: a person is slower than an agent.
    pub(super) fn among(pending: Vec<Pending>, now: Instant) -> Vec<Self> {
        let waiting = pending.into_iter().map(|one| Self {
            what: one.what,
            waits_for: if one.is_asked { WaitsFor::Answer } else { WaitsFor::Agent },
            seconds: now.saturating_duration_since(one.since).as_secs(),
        });
        waiting.filter(|one| one.seconds > 0).collect()
    }
}

impl fmt::Display for WaitingOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, waits_for, seconds } = self;
        match waits_for {
            WaitsFor::Answer => write!(f, "{what} waits for a yes for {seconds} s"),
            WaitsFor::Agent => write!(
                f,
                "{what} has been with the agent for {seconds} s, which may wait for a passphrase, a \
                 touch or a yes"
            ),
        }
    }
}

/// One lane of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct LaneStatus {
    /// Where clients in the target connect.
    pub socket: String,
    /// Sessions that are open.
    pub open: u64,
    /// Sessions since the bridge began.
    pub total: u64,
    /// Bytes from the target to the agent.
    pub bytes_in: u64,
    /// Bytes from the agent to the target.
    pub bytes_out: u64,
    /// How many keys are lent, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// How many keys aren't lent, or not for everything, since they are newer than the last `up`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub held_back: u64,
    /// Why no key is lent, if that is an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl LaneStatus {
    pub(super) fn new(socket: &str, carried: LaneStats) -> Self {
        Self {
            socket: socket.to_owned(),
            open: u64::try_from(carried.open).unwrap_or(u64::MAX),
            total: carried.total,
            bytes_in: carried.bytes_in,
            bytes_out: carried.bytes_out,
            keys: None,
            held_back: 0,
            problem: None,
        }
    }

    pub(super) fn lending(self, lent: keyring::Summary) -> Self {
        let keys = Some(u64::try_from(lent.keys).unwrap_or(u64::MAX));
        Self { keys, held_back: lent.held_back, problem: lent.problem, ..self }
    }
}

/// An object with the lanes that there are, by their names.
mod lanes {
    use super::{LaneStatus, PerLane};
    use serde::{Deserialize, Deserializer, Serializer};
    use std::collections::HashMap;

    pub(super) fn serialize<S: Serializer>(
        lanes: &PerLane<Option<LaneStatus>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let present = lanes.iter().filter_map(|(lane, status)| Some((lane, status.as_ref()?)));
        serializer.collect_map(present.map(|(lane, status)| (lane.to_string(), status)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PerLane<Option<LaneStatus>>, D::Error> {
        let mut lanes: HashMap<String, LaneStatus> = HashMap::deserialize(deserializer)?;
        Ok(PerLane::from_fn(|lane| lanes.remove(&lane.to_string())))
    }
}

impl BridgeStatus {
    /// The status of a bridge that failed.
    pub(super) fn failed(self, error: &Error) -> Self {
        let Error { kind, message, hints, .. } = error.clone();
        Self { state: BridgeState::Failed, reason: Some(message), kind: Some(kind), hints, ..self }
    }

    /// What it lends, in one line.
    pub(crate) fn lent(&self) -> String {
        let uses = self.uses();
        // What the keys of an agent are lent for, on its own lane and on git's.
        let words = |agent: Lane| {
            let is_carried = |operation: &Operation| match operation.lane() {
                Lane::Git => self.git_agents.contains(&agent),
                lane => lane == agent && self.lanes[lane].is_some(),
            };
            let words = uses.iter().filter(is_carried).map(|one| self.narrowed.word(one));
            let words: Vec<String> = words.collect();
            (!words.is_empty()).then(|| words.join(", "))
        };
        let keys = [Lane::Gpg, Lane::Git].map(|lane| self.lanes[lane].as_ref()?.keys);
        let gpg = words(Lane::Gpg).map(|words| match keys.into_iter().flatten().next() {
            Some(1) => format!("1 key of gpg-agent ({words})"),
            Some(keys) => format!("{keys} keys of gpg-agent ({words})"),
            None => format!("keys of gpg-agent ({words})"),
        });
        let ssh = words(Lane::Ssh).map(|words| {
            // All that an ssh-agent does goes without saying.
            let words =
                if words == "login, sshsig" { String::new() } else { format!(" ({words})") };
            match &self.ssh_keys {
                Some(keys) => {
                    format!("of the ssh-agent's keys {}{words}", printable(&keys.join(", ")))
                }
                None => format!("every key of the ssh-agent{words}"),
            }
        });
        let lent: Vec<String> = gpg.into_iter().chain(ssh).collect();
        if lent.is_empty() {
            "nothing lent".to_owned()
        } else {
            let carried = uses.iter().filter(|one| self.lanes[one.lane()].is_some()).collect();
            format!("lent: {}{}", lent.join("; "), self.narrowed.describe(carried))
        }
    }

    fn uses(&self) -> OperationSet {
        self.lending.uses.unwrap_or_default()
    }

    /// Why some of what is lent is refused.
    pub(crate) fn warnings(&self) -> Vec<String> {
        self.narrowed.warnings(self.uses())
    }

    /// A warning for who has named what is to be asked for.
    pub(crate) fn asked_in_vain(&self) -> Option<String> {
        self.narrowed.asked_in_vain(self.uses())
    }

    /// Why a bridge that isn't ready can't be used.
    pub(super) fn error(&self) -> Error {
        let bridge = format!("the bridge to {}", self.target);
        let mut message = match self.state {
            BridgeState::Failed => format!("{bridge} failed"),
            BridgeState::Starting | BridgeState::Ready | BridgeState::Waiting => {
                format!("{bridge} is {}", self.state.word())
            }
        };
        if let Some(reason) = &self.reason {
            message = format!("{message}: {reason}");
        }
        Error::new(self.kind.unwrap_or(ErrorKind::Failed), message).with_hints(&self.hints)
    }
}

/// What `--json` prints: the bridges, and the error that occurred for the others.
pub(crate) fn to_json<B: Serialize>(bridges: &[B], error: Option<&Error>) -> String {
    let mut object = serde_json::json!({ "bridges": bridges });
    if let (Some(error), Some(object)) = (error, object.as_object_mut()) {
        object.insert("error".to_owned(), serde_json::json!(error));
    }
    printable_json(&object.to_string())
}

impl BridgeState {
    /// Its name, for people and programs.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
        }
    }
}

/// A moment as RFC 3339 has it, in UTC.
pub(crate) fn utc(moment: SystemTime) -> String {
    let seconds = moment.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (rest / 3600, rest % 3600 / 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The date of a day since 1970, by counting years from 1 March, when leap days come last.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn moments_are_written_in_utc() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_700_000_000, "2023-11-14T22:13:20Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_bridge_that_failed_tells_the_kind_and_the_hints() {
        let error = Error::new(ErrorKind::InUse, "/s is in use").hint("use --replace");
        let target = "docker://web".to_owned();
        let status = BridgeStatus { target, ..BridgeStatus::default() }.failed(&error);
        let told: serde_json::Value =
            serde_json::from_str(&to_json(std::slice::from_ref(&status), Some(&error))).unwrap();
        for (object, text) in [(&told["bridges"][0], "reason"), (&told["error"], "message")] {
            assert_eq!(object["kind"], "in-use", "{told}");
            assert_eq!(object["hints"][0], "use --replace", "{told}");
            assert_eq!(object[text], "/s is in use", "{told}");
        }
        let again = status.error();
        assert_eq!(again.to_string(), "the bridge to docker://web failed: /s is in use");
        assert_eq!((again.kind, again.hints), (error.kind, error.hints));
    }
}
