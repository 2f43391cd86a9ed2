//! A small command beside a client that asked for bulk and reads nothing of it.

use super::{Probe, interleave, measurement, micros};
use crate::error::Result;
use crate::figures::{Compared, Measurement, Unit};
use crate::lab::Endpoint;
use crate::subjects::{Field, Takes};

/// What is added to the name of a subject that has such a client.
pub(crate) const STALLED: &str = ", beside a stalled reader";

const ROUNDS: usize = 12;
const COUNT: usize = 150;

pub(crate) fn stalled(field: &Field, endpoint: Endpoint) -> Result<Measurement> {
    let mut subjects = field.to(endpoint);
    subjects.retain(|(subject, _)| subject.takes == Takes::Many);
    for (subject, socket) in &subjects {
        subject.open(socket, endpoint.lane)?;
    }
    let mut probes = Vec::new();
    for (subject, socket) in &subjects {
        let quiet = move || subject.round_trips(COUNT).map(micros);
        let beside = move || {
            subject.stall(socket, endpoint.lane, &field.bulk_key)?;
            let trips = subject.round_trips(COUNT).map(micros);
            subject.end_stall()?;
            trips
        };
        probes.push(Probe::of(subject, quiet));
        let mut probe = Probe::of(subject, beside);
        probe.name.push_str(STALLED);
        probes.push(probe);
    }
    let rows = interleave(ROUNDS, &mut probes)?;
    drop(probes);
    for (subject, _) in &subjects {
        subject.close()?;
    }
    let what = (field.place, endpoint, "stalled");
    let title = "a small command, and one beside a stalled reader";
    let measurement = measurement(what, title, Unit::Micros, rows);
    Ok(Measurement { compared: Compared::InPairs, ..measurement })
}
