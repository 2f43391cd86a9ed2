//! The status of a bridge, for people and for programs.

use std::time::{SystemTime, UNIX_EPOCH};

use keybridge_proto::gate::Caller;
use keybridge_proto::{PerLane, printable_json};
use serde::{Deserialize, Serialize};

use crate::bridge::{LaneStats, LinkPath};
use crate::caller;
use crate::keyring::{self, Lending};
use crate::{Error, ErrorKind};

/// The status of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BridgeStatus {
    /// The target's address.
    pub target: String,
    /// The state.
    pub state: BridgeState,
    /// Why it is in this state, if that needs explaining.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What kind of failure the reason is, if it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<ErrorKind>,
    /// What a person can do about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hints: Vec<String>,
    /// The pid of the bridge's process.
    pub pid: u32,
    /// When it began, in UTC.
    pub since: String,
    /// How many seconds ago that was.
    #[serde(default)]
    pub age: u64,
    /// The user in the target.
    pub user: String,
    /// What it carries, for each lane that it has.
    #[serde(with = "lanes")]
    pub lanes: PerLane<Option<LaneStatus>>,
    /// Which keys of gpg-agent it should lend.
    #[serde(default)]
    pub lending: Lending,
    /// Which path the bytes take, where there is a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<LinkPath>,
    /// How many times the link was made again.
    pub reconnects: u32,
    /// The version of the bridge's program.
    pub version: String,
}

/// The state of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BridgeState {
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

/// One lane of a bridge.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LaneStatus {
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<u64>,
    /// Why no key is lent, if that is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Who has the open sessions, the newest first, where that is known; at most `MOST_CALLERS`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<serde_json::Value>,
}

/// How many callers of a lane are told, so that the status fits into a line of the control socket.
pub(super) const MOST_CALLERS: usize = 12;

impl LaneStatus {
    pub(super) fn new(socket: &str, carried: LaneStats) -> Self {
        Self {
            socket: socket.to_owned(),
            open: u64::try_from(carried.open).unwrap_or(u64::MAX),
            total: carried.total,
            bytes_in: carried.bytes_in,
            bytes_out: carried.bytes_out,
            keys: None,
            problem: None,
            callers: Vec::new(),
        }
    }

    pub(super) fn used_by(self, callers: &[Caller]) -> Self {
        Self { callers: callers.iter().map(caller::to_json).collect(), ..self }
    }

    pub(super) fn lending(self, lent: keyring::Summary) -> Self {
        let keys = Some(u64::try_from(lent.keys).unwrap_or(u64::MAX));
        Self { keys, problem: lent.problem, ..self }
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
pub(crate) fn to_json(bridges: &[BridgeStatus], error: Option<&Error>) -> String {
    let mut object = serde_json::json!({ "bridges": bridges });
    if let (Some(error), Some(object)) = (error, object.as_object_mut()) {
        object.insert("error".to_owned(), serde_json::json!(error));
    }
    printable_json(&object.to_string())
}

impl BridgeState {
    /// Its name, for people and programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
        }
    }
}

/// A moment as RFC 3339 has it, in UTC.
pub(super) fn utc(moment: SystemTime) -> String {
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
    use super::super::control::LINE_LIMIT;
    use super::*;
    use keybridge_proto::gate::{ContainerId, MOST_PARENTS, Parent, Place, Program, Source, Text};
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
    fn the_longest_callers_fit_into_a_line_of_the_control_socket() {
        // A backslash is printable, and JSON writes it as two.
        let text = || Text::new(&[b'\\'; 4096]);
        let parent = || Parent { pid: u32::MAX, name: text() };
        let mut program = Program {
            executable: Some(text()),
            folder: Some(text()),
            parents: std::iter::repeat_with(parent).take(MOST_PARENTS).collect(),
            ..Program::default()
        };
        program.set_arguments(&[b"\\".repeat(4096), b"\0".to_vec()].concat());
        let caller = Caller {
            source: Source::Proven,
            pid: Some(u32::MAX),
            uid: u32::MAX,
            gid: u32::MAX,
            container: ContainerId::parse(&"f".repeat(64)),
            place: Place::OtherContainer,
            program,
        };
        let callers = vec![caller; MOST_CALLERS];
        let lane = Some(LaneStatus::default().used_by(&callers));
        let lanes = PerLane { gpg: lane.clone(), ssh: lane };
        let status = BridgeStatus { lanes, ..BridgeStatus::default() };
        let size = serde_json::to_string(&status).unwrap().len();
        // The rest of the status needs some kilobytes.
        assert!(size < usize::try_from(LINE_LIMIT).unwrap() * 3 / 4, "{size}");
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
