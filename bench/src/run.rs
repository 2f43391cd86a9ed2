//! One run, from the first home to the last bar.

use std::path::Path;
use std::time::Instant;

use serde_json::json;

use crate::arguments::Options;
use crate::bars::bars;
use crate::error::{Context, Error, Result};
use crate::figures::Measurement;
use crate::lab::{AgentKind, Agents, Container, Endpoint, Lab};
use crate::lane::LANES;
use crate::measures::{
    BULK, bulk, commits, commits_on_a_slow_link, connections, crowd, life, round_trips, signatures,
    stalled,
};
use crate::question::Way;
use crate::report::{json, picture, show_bars, show_measurement};
use crate::subjects::{ExecCat, Field, PipedCat, Place};

/// Measures everything, shows it and writes it down. Tells whether every bar was kept.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let start = Instant::now();
    let Options { folder, dist, image, out, .. } = options;
    let lab = Lab::new(folder.clone(), dist.clone(), image.clone())?;
    let agents = [Agents::real(&lab)?, Agents::stand_in(&lab)?];
    let (load, processors) = (load(), std::thread::available_parallelism().map_or(1, usize::from));
    if load > processors as f64 / 2.0 {
        println!("busy: a load of {load} on {processors} processors, before anything is measured");
    }
    let mut done = Done::default();
    // First, while no other bridge runs.
    let [real, _] = &agents;
    for place in [Place::Local, Place::Docker] {
        let life = life(&lab, real, place)?;
        done.extend([life.up, life.memory, life.syscalls]);
    }
    done.add(commits(&lab, real)?);
    done.extend(commits_on_a_slow_link(&lab, real)?);
    let sockets: Vec<_> = agents.iter().flat_map(Agents::folders).collect();
    let container = Container::start(&lab, "base", &sockets)?;
    let fields = [Field::local(&lab, &agents)?, Field::docker(&lab, &agents, &container)?];
    let mut cat = ExecCat::start(&container)?;
    let piped = PipedCat::new(&lab, &container, BULK)?;
    for field in &fields {
        measure(field, &mut cat, &piped, &mut done)?;
    }
    let bars = bars(&done.0);
    show_bars(&bars);
    let kept = bars.iter().all(|bar| bar.passes);
    let about = json!({
        "seconds": start.elapsed().as_secs(),
        "processors": processors,
        "load_before": load,
        "kernel": read("/proc/sys/kernel/osrelease"),
    });
    write(out, "latest.json", &format!("{:#}\n", json(&done.0, &bars, &about)))?;
    write(out, "latest.svg", &picture(&done.0))?;
    let (took, out) = (start.elapsed().as_secs(), out.display());
    println!("\n{took} s; {out}/latest.json, {out}/latest.svg");
    Ok(kept)
}

fn measure(field: &Field, cat: &mut ExecCat, piped: &PipedCat<'_>, done: &mut Done) -> Result<()> {
    let in_docker = field.place == Place::Docker;
    for lane in LANES.into_iter().filter(|&lane| field.offers(lane)) {
        let real = Endpoint { lane, agent: AgentKind::Real };
        let stand_in = Endpoint { lane, agent: AgentKind::StandIn };
        for endpoint in [real, stand_in] {
            done.add(round_trips(field, endpoint, in_docker.then_some(&mut *cat))?);
        }
        done.add(connections(field, real)?);
        for endpoint in [real, stand_in] {
            done.add(crowd(field, endpoint)?);
        }
        for way in [Way::ToAgent, Way::FromAgent] {
            done.add(bulk(field, stand_in, way, in_docker.then_some(piped))?);
        }
        done.add(stalled(field, stand_in)?);
    }
    done.add(signatures(field)?);
    Ok(())
}

/// What was measured so far; shown as it comes.
#[derive(Default)]
struct Done(Vec<Measurement>);

impl Done {
    fn add(&mut self, measurement: Measurement) {
        show_measurement(&measurement);
        self.0.push(measurement);
    }

    fn extend(&mut self, measurements: impl IntoIterator<Item = Measurement>) {
        measurements.into_iter().for_each(|measurement| self.add(measurement));
    }
}

/// How many processes wanted to run in the last minute.
fn load() -> f64 {
    let first = read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok());
    first.unwrap_or_default()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    std::fs::create_dir_all(folder).while_doing(folder.display())?;
    let path = folder.join(name);
    std::fs::write(&path, text).map_err(|error| Error::new(format!("{}: {error}", path.display())))
}
