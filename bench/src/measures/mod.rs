//! What is measured.

mod bridge;
mod bulk;
mod commits;
mod round_trip;
mod signature;

use crate::error::Result;
use crate::figures::{Measurement, Row, Unit};
use crate::lab::Place;
use crate::subjects::Subject;

pub(crate) use bridge::{COLD, WARM, memory, up};
pub(crate) use bulk::bulk;
pub(crate) use commits::{ON_THE_HOST, commits, commits_on_a_slow_link};
pub(crate) use round_trip::{crowd, round_trips};
pub(crate) use signature::signatures;

/// What a person feels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Measure {
    Up,
    Memory,
    RoundTrip,
    Signature,
    Crowd,
    Bulk,
    Commit,
    SlowLink,
}

impl Measure {
    pub(crate) const ALL: [Self; 8] = [
        Self::Up,
        Self::Memory,
        Self::RoundTrip,
        Self::Signature,
        Self::Crowd,
        Self::Bulk,
        Self::Commit,
        Self::SlowLink,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Memory => "memory",
            Self::RoundTrip => "round-trip",
            Self::Signature => "signature",
            Self::Crowd => "crowd",
            Self::Bulk => "bulk",
            Self::Commit => "commit",
            Self::SlowLink => "slow-link",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|measure| measure.name() == name)
    }
}

/// How many clients a crowd has.
const CROWD: usize = 200;

/// One subject in a measurement, and how a round of it is measured.
struct Probe<'a> {
    name: String,
    measure: Box<dyn FnMut() -> Result<Vec<f64>> + 'a>,
}

impl<'a> Probe<'a> {
    fn of(subject: &Subject, measure: impl FnMut() -> Result<Vec<f64>> + 'a) -> Self {
        Self { name: subject.name.to_owned(), measure: Box::new(measure) }
    }
}

/// Measures all probes in turns. Each round begins with another one, and one round before all others
/// is not counted: there caches fill and connections come about.
fn interleave(rounds: usize, probes: &mut [Probe<'_>]) -> Result<Vec<Row>> {
    let row =
        |probe: &Probe<'_>| Row { name: probe.name.clone(), rounds: Vec::with_capacity(rounds) };
    let mut rows: Vec<Row> = probes.iter().map(row).collect();
    for round in 0..=rounds {
        let count = probes.len().max(1);
        let order = (0..probes.len()).map(|at| (at + round) % count);
        for at in order {
            let (Some(probe), Some(row)) = (probes.get_mut(at), rows.get_mut(at)) else { continue };
            let samples = (probe.measure)()?;
            if round > 0 {
                row.rounds.push(samples);
            }
        }
    }
    Ok(rows)
}

fn measurement(place: Place, what: &str, title: &str, unit: Unit, rows: Vec<Row>) -> Measurement {
    let (id, title) = (format!("{}.{what}", place.name()), format!("{}: {title}", place.title()));
    Measurement { id, title, unit, rows }
}

fn micros(nanos: Vec<u64>) -> Vec<f64> {
    nanos.into_iter().map(|nanos| nanos as f64 / 1e3).collect()
}

fn millis(nanos: Vec<u64>) -> Vec<f64> {
    nanos.into_iter().map(|nanos| nanos as f64 / 1e6).collect()
}
