//! Writes the operations of one bridge into the record.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant, SystemTime};

use keybridge_proto::session::{Entry, Outcome, Recorder};

use super::line::{Line, What};
use super::{Journal, RecordMode, record_folder};
use crate::supervisor::utc;

/// How many operations that weren't done are written at once, and then in what time another one, and a count
/// of the others. They cost a target nothing, and must not push out what was done.
const NOT_DONE: u32 = 60;
const NOT_DONE_INTERVAL: Duration = Duration::from_mins(6);

/// For how long it is known whether a line can be written: finding it out writes to the disk, and a target can
/// ask for it without end.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

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
    /// When it was found out last whether one can be written, if none was written since.
    probed: Option<Instant>,
    /// When the time for another operation that wasn't done began, and how many were written that no time
    /// has passed for.
    interval: Option<(Instant, u32)>,
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
        let state = &mut *self.state.borrow_mut();
        state.probed = None;
        self.write_left_out(state, Instant::now());
    }

    fn is_ready_at(&self, now: Instant) -> bool {
        match self.mode.get() {
            RecordMode::On | RecordMode::Off => true,
            RecordMode::Required => self.can_write(&mut self.state.borrow_mut(), now),
        }
    }

    fn can_write(&self, state: &mut State, now: Instant) -> bool {
        let is_known = |at: Instant| now.saturating_duration_since(at) < PROBE_INTERVAL;
        if state.probed.is_some_and(is_known) {
            return state.problem.is_none();
        }
        state.probed = Some(now);
        state.note(self.journal.probe())
    }

    fn record_at(&self, what: &What, now: Instant) {
        let state = &mut *self.state.borrow_mut();
        let is_new_interval = state.pass(now);
        let is_admitted = state.admit(what);
        if is_new_interval || is_admitted && state.unwritten > 0 {
            self.write_left_out(state, now);
        }
        if !is_admitted {
            state.not_done += 1;
        } else if !self.write(state, what, now) {
            state.unwritten += 1;
        }
    }

    /// Says how many operations have no line.
    fn write_left_out(&self, state: &mut State, now: Instant) {
        let (not_done, unwritten) = (state.not_done, state.unwritten);
        let what = What::LeftOut { not_done, unwritten };
        if not_done + unwritten > 0 && self.write(state, &what, now) {
            (state.not_done, state.unwritten) = (0, 0);
        }
    }

    fn write(&self, state: &mut State, what: &What, now: Instant) -> bool {
        // On a disk that is nearly full, a short line may still fit where others don't.
        if state.problem.is_some() && !self.can_write(state, now) {
            return false;
        }
        state.probed = None;
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
    /// Time has passed. Says whether what was left out is to be written.
    fn pass(&mut self, now: Instant) -> bool {
        let (since, count) = self.interval.unwrap_or((now, 0));
        let passed = now.saturating_duration_since(since).as_secs() / NOT_DONE_INTERVAL.as_secs();
        let passed = u32::try_from(passed).unwrap_or(u32::MAX);
        let since = if passed > 0 { now } else { since };
        self.interval = Some((since, count.saturating_sub(passed)));
        passed > 0
    }

    /// Whether an operation gets a line.
    fn admit(&mut self, what: &What) -> bool {
        let is_done = match what {
            What::Operation { result, .. } => *result == Outcome::Succeeded,
            What::LeftOut { .. } => true,
        };
        match &mut self.interval {
            Some((_, count)) if !is_done => {
                let has_room = *count < NOT_DONE;
                *count += u32::from(has_room);
                has_room
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
        self.is_ready_at(Instant::now())
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

    /// A record in a folder of its own.
    struct Scene {
        folder: tempfile::TempDir,
        recorder: BridgeRecorder,
    }

    impl Scene {
        fn new(mode: RecordMode) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let recorder = BridgeRecorder {
                journal: Journal::new(folder.path().join("record")),
                target: "t".to_owned(),
                id: "i".to_owned(),
                mode: Cell::new(mode),
                state: RefCell::default(),
            };
            Self { folder, recorder }
        }

        fn written(&self) -> Vec<What> {
            let text = read(&self.recorder.journal.newest()).unwrap();
            let lines = lines(&text).map(|line| serde_json::from_slice(line).unwrap());
            lines.map(|line: Line| line.what).collect()
        }

        /// Lines can't be written.
        fn breaks(&self) {
            std::fs::rename(self.recorder.journal.newest(), self.folder.path().join("aside"))
                .unwrap();
            std::fs::create_dir(self.recorder.journal.newest()).unwrap();
        }

        fn is_mended(&self) {
            std::fs::remove_dir(self.recorder.journal.newest()).unwrap();
            std::fs::rename(self.folder.path().join("aside"), self.recorder.journal.newest())
                .unwrap();
        }
    }

    #[test]
    fn whether_lines_can_be_written_is_looked_at_once_a_second_and_after_each() {
        let scene = Scene::new(RecordMode::Required);
        let (recorder, start) = (&scene.recorder, Instant::now());
        let is_ready = |seconds: u32| recorder.is_ready_at(start + PROBE_INTERVAL * seconds);
        assert!(is_ready(0));
        scene.breaks();
        assert!(is_ready(0) && !is_ready(1));
        scene.is_mended();
        assert!(!is_ready(1) && is_ready(2));
        recorder.record_at(&what(Outcome::Succeeded), start + 2 * PROBE_INTERVAL);
        scene.breaks();
        assert!(!is_ready(2));
    }

    #[test]
    fn a_process_that_keeps_the_lock_is_a_problem() {
        let scene = Scene::new(RecordMode::Required);
        let (recorder, start) = (&scene.recorder, Instant::now());
        recorder.record_at(&what(Outcome::Succeeded), start);
        let locked = super::super::head::LockedHead::open(&recorder.journal.head()).unwrap();
        assert!(!recorder.is_ready_at(start));
        drop(locked);
        assert!(recorder.is_ready_at(start + PROBE_INTERVAL));
    }

    #[test]
    fn what_gets_no_line_is_no_reason_to_look_whether_one_can_be_written() {
        let scene = Scene::new(RecordMode::On);
        let (recorder, start) = (&scene.recorder, Instant::now());
        recorder.record_at(&what(Outcome::Succeeded), start);
        scene.breaks();
        for _ in 0..NOT_DONE {
            recorder.record_at(&what(Outcome::Refused), start);
        }
        scene.is_mended();
        recorder.record_at(&what(Outcome::Refused), start + PROBE_INTERVAL);
        assert_eq!(scene.written().len(), 1);
        recorder.record_at(&what(Outcome::Succeeded), start + PROBE_INTERVAL);
        let left_out = What::LeftOut { not_done: 1, unwritten: u64::from(NOT_DONE) };
        assert_eq!(scene.written()[1..], [left_out, what(Outcome::Succeeded)]);
    }

    #[test]
    fn what_was_not_done_has_some_lines_and_then_few_and_what_was_done_has_each() {
        let scene = Scene::new(RecordMode::On);
        let recorder = &scene.recorder;
        let most = usize::try_from(NOT_DONE).unwrap();
        let start = Instant::now();
        for _ in 0..most {
            recorder.record_at(&what(Outcome::Refused), start);
            recorder.record_at(&what(Outcome::Failed), start);
            recorder.record_at(&what(Outcome::Succeeded), start);
        }
        let count = |result| scene.written().iter().filter(|one| **one == what(result)).count();
        assert_eq!(count(Outcome::Refused) + count(Outcome::Failed), most);
        assert_eq!(count(Outcome::Succeeded), most);
        for _ in 0..3 {
            recorder.record_at(&what(Outcome::Abandoned), start + NOT_DONE_INTERVAL);
        }
        recorder.end();
        let left_out = |not_done| What::LeftOut { not_done, unwritten: 0 };
        let few = [left_out(u64::from(NOT_DONE)), what(Outcome::Abandoned), left_out(2)];
        assert_eq!(scene.written()[2 * most..], few);
    }
}
