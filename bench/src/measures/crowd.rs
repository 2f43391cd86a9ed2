//! 200 connections at once, each with a small command under way.

use super::{CROWD, Probe, interleave, measurement, rate};
use crate::error::Result;
use crate::figures::{Measurement, Unit};
use crate::lab::Endpoint;
use crate::question::Question;
use crate::subjects::{Field, Takes};

const ROUNDS: usize = 9;
const COMMANDS: usize = 10_000;

pub(crate) fn crowd(field: &Field, endpoint: Endpoint) -> Result<Measurement> {
    let subjects = field.to(endpoint);
    let mut probes: Vec<Probe<'_>> = subjects
        .iter()
        .filter(|(subject, _)| subject.takes == Takes::Many)
        .map(|(subject, socket)| {
            let question = Question::Crowd {
                socket: socket.to_path_buf(),
                lane: endpoint.lane,
                clients: CROWD,
                commands: COMMANDS,
            };
            Probe::of(subject, move || Ok(rate(COMMANDS, &subject.ask(&question)?)))
        })
        .collect();
    let rows = interleave(ROUNDS, &mut probes)?;
    let what = (field.place, endpoint, "crowd");
    Ok(measurement(what, "commands over 200 connections at once", Unit::PerSecond, rows))
}
