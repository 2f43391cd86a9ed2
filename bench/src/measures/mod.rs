//! What is measured of the subjects of a place.

mod bulk;
mod commits;
mod connections;
mod crowd;
mod life;
mod round_trip;
mod signature;
mod stalled;
mod syscalls;

use crate::error::Result;
use crate::figures::{Compared, Measurement, Row, Unit};
use crate::lab::Endpoint;
use crate::subjects::{Place, Role, Subject};

pub(crate) use bulk::{BULK, PIPED_CAT, bulk};
pub(crate) use commits::{ON_THE_HOST, commits, commits_on_a_slow_link};
pub(crate) use connections::connections;
pub(crate) use crowd::crowd;
pub(crate) use life::life;
pub(crate) use round_trip::{CAT, round_trips};
pub(crate) use signature::signatures;
pub(crate) use stalled::{STALLED, stalled};

/// How many clients a crowd has.
pub(crate) const CROWD: usize = 200;

/// One subject in a measurement, and how a round of it is measured.
struct Probe<'a> {
    name: String,
    role: Role,
    measure: Box<dyn FnMut() -> Result<Vec<f64>> + 'a>,
}

impl<'a> Probe<'a> {
    fn of(subject: &'a Subject, measure: impl FnMut() -> Result<Vec<f64>> + 'a) -> Self {
        Self { name: subject.name.to_owned(), role: subject.role, measure: Box::new(measure) }
    }
}

/// Measures all probes in turns. Each round begins with another one, and one round before all others
/// is not counted: there caches fill and connections come about.
fn interleave(rounds: usize, probes: &mut [Probe<'_>]) -> Result<Vec<Row>> {
    let row = |probe: &Probe<'_>| Row {
        name: probe.name.clone(),
        role: probe.role,
        rounds: Vec::with_capacity(rounds),
    };
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

fn measurement(
    (place, endpoint, what): (Place, Endpoint, &str),
    title: &str,
    unit: Unit,
    rows: Vec<Row>,
) -> Measurement {
    let Endpoint { lane, agent } = endpoint;
    let id = format!("{}.{}.{}.{what}", place.name(), lane.name(), agent.name());
    let title = format!("{}, {} lane, {}: {title}", place.title(), lane.name(), agent.title(lane));
    Measurement { id, title, unit, compared: Compared::Subjects, rows }
}

fn micros(nanos: Vec<u64>) -> Vec<f64> {
    nanos.into_iter().map(|nanos| nanos as f64 / 1e3).collect()
}

fn millis(nanos: Vec<u64>) -> Vec<f64> {
    nanos.into_iter().map(|nanos| nanos as f64 / 1e6).collect()
}

/// How many a second, if that many took so long together.
fn rate(count: usize, nanos: &[u64]) -> Vec<f64> {
    vec![count as f64 * 1e9 / nanos.iter().sum::<u64>() as f64]
}
