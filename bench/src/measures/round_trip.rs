//! The round trip of a small command, over a connection that stays.

use super::{Probe, interleave, measurement, micros};
use crate::error::Result;
use crate::figures::{Measurement, Unit};
use crate::lab::Endpoint;
use crate::subjects::{ExecCat, Field, Role};

/// The row of a `cat` through the engine.
pub(crate) const CAT: &str = "raw cat through the exec API";

/// Many short rounds: what else the machine does then falls into few of them. Together they are enough
/// for a p99.
const ROUNDS: usize = 40;
const COUNT: usize = 75;

pub(crate) fn round_trips(
    field: &Field,
    endpoint: Endpoint,
    cat: Option<&mut ExecCat>,
) -> Result<Measurement> {
    let subjects = field.to(endpoint);
    for (subject, socket) in &subjects {
        subject.open(socket, endpoint.lane)?;
    }
    let mut probes: Vec<Probe<'_>> = subjects
        .iter()
        .map(|(subject, _)| Probe::of(subject, || subject.round_trips(COUNT).map(micros)))
        .collect();
    if let Some(cat) = cat {
        let request = endpoint.lane.small_request();
        let mut trips = move || (0..COUNT).map(|_| cat.round_trip(&request)).collect::<Result<_>>();
        let measure = Box::new(move || trips().map(micros));
        probes.push(Probe { name: CAT.to_owned(), role: Role::Floor, measure });
    }
    let rows = interleave(ROUNDS, &mut probes)?;
    drop(probes);
    for (subject, _) in &subjects {
        subject.close()?;
    }
    let what = (field.place, endpoint, "round-trip");
    Ok(measurement(what, "round trip of a small command", Unit::Micros, rows))
}
