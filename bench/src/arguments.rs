//! The command line. People use `scripts/bench`, which calls this.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::measures::Measure;

const USAGE: &str = "usage: keybridge-bench run FOLDER DIST IMAGE [--check] [MEASURE...], with a short \
                     name for the folder; or keybridge-bench client; or keybridge-bench slow-link COMMAND...";

pub(crate) enum Request {
    Run(Options),
    /// Measures what is asked on standard input.
    Client,
    /// Runs a command that is far away.
    SlowLink(Vec<String>),
}

pub(crate) struct Options {
    /// An empty folder for homes, sockets and keys.
    pub(crate) folder: PathBuf,
    /// Where `scripts/build` put the programs.
    pub(crate) dist: PathBuf,
    /// An image of `scripts/lab`, with gpg, git and sshd.
    pub(crate) image: String,
    /// Fail when a bar isn't kept.
    pub(crate) check: bool,
    pub(crate) measures: Vec<Measure>,
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Request> {
    let mut next = || arguments.next().ok_or_else(|| Error::new(USAGE));
    match next()?.as_str() {
        "run" => {
            let (folder, dist, image) = (next()?.into(), next()?.into(), next()?);
            let mut options = Options { folder, dist, image, check: false, measures: Vec::new() };
            for word in arguments {
                match Measure::named(&word) {
                    Some(measure) => options.measures.push(measure),
                    None if word == "--check" => options.check = true,
                    None => return Err(Error::new(format!("{word} isn't measured; {}", names()))),
                }
            }
            if options.measures.is_empty() {
                options.measures = Measure::ALL.to_vec();
            }
            Ok(Request::Run(options))
        }
        "client" => Ok(Request::Client),
        "slow-link" => Ok(Request::SlowLink(arguments.collect())),
        _ => Err(Error::new(USAGE)),
    }
}

fn names() -> String {
    format!("there are: {}", Measure::ALL.map(Measure::name).join(", "))
}
