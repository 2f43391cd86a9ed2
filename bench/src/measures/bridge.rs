//! A bridge in the background: how long `up` takes, and what the programs hold.

use std::time::Instant;

use keybridge_lab::allocated_by;

use super::{CROWD, Probe, interleave, measurement};
use crate::error::{Error, Result};
use crate::figures::{Measurement, Row, Unit};
use crate::lab::{Agents, Lab, Target, output};
use crate::subjects::Field;

/// The rows of `up` when the helper isn't there, and when it is.
pub(crate) const COLD: &str = "cold";
pub(crate) const WARM: &str = "warm";

const ROUNDS: usize = 4;

/// `up` to a target that no bridge leads to.
pub(crate) fn up(lab: &Lab, agents: &Agents, target: &Target) -> Result<Measurement> {
    let up_and_down = || {
        let keybridge = |verb: &str| {
            let mut command = target.keybridge(lab, agents);
            command.args([verb, &target.address()]);
            command
        };
        let start = Instant::now();
        output(&mut keybridge("up"))?;
        let took = start.elapsed().as_secs_f64() * 1e3;
        output(&mut keybridge("down"))?;
        Ok(vec![took])
    };
    let cold = || {
        target.remove_helper(lab)?;
        up_and_down()
    };
    let mut probes = [
        Probe { name: COLD.to_owned(), measure: Box::new(cold) },
        Probe { name: WARM.to_owned(), measure: Box::new(up_and_down) },
    ];
    let rows = interleave(ROUNDS, &mut probes)?;
    Ok(measurement(target.place, "up", "keybridge up", Unit::Millis, rows))
}

/// What both programs have allocated after a small command, and with a crowd of clients.
pub(crate) fn memory(field: &Field<'_>) -> Result<Measurement> {
    let ours = field.subjects.first().ok_or_else(|| Error::new("no subjects"))?;
    let mut rows = Vec::new();
    let mut note = |state: &str| {
        for (program, pid) in ["keybridge", "keybridge-remote"].into_iter().zip(field.bridge.pids) {
            let mib = allocated_by(pid) as f64 / f64::from(1 << 20);
            rows.push(Row { name: format!("{program} {state}"), rounds: vec![vec![mib]] });
        }
    };
    ours.open(1)?;
    ours.close()?;
    note("at rest");
    ours.open(CROWD)?;
    note("with 200 clients");
    ours.close()?;
    Ok(measurement(field.target.place, "memory", "allocated memory", Unit::Mib, rows))
}
