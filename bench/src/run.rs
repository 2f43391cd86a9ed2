//! One run, from the first home to the last bar.

use std::time::Instant;

use crate::arguments::Options;
use crate::bars::{Bar, bars};
use crate::error::Result;
use crate::figures::Measurement;
use crate::lab::{Agents, Lab, Place, Target};
use crate::measures::{
    Measure, bulk, commits, commits_on_a_slow_link, crowd, memory, round_trips, signatures, up,
};
use crate::question::Way;
use crate::report::{show_bars, show_measurement};
use crate::subjects::Field;

/// Measures, and shows what was measured. Tells whether every bar was kept.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let start = Instant::now();
    let Options { folder, dist, image, measures, .. } = options;
    let lab = Lab::new(folder.clone(), dist.clone(), image.clone())?;
    let (real, stand_in) = (Agents::real(&lab)?, Agents::stand_in(&lab)?);
    let (load, processors) = (load(), std::thread::available_parallelism().map_or(1, usize::from));
    if load > processors as f64 / 2.0 {
        println!("busy: a load of {load} on {processors} processors, before anything is measured");
    }
    let mut run = Run { lab: &lab, measures, done: Vec::new() };
    for place in [Place::Local, Place::Docker, Place::Ssh] {
        run.place(place, &real, &stand_in)?;
    }
    if measures.contains(&Measure::Commit) {
        run.add(commits(&lab, &real)?);
    }
    if measures.contains(&Measure::SlowLink) {
        commits_on_a_slow_link(&lab, &real)?.into_iter().for_each(|done| run.add(done));
    }
    let bars = bars(&run.done);
    show_bars(&bars);
    println!("\n{} s", start.elapsed().as_secs());
    Ok(bars.iter().all(Bar::is_kept))
}

/// How something is measured of all subjects of a target.
type OfField = fn(&Field<'_>) -> Result<Measurement>;

struct Run<'a> {
    lab: &'a Lab,
    measures: &'a [Measure],
    /// Shown as it comes.
    done: Vec<Measurement>,
}

impl Run<'_> {
    fn place(&mut self, place: Place, real: &Agents, stand_in: &Agents) -> Result<()> {
        const OF_REAL: [(Measure, OfField); 4] = [
            (Measure::Memory, memory),
            (Measure::RoundTrip, round_trips),
            (Measure::Signature, signatures),
            (Measure::Crowd, crowd),
        ];
        let (lab, measures) = (self.lab, self.measures);
        let is_wanted = |measure| measures.contains(&measure);
        if is_wanted(Measure::Up) || OF_REAL.iter().any(|&(measure, _)| is_wanted(measure)) {
            let target = Target::new(lab, place, real)?;
            if is_wanted(Measure::Up) {
                self.add(up(lab, real, &target)?);
            }
            let field = Field::new(lab, real, target)?;
            for (_, take) in OF_REAL.iter().filter(|&&(measure, _)| is_wanted(measure)) {
                self.add(take(&field)?);
            }
        }
        if is_wanted(Measure::Bulk) {
            let field = Field::new(lab, stand_in, Target::new(lab, place, stand_in)?)?;
            for way in [Way::ToAgent, Way::FromAgent] {
                self.add(bulk(&field, way)?);
            }
        }
        Ok(())
    }

    fn add(&mut self, measurement: Measurement) {
        show_measurement(&measurement);
        self.done.push(measurement);
    }
}

/// How many processes wanted to run in the last minute.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default()
}
