//! The bars: ratios of one run that have to be kept.

use serde::Serialize;

use crate::figures::{Measurement, Ratio, Row};
use crate::measures::{CAT, PIPED_CAT, STALLED};
use crate::subjects::{BARE_CHAIN, TWO_RELAYS};

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

const EXEC: &str = "keybridge";
const DIRECT_PATH: &str = "keybridge, direct path";
const MOUNTED: &str = "direct socket, mounted";
const PAIR: &str = "socat pair over docker exec -i";
const RELAY: &str = "socat relay";

/// Every bar for which both sides were measured.
pub(crate) fn bars(measurements: &[Measurement]) -> Vec<Bar> {
    let run = Run(measurements);
    let mut bars = Vec::new();
    run.docker_exec(&mut bars);
    run.docker_direct_path(&mut bars);
    run.local(&mut bars);
    run.ssh_lane(&mut bars);
    run.up(&mut bars);
    bars
}

struct Run<'a>(&'a [Measurement]);

impl Run<'_> {
    fn docker_exec(&self, bars: &mut Vec<Bar>) {
        for agent in ["real", "stand-in"] {
            let id = format!("docker.gpg.{agent}.round-trip");
            let hops = self.hops(&id);
            push(
                bars,
                format!("Docker, {agent} agent: round trip p50 to cat and two direct round trips"),
                Limit::AtMost(1.2),
                self.medians(&id, EXEC).zip(hops).and_then(of),
            );
            push(
                bars,
                format!("Docker, {agent} agent: round trip p50 to the barest chain over exec"),
                Limit::AtMost(1.2),
                self.ratio(&id, EXEC, BARE_CHAIN),
            );
            push(
                bars,
                format!(
                    "Docker, {agent} agent: round trip p50 to a socat pair over docker exec -i"
                ),
                Limit::AtMost(0.85),
                self.ratio(&id, EXEC, PAIR),
            );
        }
        for (what, words) in [("bulk-to-agent", "to"), ("bulk-from-agent", "from")] {
            push(
                bars,
                format!("Docker: bulk {words} the agent, to docker exec -i … cat"),
                Limit::AtLeast(0.85),
                self.ratio(&format!("docker.gpg.stand-in.{what}"), EXEC, PIPED_CAT),
            );
        }
        for place in ["docker", "local"] {
            let id = format!("{place}.gpg.stand-in.stalled");
            let beside = self.row(&id, &format!("{EXEC}{STALLED}")).map(Row::p99);
            let quiet = self.row(&id, EXEC).map(Row::p99);
            push(
                bars,
                format!("{place}: p99 of small commands beside a stalled reader, to without"),
                Limit::AtMost(3.0),
                beside.zip(quiet).map(|(beside, quiet)| Ratio::plain(beside / quiet)),
            );
        }
    }

    fn docker_direct_path(&self, bars: &mut Vec<Bar>) {
        let id = "docker.gpg.real.round-trip";
        let relay = self.medians("local.gpg.real.round-trip", RELAY);
        push(
            bars,
            "Docker, direct path: round trip p50 to a socat relay".to_owned(),
            Limit::AtMost(1.5),
            self.medians(id, DIRECT_PATH).zip(relay).and_then(of),
        );
        push(
            bars,
            "Docker, direct path: round trip p50 to a raw cat through the exec API".to_owned(),
            Limit::AtMost(1.0),
            self.ratio(id, DIRECT_PATH, CAT),
        );
        for (what, words) in [("bulk-to-agent", "to"), ("bulk-from-agent", "from")] {
            push(
                bars,
                format!("Docker, direct path: bulk {words} the agent, to docker exec -i … cat"),
                Limit::AtLeast(3.0),
                self.ratio(&format!("docker.gpg.stand-in.{what}"), DIRECT_PATH, PIPED_CAT),
            );
        }
    }

    fn local(&self, bars: &mut Vec<Bar>) {
        for agent in ["real", "stand-in"] {
            push(
                bars,
                format!("local, {agent} agent: round trip p50 to a socat relay"),
                Limit::AtMost(1.5),
                self.ratio(&format!("local.gpg.{agent}.round-trip"), EXEC, RELAY),
            );
            push(
                bars,
                format!("local, {agent} agent: round trip p50 to two socat relays in a row"),
                Limit::AtMost(1.2),
                self.ratio(&format!("local.gpg.{agent}.round-trip"), EXEC, TWO_RELAYS),
            );
            push(
                bars,
                format!("local, {agent} agent: commands over 200 connections, to a socat relay"),
                Limit::AtLeast(1.0),
                self.ratio(&format!("local.gpg.{agent}.crowd"), EXEC, RELAY),
            );
        }
    }

    fn ssh_lane(&self, bars: &mut Vec<Bar>) {
        for place in ["docker", "local"] {
            let lane = |lane| format!("{place}.{lane}.stand-in.round-trip");
            let (ssh, gpg) = (self.medians(&lane("ssh"), EXEC), self.medians(&lane("gpg"), EXEC));
            push(
                bars,
                format!("{place}: round trip p50 of the ssh lane to the gpg lane"),
                Limit::AtMost(1.2),
                ssh.zip(gpg).and_then(of),
            );
        }
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

    /// The hops that can't be avoided, in each round: through the engine, and to a socket at each end.
    fn hops(&self, id: &str) -> Option<Vec<f64>> {
        let (cat, direct) = (self.medians(id, CAT)?, self.medians(id, MOUNTED)?);
        Some(cat.iter().zip(direct).map(|(cat, direct)| cat + 2.0 * direct).collect())
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
        let measurement = |relay: f64| Measurement {
            id: "local.gpg.real.round-trip".to_owned(),
            title: String::new(),
            unit: Unit::Micros,
            compared: Compared::Subjects,
            rows: vec![row(EXEC, 30.0), row(RELAY, relay)],
        };
        let passes = |relay| bars(&[measurement(relay)]).iter().map(|bar| bar.passes).collect();
        let (good, bad): (Vec<bool>, Vec<bool>) = (passes(20.0), passes(19.0));
        assert_eq!((good, bad), (vec![true], vec![false]));
    }
}
