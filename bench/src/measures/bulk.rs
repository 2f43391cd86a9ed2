//! Bulk, each way.

use super::{Probe, interleave, measurement, rate};
use crate::error::Result;
use crate::figures::{Measurement, Unit};
use crate::lab::Endpoint;
use crate::question::Way;
use crate::subjects::{Field, PipedCat, Role};

/// The row of a `cat` through the engine's own program.
pub(crate) const PIPED_CAT: &str = "docker exec -i … cat";

const ROUNDS: usize = 8;

/// Long enough that starting and ending don't show.
pub(crate) const BULK: usize = 32 * 1024 * 1024;

pub(crate) fn bulk(
    field: &Field,
    endpoint: Endpoint,
    way: Way,
    cat: Option<&PipedCat<'_>>,
) -> Result<Measurement> {
    let subjects = field.to(endpoint);
    for (subject, socket) in &subjects {
        subject.open(socket, endpoint.lane)?;
    }
    let mut probes: Vec<Probe<'_>> = subjects
        .iter()
        .map(|(subject, _)| {
            Probe::of(subject, move || Ok(mib_rate(&subject.bulk(way, BULK, &field.bulk_key)?)))
        })
        .collect();
    if let Some(cat) = cat {
        let measure = Box::new(move || Ok(mib_rate(&[cat.bulk(way)?])));
        probes.push(Probe { name: PIPED_CAT.to_owned(), role: Role::Floor, measure });
    }
    let rows = interleave(ROUNDS, &mut probes)?;
    drop(probes);
    for (subject, _) in &subjects {
        subject.close()?;
    }
    let (what, title) = match way {
        Way::ToAgent => ("bulk-to-agent", "bulk to the agent"),
        Way::FromAgent => ("bulk-from-agent", "bulk from the agent"),
    };
    Ok(measurement((field.place, endpoint, what), title, Unit::MibPerSecond, rows))
}

fn mib_rate(nanos: &[u64]) -> Vec<f64> {
    rate(BULK / (1024 * 1024), nanos)
}
