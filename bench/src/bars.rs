//! The bars: ratios of one run that have to be kept.

use serde::Serialize;

use crate::figures::{Measurement, Ratio, Row};
use crate::measures::{CAT, PIPED_CAT, STALLED};
use crate::subjects::{BARE_CHAIN, BARE_RELAY, EXEC, LOCAL, MOUNTED_RELAY, PASSED, Place, RELAY};

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

const MOUNTED: &str = "direct socket, mounted";
const PAIR: &str = "socat pair over docker exec -i";

/// The names of a place's subjects on one kernel.
struct OneKernel {
    place: Place,
    /// Ours, with clients that the helper passes to the host.
    passed: &'static str,
    relay: &'static str,
    /// The agent's own socket.
    own: &'static str,
}

const ONE_KERNEL: [OneKernel; 2] = [
    OneKernel { place: Place::Docker, passed: PASSED, relay: MOUNTED_RELAY, own: MOUNTED },
    OneKernel { place: Place::Local, passed: LOCAL, relay: RELAY, own: "direct socket" },
];

/// Every bar for which both sides were measured.
pub(crate) fn bars(measurements: &[Measurement]) -> Vec<Bar> {
    let run = Run(measurements);
    let mut bars = Vec::new();
    run.docker_exec(&mut bars);
    run.docker_passed(&mut bars);
    for names in &ONE_KERNEL {
        run.one_kernel(names, &mut bars);
    }
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
        self.stalled(bars, Place::Docker, EXEC, 3.0);
    }

    fn docker_passed(&self, bars: &mut Vec<Bar>) {
        push(
            bars,
            "Docker, passed: round trip p50 to a raw cat through the exec API".to_owned(),
            Limit::AtMost(1.0),
            self.ratio("docker.gpg.real.round-trip", PASSED, CAT),
        );
        for (what, words) in [("bulk-to-agent", "to"), ("bulk-from-agent", "from")] {
            push(
                bars,
                format!("Docker, passed: bulk {words} the agent, to docker exec -i … cat"),
                Limit::AtLeast(3.0),
                self.ratio(&format!("docker.gpg.stand-in.{what}"), PASSED, PIPED_CAT),
            );
        }
    }

    /// The host talks to the client itself, so a relay is what it compares with.
    fn one_kernel(&self, names: &OneKernel, bars: &mut Vec<Bar>) {
        let OneKernel { place, passed, relay, own } = names;
        let (short, title) = (place.name(), place.title());
        let relays = [("a socat relay", *relay, 1.3), ("the barest relay", BARE_RELAY, 0.8)];
        for (agent, (words, other, least)) in
            ["real", "stand-in"].into_iter().flat_map(|agent| relays.map(|relay| (agent, relay)))
        {
            push(
                bars,
                format!("{title}, passed, {agent} agent: round trip p50 to {words}"),
                Limit::AtMost(1.0),
                self.ratio(&format!("{short}.gpg.{agent}.round-trip"), passed, other),
            );
            push(
                bars,
                format!(
                    "{title}, passed, {agent} agent: commands over 200 connections, to {words}"
                ),
                Limit::AtLeast(least),
                self.ratio(&format!("{short}.gpg.{agent}.crowd"), passed, other),
            );
        }
        for (what, words) in [("bulk-to-agent", "to"), ("bulk-from-agent", "from")] {
            push(
                bars,
                format!("{title}, passed: bulk {words} the agent, to a socat relay"),
                Limit::AtLeast(0.9),
                self.ratio(&format!("{short}.gpg.stand-in.{what}"), passed, relay),
            );
        }
        self.stalled(bars, *place, passed, 2.0);
        push(
            bars,
            format!("{title}, passed: one gpg signature, to one on the agent's own socket"),
            Limit::AtMost(1.15),
            self.ratio(&format!("{short}.gpg.real.signature"), passed, own),
        );
    }

    fn stalled(&self, bars: &mut Vec<Bar>, place: Place, name: &str, limit: f64) {
        let id = format!("{}.gpg.stand-in.stalled", place.name());
        let beside = self.row(&id, &format!("{name}{STALLED}")).map(Row::p99);
        let quiet = self.row(&id, name).map(Row::p99);
        push(
            bars,
            format!(
                "{}, {name}: p99 of small commands beside a stalled reader, to without",
                place.title()
            ),
            Limit::AtMost(limit),
            beside.zip(quiet).map(|(beside, quiet)| Ratio::plain(beside / quiet)),
        );
    }

    fn ssh_lane(&self, bars: &mut Vec<Bar>) {
        for (place, name) in [(Place::Docker, EXEC), (Place::Docker, PASSED), (Place::Local, LOCAL)]
        {
            let lane = |lane| format!("{}.{lane}.stand-in.round-trip", place.name());
            let (ssh, gpg) = (self.medians(&lane("ssh"), name), self.medians(&lane("gpg"), name));
            push(
                bars,
                format!(
                    "{}, {name}: round trip p50 of the ssh lane to the gpg lane",
                    place.title()
                ),
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
            rows: vec![row(LOCAL, 30.0), row(RELAY, relay)],
        };
        let passes = |relay| bars(&[measurement(relay)]).iter().map(|bar| bar.passes).collect();
        let (good, bad): (Vec<bool>, Vec<bool>) = (passes(30.0), passes(29.0));
        assert_eq!((good, bad), (vec![true], vec![false]));
    }
}
