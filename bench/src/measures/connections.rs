//! Connections that come and go, one after the other: greeting and farewell.

use super::{Probe, interleave, measurement, rate};
use crate::error::Result;
use crate::figures::{Measurement, Unit};
use crate::lab::Endpoint;
use crate::question::Question;
use crate::subjects::{Field, Takes};

const ROUNDS: usize = 8;

/// Few enough that keybridge's bound on the rate, 1000 a second after the first 512, is not reached.
const COUNT: usize = 50;

pub(crate) fn connections(field: &Field, endpoint: Endpoint) -> Result<Measurement> {
    let subjects = field.to(endpoint);
    let mut probes: Vec<Probe<'_>> = subjects
        .iter()
        .map(|(subject, socket)| {
            // What is started anew for each connection has the first one ready: it isn't counted.
            let (count, ready) = match subject.takes {
                Takes::Many => (COUNT, 0),
                Takes::OneAtATime => (3, 1),
            };
            let (socket, lane) = (socket.to_path_buf(), endpoint.lane);
            let question = Question::Connections { socket, lane, count };
            Probe::of(subject, move || {
                let took = subject.ask(&question)?;
                Ok(rate(count - ready, took.get(ready..).unwrap_or_default()))
            })
        })
        .collect();
    let rows = interleave(ROUNDS, &mut probes)?;
    let what = (field.place, endpoint, "connections");
    Ok(measurement(what, "connections, one after the other", Unit::PerSecond, rows))
}
