//! Putting the helper into a target.
//!
//! A script for any POSIX shell finds or makes a folder of the user's own, mode 0700, that is not a
//! link and lets programs run; writes the helper there under another name, compares its hash, and
//! renames it. The hash is compared again before each start.

use keybridge_proto::printable;
use tracing::debug;

use super::{EditorTarget, Process, Target, TargetCommand};
use crate::helper::Helper;
use crate::{Error, Result};

/// Its steps: `find` says which processor the target has and where the helper is, `start` says so too
/// and that it `runs`, and then becomes the helper, `put` reads it from standard input.
const SCRIPT: &str = include_str!("install.sh");

/// A helper that is in a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installed {
    /// Its path there.
    pub path: String,
    /// Whether it was put there just now.
    pub is_new: bool,
}

impl Installed {
    /// The command that starts it with these arguments.
    pub fn command(&self, arguments: &TargetCommand) -> TargetCommand {
        let mut command = arguments.clone();
        command.words.insert(0, self.path.clone().into());
        command
    }
}

/// What came of starting a helper that may be in the target.
pub enum Begun {
    /// It was there, and runs.
    Runs(Installed, Box<Process>),
    /// It was not, and this was found instead, if it was looked for.
    Not(Option<Found>),
}

/// What was found in a target.
pub enum Found {
    /// What the script says.
    Facts(String),
    /// There is no shell for it.
    NoShell,
}

/// Starts the helper with these arguments if the right one is in the target. That is one command there
/// instead of two: in an engine each takes its time.
pub async fn begin(target: &Target, helper: &Helper, arguments: &TargetCommand) -> Result<Begun> {
    if let Target::Editor(_) = target {
        return Ok(Begun::Not(None));
    }
    let mut command = script("start", &guess(helper));
    command.words.push(std::env::consts::ARCH.into());
    command.words.extend_from_slice(&arguments.words);
    command.outlives_us = arguments.outlives_us;
    let (facts, process) = match target.head(&command, |line| line == b"runs\n").await {
        Err(error) if target.says_no_shell(&error) => return Ok(Begun::Not(Some(Found::NoShell))),
        begun => begun.map_err(in_context)?,
    };
    Ok(match (process, fact(&facts, "path")) {
        (Some(process), Some(path)) => {
            debug!(path = %printable(path), "the helper is there");
            Begun::Runs(Installed { path: path.to_owned(), is_new: false }, Box::new(process))
        }
        (Some(_) | None, _) => Begun::Not(Some(Found::Facts(facts))),
    })
}

fn fact<'a>(facts: &'a str, name: &str) -> Option<&'a str> {
    facts.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
}

/// Makes sure that the right helper is in the target; `found` is what is known of it already.
pub async fn install(target: &Target, helper: &Helper, found: Option<Found>) -> Result<Installed> {
    if let Target::Editor(_) = target {
        // The extension in the remote brings the helper along.
        return Ok(Installed { path: EditorTarget::HELPER.to_owned(), is_new: false });
    }
    let guess = guess(helper);
    let found = match found {
        Some(found) => found,
        None => match run(target, "find", &guess, b"").await {
            Err(error) if target.says_no_shell(&error) => Found::NoShell,
            facts => Found::Facts(facts?),
        },
    };
    let Found::Facts(facts) = found else { return put_directly(target, helper).await };
    let Some(processor) = fact(&facts, "processor") else {
        return Err(Error::failed("the target's shell did not say which processor it has")
            .hint("see what `sh -c 'uname -m'` prints there"));
    };
    let program = helper.for_processor(processor)?;
    let hash = program.hash();
    let facts = if hash == guess { facts } else { run(target, "find", hash, b"").await? };
    if let Some(path) = fact(&facts, "path") {
        debug!(path = %printable(path), "the helper is there");
        return Ok(Installed { path: path.to_owned(), is_new: false });
    }
    let put = run(target, "put", hash, &program.bytes()).await?;
    let path = fact(&put, "path").ok_or_else(|| {
        Error::failed("the target has no folder that the helper can be put in and run from")
            .hint("make the user's ~/.cache writable, or mount a temporary folder without noexec")
    })?;
    debug!(path = %printable(path), "the helper was put");
    Ok(Installed { path: path.to_owned(), is_new: true })
}

/// Puts the helper into a target without a shell, where it can't be found again.
async fn put_directly(target: &Target, helper: &Helper) -> Result<Installed> {
    let program = helper.for_processor(&target.processor().await?)?;
    let put = target.put("keybridge-remote", &program.bytes()).await;
    let path = put.map_err(|error| error.context("putting the helper in place"))?;
    Ok(Installed { path, is_new: true })
}

/// The hash of the helper for our own processor, which the target most likely has: then one question is
/// enough.
fn guess(helper: &Helper) -> String {
    let program = helper.for_processor(std::env::consts::ARCH);
    program.map(|program| program.hash().to_owned()).unwrap_or_default()
}

fn script(step: &str, hash: &str) -> TargetCommand {
    TargetCommand::new(["sh", "-c", SCRIPT, "keybridge", step, hash])
}

async fn run(target: &Target, step: &str, hash: &str, input: &[u8]) -> Result<String> {
    target.output(&script(step, hash), input).await.map_err(in_context)
}

fn in_context(error: Error) -> Error {
    match error.hints.is_empty() {
        true if error.message.contains("did not arrive whole") => error
            .context("putting the helper in place")
            .hint("it needs some MiB: free space there, or mount a larger temporary folder"),
        true => error.context("putting the helper in place"),
        false => error,
    }
}
