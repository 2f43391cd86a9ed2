//! Series of keys from the host: taken in pieces, imported, reported.

use std::cell::Cell;
use std::rc::Rc;

use keybridge_link::{Link, Stream};
use keybridge_proto::report::{KeyChanges, KeysHeader, Ready};

use crate::keys::import::{Import, import_ownertrust};
use crate::lanes::agent_check::AgentCheck;
use crate::{Gnupg, StopSignal};

/// Ownertrust has 43 bytes for each key that has a value.
const OWNERTRUST_LIMIT: usize = 1024 * 1024;

/// What is taken from the link before gpg has taken it.
const PIECE: usize = 32 * 1024;

/// Takes one series after the other, and reports after each, until it is told to stop. Notes that it
/// has reported. A question is asked after the first one.
pub(crate) async fn take_keys(
    link: Link,
    gnupg: Option<Rc<Gnupg>>,
    base: Ready,
    mut question: Option<AgentCheck>,
    reported: Rc<Cell<bool>>,
    stop: StopSignal,
) {
    let stream = link.keys();
    loop {
        let series = match &gnupg {
            Some(gnupg) => take_series(&stream, gnupg, &stop).await,
            None => pass_over(&stream, &stop).await,
        };
        let Some(series) = series else { return };
        let mut ready = base.clone();
        ready.keys = series.changes;
        ready.warnings.extend(series.warnings);
        for warning in &ready.warnings {
            tracing::warn!("{warning}");
        }
        link.with_mux(|mux| {
            mux.keys_done();
            match mux.ready(&ready.encode()) {
                Ok(()) => reported.set(true),
                Err(error) => tracing::warn!(%error, "READY can't be said"),
            }
        });
        if let Some(question) = question.take() {
            let asking = async {
                // Of two reports that wait to be sent the second one counts.
                link.flushed().await;
                question.ask().await
            };
            let Some(answers) = stop.unless_set(asking).await else { return };
            let ready = Ready { answers, ..Ready::default() };
            if let Err(error) = link.with_mux(|mux| mux.ready(&ready.encode())) {
                tracing::warn!(%error, "READY can't be said");
            }
        }
    }
}

/// Takes the exports of a version 1 host, which have no head, one after the other, until it is told to
/// stop. The first one is what READY has to wait for, unless it was said without.
pub(crate) async fn take_exports(
    link: Link,
    gnupg: Option<Rc<Gnupg>>,
    reported: Rc<Cell<bool>>,
    stop: StopSignal,
) {
    let stream = link.keys();
    loop {
        let series = match &gnupg {
            Some(gnupg) => take_export(&stream, gnupg, &stop).await,
            None => pass_over(&stream, &stop).await,
        };
        let Some(series) = series else { return };
        tracing::info!(changes = ?series.changes, "keys");
        for warning in &series.warnings {
            tracing::warn!("{warning}");
        }
        link.with_mux(|mux| {
            mux.keys_done();
            if reported.replace(true) {
                return;
            }
            if let Err(error) = mux.ready(b"") {
                tracing::warn!(%error, "READY can't be said");
            }
        });
    }
}

/// What came of one series.
#[derive(Debug, Default)]
struct KeySeries {
    changes: Option<KeyChanges>,
    warnings: Vec<String>,
}

/// A series that nobody here has a use for.
async fn pass_over(stream: &Stream, stop: &StopSignal) -> Option<KeySeries> {
    let mut input = SeriesInput { stream, piece: Vec::new() };
    stop.unless_set(input.discard()).await?;
    Some(KeySeries::default())
}

/// Nothing if the bridge stops before the end of the series.
async fn take_series(stream: &Stream, gnupg: &Gnupg, stop: &StopSignal) -> Option<KeySeries> {
    let mut series = KeySeries::default();
    let mut input = SeriesInput { stream, piece: Vec::with_capacity(PIECE) };
    let ownertrust = stop.unless_set(take_ownertrust(&mut input, &mut series)).await?;
    let Some(ownertrust) = ownertrust else { return Some(series) };
    let mut changes = import_keys(&mut input, gnupg, stop, &mut series.warnings).await?;
    if !ownertrust.is_empty() {
        let (set, complaint) = import_ownertrust(gnupg, &ownertrust, stop).await?;
        changes.ownertrust = set;
        series.warnings.extend(complaint);
    }
    series.changes = Some(changes);
    Some(series)
}

/// Nothing if the bridge stops before the end of the export.
async fn take_export(stream: &Stream, gnupg: &Gnupg, stop: &StopSignal) -> Option<KeySeries> {
    let mut series = KeySeries::default();
    let mut input = SeriesInput { stream, piece: Vec::with_capacity(PIECE) };
    series.changes = Some(import_keys(&mut input, gnupg, stop, &mut series.warnings).await?);
    Some(series)
}

/// Hands the rest of a series to gpg; nothing if the bridge stops before that is done.
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
            warnings.push(format!("importing keys: {error}"));
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
    let Some((changes, complaint)) = stop.unless_set(work).await else {
        import.end().await;
        return None;
    };
    warnings.extend(complaint);
    Some(changes)
}

/// What comes before the keys; `None` if that can't be read, and a warning then.
async fn take_ownertrust(input: &mut SeriesInput<'_>, series: &mut KeySeries) -> Option<Vec<u8>> {
    let Some(head) = input.head().await else {
        if input.discard().await {
            series.warnings.push("the keys of the host have a head that can't be read".into());
        }
        return None;
    };
    let size = usize::try_from(head.ownertrust).unwrap_or(usize::MAX);
    if size > OWNERTRUST_LIMIT {
        input.discard().await;
        series.warnings.push(format!("ownertrust is over {OWNERTRUST_LIMIT} bytes"));
        return None;
    }
    let mut ownertrust = Vec::with_capacity(size);
    while ownertrust.len() < size && input.fill().await {
        let count = (size - ownertrust.len()).min(input.piece.len());
        ownertrust.extend(input.piece.drain(..count));
    }
    if ownertrust.len() < size {
        series.warnings.push("the keys of the host ended too early".into());
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
    /// Has something in the piece; `false` at the end of the series.
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
