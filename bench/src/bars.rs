//! The bars: ratios of one run that have to be kept.

use serde::Serialize;

use crate::figures::{Measurement, Ratio, Row};
use crate::measures::{ON_THE_HOST, PIPED_CAT, STALLED};
use crate::subjects::{OURS, PAIR, Place, REVERSE};

/// A ratio, and what it has to be.
#[derive(Debug, Serialize)]
pub(crate) struct Bar {
    /// What is compared with what.
    pub(crate) text: String,
    pub(crate) limit: Limit,
    pub(crate) ratio: Ratio,
    pub(crate) passes: bool,
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Limit {
    fn allows(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(limit) => ratio <= limit,
            Self::AtLeast(limit) => ratio >= limit,
        }
    }
}

/// So much longer may a signed commit take in a container, in milliseconds.
const MOST_MORE: f64 = 15.0;

/// Every bar for which both sides were measured.
pub(crate) fn bars(measurements: &[Measurement]) -> Vec<Bar> {
    let run = Run(measurements);
    let mut bars = Vec::new();
    run.docker(&mut bars);
    for place in [Place::Docker, Place::Local] {
        run.stalled(&mut bars, place);
        run.ssh_lane(&mut bars, place);
    }
    run.git(&mut bars);
    run.up(&mut bars);
    bars
}

struct Run<'a>(&'a [Measurement]);

impl Run<'_> {
    fn docker(&self, bars: &mut Vec<Bar>) {
        for agent in ["real", "stand-in"] {
            push(
                bars,
                format!("Docker, {agent} agent: round trip p50 to a {PAIR}"),
                Limit::AtMost(1.0),
                self.ratio(&format!("docker.gpg.{agent}.round-trip"), OURS, PAIR),
            );
        }
        push(
            bars,
            format!("Docker: one gpg signature, to a {PAIR}"),
            Limit::AtMost(1.0),
            self.ratio("docker.gpg.real.signature", OURS, PAIR),
        );
        for (what, words) in [("bulk-to-agent", "to"), ("bulk-from-agent", "from")] {
            push(
                bars,
                format!("Docker: bulk {words} the agent, to docker exec -i … cat"),
                Limit::AtLeast(0.85),
                self.ratio(&format!("docker.gpg.stand-in.{what}"), OURS, PIPED_CAT),
            );
        }
    }

    fn stalled(&self, bars: &mut Vec<Bar>, place: Place) {
        let id = format!("{}.gpg.stand-in.stalled", place.name());
        let beside = self.row(&id, &format!("{OURS}{STALLED}")).map(Row::p99);
        let quiet = self.row(&id, OURS).map(Row::p99);
        push(
            bars,
            format!("{}: p99 of small commands beside a stalled reader, to without", place.title()),
            Limit::AtMost(3.0),
            beside.zip(quiet).map(|(beside, quiet)| Ratio::plain(beside / quiet)),
        );
    }

    fn ssh_lane(&self, bars: &mut Vec<Bar>, place: Place) {
        let lane = |lane| format!("{}.{lane}.stand-in.round-trip", place.name());
        let (ssh, gpg) = (self.medians(&lane("ssh"), OURS), self.medians(&lane("gpg"), OURS));
        push(
            bars,
            format!("{}: round trip p50 of the ssh lane to the gpg lane", place.title()),
            Limit::AtMost(1.2),
            ssh.zip(gpg).and_then(of),
        );
    }

    fn git(&self, bars: &mut Vec<Bar>) {
        for (what, words) in
            [("commit", "one signed commit"), ("rebase", "thirty commits signed anew")]
        {
            push(
                bars,
                format!("SSH host, 50 ms each way: {words}, to {REVERSE}"),
                Limit::AtMost(0.33),
                self.ratio(&format!("slow.git.{what}"), OURS, REVERSE),
            );
        }
        let took = |name: &str| self.row("docker.git.commit", name).map(Row::p50);
        let more = took(OURS).zip(took(ON_THE_HOST)).map(|(ours, host)| ours - host);
        push(
            bars,
            format!("Docker: what a signed commit takes more than on the host, to {MOST_MORE} ms"),
            Limit::AtMost(1.0),
            more.map(|more| Ratio::plain(more / MOST_MORE)),
        );
    }

    /// Not ratios of the run, but times, as parts of what they may be.
    fn up(&self, bars: &mut Vec<Bar>) {
        for (how, millis) in [("warm", 300.0), ("cold", 1500.0)] {
            let took = self.row("docker.up", how).map(Row::p50);
            push(
                bars,
                format!("Docker: keybridge up, {how}, to {millis} ms"),
                Limit::AtMost(1.0),
                took.map(|took| Ratio::plain(took / millis)),
            );
        }
    }

    fn ratio(&self, id: &str, top: &str, bottom: &str) -> Option<Ratio> {
        self.medians(id, top).zip(self.medians(id, bottom)).and_then(of)
    }

    fn medians(&self, id: &str, name: &str) -> Option<Vec<f64>> {
        self.row(id, name).map(Row::medians)
    }

    fn row(&self, id: &str, name: &str) -> Option<&Row> {
        self.0.iter().find(|measurement| measurement.id == id)?.row(name)
    }
}

fn of((top, bottom): (Vec<f64>, Vec<f64>)) -> Option<Ratio> {
    Ratio::of(&top, &bottom)
}

fn push(bars: &mut Vec<Bar>, text: String, limit: Limit, ratio: Option<Ratio>) {
    bars.extend(ratio.map(|ratio| Bar { text, limit, ratio, passes: limit.allows(ratio.median) }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Compared, Unit};
    use crate::subjects::Role;

    fn row(name: &str, value: f64) -> Row {
        Row { name: name.to_owned(), role: Role::Ours, rounds: vec![vec![value]; 3] }
    }

    #[test]
    fn a_bar_is_judged_by_its_limit() {
        let measurement = |pair: f64| Measurement {
            id: "docker.gpg.real.round-trip".to_owned(),
            title: String::new(),
            unit: Unit::Micros,
            compared: Compared::Subjects,
            rows: vec![row(OURS, 30.0), row(PAIR, pair)],
        };
        let passes = |pair| bars(&[measurement(pair)]).iter().map(|bar| bar.passes).collect();
        let (good, bad): (Vec<bool>, Vec<bool>) = (passes(30.0), passes(29.0));
        assert_eq!((good, bad), (vec![true], vec![false]));
    }
}
