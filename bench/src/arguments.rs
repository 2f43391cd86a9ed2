//! The command line. People use `scripts/bench`, which calls this.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::lane::Lane;

pub(crate) const HELP: &str = "\
Measures keybridge beside what people use instead. scripts/bench builds what it needs and calls it.

Usage: keybridge-bench run --folder DIR --dist DIR --image IMAGE --out DIR [--check]
       keybridge-bench client                          measures what is asked on standard input
       keybridge-bench stand-in --gpg SOCKET --ssh SOCKET

  --folder DIR    an empty folder of a short name for homes, sockets and keys
  --dist DIR      where scripts/build put the programs
  --image IMAGE   an image with gpg, of scripts/lab
  --out DIR       where latest.json and latest.svg are written
  --check         fail when a bar isn't kept
";

pub(crate) enum Request {
    Help,
    Run(Options),
    Client,
    StandIn(Vec<(Lane, PathBuf)>),
}

pub(crate) struct Options {
    pub(crate) folder: PathBuf,
    pub(crate) dist: PathBuf,
    pub(crate) image: String,
    pub(crate) out: PathBuf,
    pub(crate) check: bool,
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> Result<Request> {
    let verb = arguments.next().unwrap_or_default();
    let mut named = Named::read(arguments)?;
    let request = match verb.to_str() {
        Some("run") => Request::Run(Options {
            folder: named.take("--folder")?,
            dist: named.take("--dist")?,
            image: named.take("--image")?.display().to_string(),
            out: named.take("--out")?,
            check: std::mem::take(&mut named.check),
        }),
        Some("client") => Request::Client,
        Some("stand-in") => Request::StandIn(vec![
            (Lane::Gpg, named.take("--gpg")?),
            (Lane::Ssh, named.take("--ssh")?),
        ]),
        Some("--help" | "-h") => Request::Help,
        _ => return Err(Error::new("a command is expected; --help says more")),
    };
    named.nothing_left()?;
    Ok(request)
}

struct Named {
    values: Vec<(String, PathBuf)>,
    check: bool,
}

impl Named {
    fn read(mut arguments: impl Iterator<Item = OsString>) -> Result<Self> {
        let mut named = Self { values: Vec::new(), check: false };
        while let Some(name) = arguments.next() {
            if name == "--check" {
                named.check = true;
                continue;
            }
            let name = name.display().to_string();
            let value = arguments.next();
            let value = value.ok_or_else(|| Error::new(format!("{name} needs a value")))?;
            named.values.push((name, value.into()));
        }
        Ok(named)
    }

    fn take(&mut self, name: &str) -> Result<PathBuf> {
        let at = self.values.iter().position(|(given, _)| given == name);
        let at = at.ok_or_else(|| Error::new(format!("{name} is missing")))?;
        Ok(self.values.swap_remove(at).1)
    }

    fn nothing_left(&self) -> Result<()> {
        match self.values.first() {
            Some((name, _)) => Err(Error::new(format!("unknown argument {name}"))),
            None if self.check => Err(Error::new("--check is for run")),
            None => Ok(()),
        }
    }
}
