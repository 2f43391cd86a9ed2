//! A bridge in the background: how long `up` takes and what for, and what the programs hold.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::CROWD;
use super::syscalls::syscalls;
use crate::error::{Context, Error, Result};
use crate::figures::{Compared, Measurement, Row, Unit};
use crate::lab::{Agents, ClientProcess, Container, Lab, SharedClient, output};
use crate::lane::Lane;
use crate::question::Question;
use crate::subjects::{Bridge, Place, Role};

const ROUNDS: usize = 4;

/// What the life of bridges to one place came to.
pub(crate) struct Life {
    pub(crate) up: Measurement,
    pub(crate) memory: Measurement,
    pub(crate) syscalls: Measurement,
}

/// A target that bridges come to and go from.
struct Target<'a> {
    lab: &'a Lab,
    agents: &'a Agents,
    place: Place,
    at: At,
}

enum At {
    Home(PathBuf),
    Container(Container),
}

/// Measures bridges to one place, while no other bridge of these programs runs: what two share is
/// counted for each in half.
pub(crate) fn life(lab: &Lab, agents: &Agents, place: Place) -> Result<Life> {
    let at = match place {
        Place::Local => At::Home(lab.make_folder("life")?),
        Place::Docker => At::Container(Container::start(lab, "life", &[])?),
    };
    let target = Target { lab, agents, place, at };
    let up = target.up()?;
    let (client, bridge) = target.bridge()?;
    let memory = target.memory(&client, &bridge)?;
    let syscalls = syscalls(lab, place, &client, &bridge)?;
    Ok(Life { up, memory, syscalls })
}

impl Target<'_> {
    /// `up` when the helper isn't there, and when it is.
    fn up(&self) -> Result<Measurement> {
        let row = |name: String| Row { name, role: Role::Ours, rounds: Vec::new() };
        let mut rows = vec![row("cold".to_owned()), row("warm".to_owned())];
        for _ in 0..ROUNDS {
            for is_warm in [false, true] {
                if !is_warm {
                    self.remove_helper()?;
                }
                let (whole, steps) = self.up_and_down()?;
                let name = if is_warm { "warm" } else { "cold" };
                let steps = steps.into_iter().map(|(step, took)| (format!("{name}: {step}"), took));
                for (name, took) in std::iter::once((name.to_owned(), whole)).chain(steps) {
                    match rows.iter_mut().find(|row| row.name == name) {
                        Some(row) => row.rounds.push(vec![took]),
                        None => rows.push(Row { rounds: vec![vec![took]], ..row(name) }),
                    }
                }
            }
        }
        rows.sort_by_key(|row| (row.name.starts_with("warm"), row.name.contains(':')));
        Ok(Measurement {
            id: format!("{}.up", self.place.name()),
            title: format!("{}: keybridge up, cold and warm, and its steps", self.place.title()),
            unit: Unit::Millis,
            compared: Compared::Parts,
            rows,
        })
    }

    /// The milliseconds of one `up`, and of each of its steps.
    fn up_and_down(&self) -> Result<(f64, Vec<(String, f64)>)> {
        let start = Instant::now();
        let shown = output(self.keybridge("up").args(["--keys", "all"]))?;
        let whole = start.elapsed().as_secs_f64() * 1e3;
        output(&mut self.keybridge("down"))?;
        Ok((whole, shown.lines().filter_map(step).collect()))
    }

    fn keybridge(&self, verb: &str) -> Command {
        let mut command = self.lab.keybridge(self.agents);
        command.arg(verb).arg(match &self.at {
            At::Home(home) => format!("local:{}", home.display()),
            At::Container(container) => container.name.clone(),
        });
        command
    }

    fn remove_helper(&self) -> Result<()> {
        match &self.at {
            At::Home(_) => match std::fs::remove_dir_all(self.lab.at("cache")) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
                _ => Ok(()),
            },
            At::Container(container) => container.sh("rm -rf /root/.cache/keybridge").map(drop),
        }
    }

    /// A bridge that stays, and a client of it.
    fn bridge(&self) -> Result<(SharedClient, Bridge)> {
        let Self { lab, agents, .. } = self;
        match &self.at {
            At::Home(home) => Ok((ClientProcess::here(lab)?, Bridge::local(lab, agents, home)?)),
            At::Container(container) => {
                let client = ClientProcess::inside(lab, container)?;
                Ok((client, Bridge::docker(lab, agents, container)?))
            }
        }
    }

    /// What both programs hold after a small command, and with a crowd of clients.
    fn memory(&self, client: &SharedClient, bridge: &Bridge) -> Result<Measurement> {
        let socket = bridge.socket(Lane::Gpg).ok_or_else(|| Error::new("no gpg lane"))?;
        let mut rows = Vec::new();
        for (state, clients) in [("at rest", 1), ("with 200 streams", CROWD)] {
            let question = Question::Idle {
                name: "crowd".to_owned(),
                socket: socket.clone(),
                lane: Lane::Gpg,
                clients,
            };
            client.borrow_mut().ask(&question)?;
            if clients == 1 {
                client.borrow_mut().ask(&Question::Close { name: "crowd".to_owned() })?;
            }
            for (program, pid) in ["keybridge", "keybridge-remote"].into_iter().zip(bridge.pids()) {
                let rounds = vec![vec![pss_mib(pid)?]];
                rows.push(Row { name: format!("{program} {state}"), role: Role::Ours, rounds });
            }
        }
        client.borrow_mut().ask(&Question::Close { name: "crowd".to_owned() })?;
        Ok(Measurement {
            id: format!("{}.memory", self.place.name()),
            title: format!("{}: memory (Pss)", self.place.title()),
            unit: Unit::Mib,
            compared: Compared::Parts,
            rows,
        })
    }
}

/// What a line of `up` says: `✓ STEP (12 ms)`, or `✓ STEP: what came of it (1.2 s)`.
fn step(line: &str) -> Option<(String, f64)> {
    let (text, time) = line.strip_prefix("✓ ")?.rsplit_once(" (")?;
    let name = text.split(':').next()?.to_owned();
    let (number, unit) = time.strip_suffix(')')?.split_once(' ')?;
    let number: f64 = number.parse().ok()?;
    Some((name, if unit == "s" { number * 1e3 } else { number }))
}

/// The memory of a process, what it shares counted in proportion.
fn pss_mib(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let rollup = std::fs::read_to_string(Path::new(&path)).while_doing(&path)?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).ok_or_else(|| Error::new(format!("{path} tells no Pss")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_up_are_read() {
        let found = step("✓ the target: web (5a25396e7005), user root (2 ms)");
        assert_eq!(found, Some(("the target".to_owned(), 2.0)));
        assert_eq!(step("✓ the helper in the target (1.5 s)").map(|(_, took)| took), Some(1500.0));
        assert_eq!(step("web is bridged; keybridge down web ends it"), None);
    }
}
