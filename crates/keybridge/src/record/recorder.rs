//! Writes the operations of one bridge into the record.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime};

use keybridge_proto::session::{Entry, Outcome, Recorder};

use super::line::{Line, What};
use super::{Journal, RecordMode, record_folder};
use crate::supervisor::utc;

/// How many operations that weren't done are written in a minute. They cost a target nothing, and must not
/// push out what was done.
const NOT_DONE: u32 = 30;
const MINUTE: Duration = Duration::from_mins(1);

/// Writes for one bridge.
#[derive(Debug)]
pub(crate) struct BridgeRecorder {
    journal: Journal,
    target: String,
    id: String,
    mode: Cell<RecordMode>,
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Why the last line couldn't be written.
    problem: Option<String>,
    /// When the minute began, and how many operations that weren't done were written in it.
    minute: Option<(Instant, u32)>,
    /// How many more there were.
    not_done: u64,
    /// How many operations couldn't be written.
    unwritten: u64,
}

impl BridgeRecorder {
    /// One for the bridge of the target with this address and id.
    pub(crate) fn new(target: String, id: String, mode: RecordMode) -> Self {
        let (journal, state) = (Journal::new(record_folder()), RefCell::default());
        Self { journal, target, id, mode: Cell::new(mode), state }
    }

    pub(crate) fn set_mode(&self, mode: RecordMode) {
        self.mode.set(mode);
    }

    /// Why operations can't be recorded, if they can't.
    pub(crate) fn problem(&self) -> Option<String> {
        self.state.borrow().problem.clone()
    }

    /// Writes what was put off.
    pub(crate) fn end(&self) {
        self.write_left_out(&mut self.state.borrow_mut());
    }

    fn record_at(&self, what: &What, now: Instant) {
        let state = &mut *self.state.borrow_mut();
        if state.unwritten > 0 || state.has_new_minute(now) {
            self.write_left_out(state);
        }
        if !state.admit(what, now) {
            state.not_done += 1;
        } else if !self.write(state, what) {
            state.unwritten += 1;
        }
    }

    /// Says how many operations have no line.
    fn write_left_out(&self, state: &mut State) {
        let (not_done, unwritten) = (state.not_done, state.unwritten);
        if not_done + unwritten > 0 && self.write(state, &What::LeftOut { not_done, unwritten }) {
            (state.not_done, state.unwritten) = (0, 0);
        }
    }

    fn write(&self, state: &mut State, what: &What) -> bool {
        // On a disk that is nearly full, a short line may still fit where others don't.
        if state.problem.is_some() && !state.note(self.journal.probe()) {
            return false;
        }
        let written = self.journal.append(|n, prev| Line {
            n,
            time: utc(SystemTime::now()),
            target: self.target.clone(),
            id: self.id.clone(),
            what: what.clone(),
            prev,
        });
        state.note(written)
    }
}

impl State {
    /// Whether what was left out is to be written: once a minute.
    fn has_new_minute(&self, now: Instant) -> bool {
        self.minute.is_none_or(|(since, _)| now.saturating_duration_since(since) >= MINUTE)
    }

    /// Whether an operation gets a line.
    fn admit(&mut self, what: &What, now: Instant) -> bool {
        if self.has_new_minute(now) {
            self.minute = Some((now, 0));
        }
        let is_done = match what {
            What::Operation { result, .. } => *result == Outcome::Succeeded,
            What::LeftOut { .. } => true,
        };
        match &mut self.minute {
            Some((_, count)) if !is_done => {
                *count += 1;
                *count <= NOT_DONE
            }
            Some(_) | None => true,
        }
    }

    /// Takes note of whether the record could be written; says it once in the log.
    fn note(&mut self, written: std::io::Result<()>) -> bool {
        match written {
            Ok(()) => {
                if self.problem.take().is_some() {
                    tracing::info!("operations are recorded again");
                }
                true
            }
            Err(error) => {
                let problem = error.to_string();
                if self.problem.as_ref() != Some(&problem) {
                    tracing::warn!("can't write the record of operations: {problem}");
                }
                self.problem = Some(problem);
                false
            }
        }
    }
}

impl Recorder for BridgeRecorder {
    fn is_ready(&self) -> bool {
        match self.mode.get() {
            RecordMode::On | RecordMode::Off => true,
            RecordMode::Required => {
                let probed = self.journal.probe();
                self.state.borrow_mut().note(probed)
            }
        }
    }

    fn record(&self, entry: &Entry<'_>) {
        if self.mode.get() != RecordMode::Off {
            self.record_at(&What::of(entry), Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use keybridge_proto::Lane;

    use super::super::journal::{lines, read};
    use super::super::line::Signed;
    use super::*;

    fn what(result: Outcome) -> What {
        What::Operation {
            lane: Lane::Gpg,
            operations: [keybridge_proto::Operation::Sign].into_iter().collect(),
            key: "A".to_owned(),
            signed: Signed::Hash,
            decided: None,
            result,
            ms: 0,
        }
    }

    #[test]
    fn what_was_not_done_has_some_lines_a_minute_and_what_was_done_has_each() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::new(folder.path().join("record"));
        let recorder = BridgeRecorder {
            journal: journal.clone(),
            target: "t".to_owned(),
            id: "i".to_owned(),
            mode: Cell::default(),
            state: RefCell::default(),
        };
        let written = || -> Vec<What> {
            let text = read(&journal.newest()).unwrap();
            let lines = lines(&text).map(|line| serde_json::from_slice(line).unwrap());
            lines.map(|line: Line| line.what).collect()
        };
        let most = usize::try_from(NOT_DONE).unwrap();
        let start = Instant::now();
        for _ in 0..most {
            recorder.record_at(&what(Outcome::Refused), start);
            recorder.record_at(&what(Outcome::Failed), start);
            recorder.record_at(&what(Outcome::Succeeded), start);
        }
        let count = |result| written().iter().filter(|one| **one == what(result)).count();
        assert_eq!(count(Outcome::Refused) + count(Outcome::Failed), most);
        assert_eq!(count(Outcome::Succeeded), most);
        recorder.record_at(&what(Outcome::Abandoned), start + MINUTE);
        recorder.end();
        let left_out = What::LeftOut { not_done: u64::from(NOT_DONE), unwritten: 0 };
        assert_eq!(written()[2 * most..], [left_out, what(Outcome::Abandoned)]);
    }
}
