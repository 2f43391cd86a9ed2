//! The bars: what has to be kept, as ratios of one run or as times that a person would notice.

use crate::figures::{Measurement, Row};
use crate::measures::{COLD, ON_THE_HOST, WARM};
use crate::subjects::{OURS, PAIR, REVERSE};

/// What is compared, and how much it may be at most.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) text: String,
    pub(crate) value: f64,
    pub(crate) limit: f64,
}

impl Bar {
    pub(crate) fn is_kept(&self) -> bool {
        self.value <= self.limit
    }
}

/// What ours takes of what another subject does.
const RATIOS: [(&str, &str, f64); 4] = [
    ("docker.round-trip", PAIR, 1.0),
    ("docker.signature", PAIR, 1.0),
    ("slow.commit", REVERSE, 0.33),
    ("slow.rebase", REVERSE, 0.33),
];

/// Milliseconds.
const TIMES: [(&str, &str, f64); 2] = [("docker.up", WARM, 300.0), ("docker.up", COLD, 1500.0)];

/// So much longer may a signed commit take in a container than on the host, in milliseconds.
const MOST_MORE: f64 = 15.0;

/// Every bar whose sides were measured.
pub(crate) fn bars(measurements: &[Measurement]) -> Vec<Bar> {
    let measured = |id: &str| measurements.iter().find(|measurement| measurement.id == id);
    let took = |id: &str, name: &str| measured(id)?.row(name).map(Row::p50);
    let mut bars = Vec::new();
    for (id, other, limit) in RATIOS {
        let Some(measurement) = measured(id) else { continue };
        let ratio = measurement.row(other).and_then(|row| measurement.ours_to(row));
        let text = format!("{}, to {other}", measurement.title);
        bars.extend(ratio.map(|ratio| Bar { text, value: ratio.median, limit }));
    }
    let commits = took("docker.commit", OURS).zip(took("docker.commit", ON_THE_HOST));
    let text = format!("ms that a signed commit takes longer in Docker than {ON_THE_HOST}");
    bars.extend(commits.map(|(ours, host)| Bar { text, value: ours - host, limit: MOST_MORE }));
    for (id, name, limit) in TIMES {
        let text = format!("ms of keybridge up in Docker, {name}");
        bars.extend(took(id, name).map(|value| Bar { text, value, limit }));
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Unit;

    fn row(name: &str, value: f64) -> Row {
        Row { name: name.to_owned(), rounds: vec![vec![value]; 3] }
    }

    #[test]
    fn a_bar_is_judged_by_its_limit() {
        let measurement = |pair: f64| Measurement {
            id: "docker.round-trip".to_owned(),
            title: String::new(),
            unit: Unit::Micros,
            rows: vec![row(OURS, 30.0), row(PAIR, pair)],
        };
        let kept = |pair| bars(&[measurement(pair)]).iter().map(Bar::is_kept).collect();
        let (good, bad): (Vec<bool>, Vec<bool>) = (kept(30.0), kept(29.0));
        assert_eq!((good, bad), (vec![true], vec![false]));
    }
}
