//! The round trip of a small command, over connections that stay.

use super::{CROWD, Probe, interleave, measurement, micros, millis};
use crate::error::Result;
use crate::figures::{Measurement, Row, Unit};
use crate::question::Question;
use crate::subjects::{Field, Takes};

/// Many short rounds: what else the machine does then falls into few of them.
const ROUNDS: usize = 30;

/// One client.
pub(crate) fn round_trips(field: &Field<'_>) -> Result<Measurement> {
    const COUNT: usize = 75;
    let rows = trips(field, 1, COUNT, micros)?;
    let title = "round trip of a small command";
    Ok(measurement(field.target.place, "round-trip", title, Unit::Micros, rows))
}

/// 200 clients that ask at once, until all have their answers.
pub(crate) fn crowd(field: &Field<'_>) -> Result<Measurement> {
    const COUNT: usize = 10;
    let rows = trips(field, CROWD, COUNT, millis)?;
    let title = "a small command of each of 200 clients at once";
    Ok(measurement(field.target.place, "crowd", title, Unit::Millis, rows))
}

fn trips(
    field: &Field<'_>,
    clients: usize,
    count: usize,
    times: fn(Vec<u64>) -> Vec<f64>,
) -> Result<Vec<Row>> {
    let subjects: Vec<_> = field
        .subjects
        .iter()
        .filter(|subject| clients == 1 || subject.takes == Takes::Many)
        .collect();
    for subject in &subjects {
        subject.open(clients)?;
    }
    let probe = |subject| {
        Probe::of(subject, move || {
            subject.ask(&Question::RoundTrips { name: subject.name.to_owned(), count }).map(times)
        })
    };
    let rows = interleave(ROUNDS, &mut subjects.iter().copied().map(probe).collect::<Vec<_>>())?;
    for subject in &subjects {
        subject.close()?;
    }
    Ok(rows)
}
