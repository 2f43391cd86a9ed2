//! Receiving series of keys from the host: read in pieces, imported, reported.

use std::cell::Cell;
use std::rc::Rc;

use keybridge_link::{Link, Stream};
use keybridge_proto::report::{KeyChanges, KeysHeader, Ready, Report};

use crate::keys::import::{Import, OWNERTRUST_LIMIT, export_ownertrust, import_ownertrust};
use crate::keys::import_record::{ImportRecord, parse_ownertrust};
use crate::lanes::agent_check::AgentCheck;
use crate::{Error, Gnupg, StopSignal};

/// How much is read from the link before gpg has read it.
const PIECE: usize = 32 * 1024;

/// Receives one series after the other, and sends READY after each, until it is told to stop. The agents
/// are asked after the first one.
pub(crate) async fn receive_keys(
    link: Link,
    gnupg: Option<Rc<Gnupg>>,
    base: Ready,
    mut agent_check: Option<AgentCheck>,
    was_ready: Rc<Cell<bool>>,
    stop: StopSignal,
) {
    let stream = link.keys();
    while let Some(series) = receive(&stream, gnupg.as_deref(), Head::Expected, &stop).await {
        let mut ready = base.clone();
        ready.keys = series.changes;
        ready.warnings.extend(series.warnings);
        for warning in &ready.warnings {
            tracing::warn!("{warning}");
        }
        link.with_mux(|mux| {
            mux.keys_done();
            match mux.ready(&Report::Ready(ready).encode()) {
                Ok(()) => was_ready.set(true),
                Err(error) => tracing::warn!(%error, "can't send READY"),
            }
        });
        if let Some(agent_check) = agent_check.take() {
            let asking = async {
                // Of two reports that wait to be sent the second one counts.
                link.flushed().await;
                agent_check.ask().await
            };
            let Some(answers) = stop.unless_set(asking).await else { return };
            let report = Report::Answers(answers).encode();
            if let Err(error) = link.with_mux(|mux| mux.ready(&report)) {
                tracing::warn!(%error, "can't send READY");
            }
        }
    }
}

/// Receives the exports of a version 1 host, which have no head, one after the other, until it is told to
/// stop. READY is sent after the first one, unless it was sent before.
pub(crate) async fn receive_exports(
    link: Link,
    gnupg: Option<Rc<Gnupg>>,
    was_ready: Rc<Cell<bool>>,
    stop: StopSignal,
) {
    let stream = link.keys();
    while let Some(series) = receive(&stream, gnupg.as_deref(), Head::Missing, &stop).await {
        tracing::info!(changes = ?series.changes, "keys");
        for warning in &series.warnings {
            tracing::warn!("{warning}");
        }
        link.with_mux(|mux| {
            mux.keys_done();
            if was_ready.replace(true) {
                return;
            }
            if let Err(error) = mux.ready(b"") {
                tracing::warn!(%error, "can't send READY");
            }
        });
    }
}

/// The result of one series.
#[derive(Debug, Default)]
struct KeySeries {
    changes: Option<KeyChanges>,
    warnings: Vec<String>,
}

/// Whether a series begins with a head and ownertrust.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Head {
    Expected,
    Missing,
}

/// Receives one series, and imports it if there is a gpg. Nothing if the bridge stops before its end.
async fn receive(
    stream: &Stream,
    gnupg: Option<&Gnupg>,
    head: Head,
    stop: &StopSignal,
) -> Option<KeySeries> {
    let mut series = KeySeries::default();
    let mut input = SeriesInput { stream, piece: Vec::new() };
    let Some(gnupg) = gnupg else {
        stop.unless_set(input.discard()).await?;
        return Some(series);
    };
    let ownertrust = match head {
        Head::Expected => stop.unless_set(receive_ownertrust(&mut input, &mut series)).await?,
        Head::Missing => Some(Vec::new()),
    };
    let Some(ownertrust) = ownertrust else { return Some(series) };
    let mut changes = import_keys(&mut input, gnupg, stop, &mut series.warnings).await?;
    if !ownertrust.is_empty() {
        if let Err(error) = record_ownertrust(gnupg, &ownertrust).await {
            series.warnings.push(not_on_record("ownertrust", &error));
        }
        let (set, complaint) = import_ownertrust(gnupg, &ownertrust, stop).await?;
        changes.ownertrust = set;
        series.warnings.extend(complaint);
    }
    series.changes = Some(changes);
    Some(series)
}

/// Notes which values are about to change, so that they can be set back.
async fn record_ownertrust(gnupg: &Gnupg, ownertrust: &[u8]) -> Result<(), Error> {
    let wanted = parse_ownertrust(ownertrust);
    ImportRecord::add_trust(gnupg.home(), &export_ownertrust(gnupg).await?, &wanted)
}

fn not_on_record(what: &str, error: &Error) -> String {
    format!("down --purge will not remove the {what} that is imported: {error}")
}

/// Imports the rest of a series; nothing if the bridge stops before that is done.
async fn import_keys(
    input: &mut SeriesInput<'_>,
    gnupg: &Gnupg,
    stop: &StopSignal,
    warnings: &mut Vec<String>,
) -> Option<KeyChanges> {
    if !stop.unless_set(input.fill()).await? {
        return Some(KeyChanges::default());
    }
    let mut import = match Import::start(gnupg) {
        Ok(import) => import,
        Err(error) => {
            stop.unless_set(input.discard()).await?;
            warnings.push(format!("can't import keys: {error}"));
            return Some(KeyChanges::default());
        }
    };
    let work = async {
        while input.fill().await {
            import.write(&input.piece).await;
            input.piece.clear();
        }
        import.finish().await
    };
    let finished = stop.unless_set(work).await;
    if finished.is_none() {
        import.end().await;
    }
    if let Err(error) = ImportRecord::add_keys(gnupg.home(), import.take_new_keys()) {
        warnings.push(not_on_record("keys", &error));
    }
    let (changes, complaint) = finished?;
    warnings.extend(complaint);
    Some(changes)
}

/// What comes before the keys; `None` if that can't be read, and a warning then.
async fn receive_ownertrust(
    input: &mut SeriesInput<'_>,
    series: &mut KeySeries,
) -> Option<Vec<u8>> {
    let Some(head) = input.head().await else {
        if input.discard().await {
            series.warnings.push("can't import keys: the host sent an invalid head".into());
        }
        return None;
    };
    let size = usize::try_from(head.ownertrust).unwrap_or(usize::MAX);
    if size > OWNERTRUST_LIMIT {
        input.discard().await;
        series
            .warnings
            .push(format!("can't import keys: ownertrust is larger than {OWNERTRUST_LIMIT} bytes"));
        return None;
    }
    let mut ownertrust = Vec::with_capacity(size);
    while ownertrust.len() < size && input.fill().await {
        let count = (size - ownertrust.len()).min(input.piece.len());
        ownertrust.extend(input.piece.drain(..count));
    }
    if ownertrust.len() < size {
        series.warnings.push("can't import keys: they ended too early".into());
        return None;
    }
    Some(ownertrust)
}

/// The bytes of one series, a piece at a time.
struct SeriesInput<'a> {
    stream: &'a Stream,
    piece: Vec<u8>,
}

impl SeriesInput<'_> {
    /// Fills the piece; `false` at the end of the series.
    async fn fill(&mut self) -> bool {
        loop {
            if !self.piece.is_empty() {
                return true;
            }
            let piece = &mut self.piece;
            self.stream.read(|bytes| {
                let count = bytes.len().min(PIECE - piece.len());
                piece.extend_from_slice(bytes.get(..count).unwrap_or_default());
                count
            });
            if self.piece.is_empty() {
                if self.stream.is_finished() {
                    return false;
                }
                if self.stream.is_closed() {
                    // The link is over, and we will be told to stop.
                    return std::future::pending().await;
                }
                self.stream.changed().await;
            }
        }
    }

    /// The head, or `None` if what comes is none.
    async fn head(&mut self) -> Option<KeysHeader> {
        let mut line = Vec::with_capacity(KeysHeader::MAX_SIZE);
        while self.fill().await {
            while !self.piece.is_empty() {
                let byte = self.piece.remove(0);
                if byte == b'\n' {
                    return KeysHeader::parse(&line);
                }
                line.push(byte);
                if line.len() >= KeysHeader::MAX_SIZE {
                    return None;
                }
            }
        }
        self.piece = line;
        None
    }

    /// Drops the rest of the series; says whether there was any.
    async fn discard(&mut self) -> bool {
        let mut any = false;
        while self.fill().await {
            any = true;
            self.piece.clear();
        }
        any
    }
}
