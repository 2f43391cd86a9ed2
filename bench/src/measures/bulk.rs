//! Bulk, each way, with a stand-in agent.

use super::{Probe, interleave, measurement};
use crate::error::Result;
use crate::figures::{Measurement, Unit};
use crate::question::{Question, Way};
use crate::subjects::{Field, Subject};

const ROUNDS: usize = 8;

/// Long enough that starting and ending don't show.
const MIB: usize = 32;

pub(crate) fn bulk<'a>(field: &'a Field<'_>, way: Way) -> Result<Measurement> {
    for subject in &field.subjects {
        subject.open(1)?;
    }
    let probe = |subject: &'a Subject| {
        let question = Question::Bulk {
            name: subject.name.to_owned(),
            way,
            bytes: MIB << 20,
            keygrip: field.agents.decrypting_keygrip(),
        };
        Probe::of(subject, move || {
            let nanos: u64 = subject.ask(&question)?.into_iter().sum();
            Ok(vec![MIB as f64 * 1e9 / nanos as f64])
        })
    };
    let rows = interleave(ROUNDS, &mut field.subjects.iter().map(probe).collect::<Vec<_>>())?;
    for subject in &field.subjects {
        subject.close()?;
    }
    let (what, title) = match way {
        Way::ToAgent => ("bulk-to-agent", "bulk to the agent"),
        Way::FromAgent => ("bulk-from-agent", "bulk from the agent"),
    };
    Ok(measurement(field.target.place, what, title, Unit::MibPerSecond, rows))
}
