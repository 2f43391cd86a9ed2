//! The first contact with a target: a shell there reads a script from its standard input, prints what it
//! finds, receives the helper if that is missing, and executes it. So a link takes one command in every
//! kind of target: in an engine each command costs time, and over ssh each is a login.
//!
//! The script finds or makes a folder that belongs to the user, has mode 0700, isn't a link and lets
//! programs run. It writes the helper there under another name, compares its hash, and renames it. The
//! hash is compared again before each start.

use std::fmt::Display;

use keybridge_proto::printable;
use tracing::debug;

use super::{EditorTarget, Process, Target, TargetCommand, mark_if_words, says};
use crate::checks::Check;
use crate::helper::Helper;
use crate::target::contact_shell::{Facts, Shell};
use crate::{Error, ErrorKind, Result};

/// A helper that is in a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Installed {
    /// Its path there.
    pub(crate) path: String,
    /// Whether it was copied there just now.
    pub(crate) is_new: bool,
}

/// What the first contact with a target shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Whether there is a shell.
    pub(crate) has_shell: bool,
    /// The processor, as `uname -m` names it, if it is known.
    pub(crate) processor: Option<String>,
    /// Whether the right helper is there already.
    pub(crate) has_helper: bool,
}

/// A target that was reached, and in which the helper can be started.
pub(crate) struct Contact<'a> {
    target: &'a Target,
    helper: &'a Helper,
    outlives_us: bool,
    keeps_others: bool,
    means: Means,
}

/// How the helper can be installed and started.
enum Means {
    /// With a shell that has looked for the helper with this hash.
    Shell { shell: Box<Shell>, facts: Facts, hash: String },
    /// Only through the engine, since the target has no shell.
    Engine,
    /// By the extension in the remote, which contains the helper.
    Extension,
}

impl<'a> Contact<'a> {
    /// Reaches a target. A helper that outlives us keeps running when its [`Process`] is dropped.
    pub(crate) async fn open(
        target: &'a Target,
        helper: &'a Helper,
        outlives_us: bool,
    ) -> Result<Self> {
        let means = if target.has_helper() {
            Means::Extension
        } else {
            let hash = likely_hash(helper);
            // Boxed, to keep the futures of bridges small: it is seldom needed.
            match Box::pin(open_shell(target, &hash, outlives_us)).await {
                Ok((shell, facts)) => Means::Shell { shell: Box::new(shell), facts, hash },
                Err(error) if error.kind == ErrorKind::NoShell && target.is_container() => {
                    Means::Engine
                }
                Err(error) if error.kind == ErrorKind::WrongProcessor => {
                    return Err(target.name_processors(error).await);
                }
                Err(error) => return Err(error),
            }
        };
        Ok(Self { target, helper, outlives_us, keeps_others: false, means })
    }

    /// Leaves helpers of other versions in the target where they are.
    #[must_use]
    pub(crate) const fn keeping_others(mut self) -> Self {
        self.keeps_others = true;
        self
    }

    /// What is known about the target so far.
    pub(crate) fn reached(&self) -> Reached {
        match &self.means {
            Means::Shell { facts, .. } => {
                let processor = facts.get("processor").map(|value| marked(self.target, value));
                Reached { has_shell: true, processor, has_helper: facts.get("path").is_some() }
            }
            Means::Engine => Reached { has_shell: false, processor: None, has_helper: false },
            Means::Extension => Reached { has_shell: false, processor: None, has_helper: true },
        }
    }

    /// Makes sure that the right helper is in the target.
    pub(crate) async fn install(self) -> Result<Installed> {
        Box::pin(self.put()).await.map(|(installed, _)| installed)
    }

    /// Starts the right helper with these arguments; installs it first if it is missing, and then adds those
    /// in `if_new`.
    pub(crate) async fn start(
        self,
        arguments: &[String],
        if_new: &[&str],
    ) -> Result<(Installed, Process)> {
        let (target, outlives_us) = (self.target, self.outlives_us);
        let (installed, shell) = Box::pin(self.put()).await?;
        let mut command = TargetCommand::new([&installed.path]);
        command.words.extend(arguments.iter().map(Into::into));
        if installed.is_new {
            command.words.extend(if_new.iter().map(Into::into));
        }
        command.outlives_us = outlives_us;
        let process = match shell {
            Some(shell) => shell.exec(&command).await?,
            None => target.run(&command).await?,
        };
        Ok((installed, process))
    }

    async fn put(self) -> Result<(Installed, Option<Shell>)> {
        let Self { target, helper, means, keeps_others, .. } = self;
        let (mut shell, mut facts, hash) = match means {
            Means::Shell { shell, facts, hash } => (*shell, facts, hash),
            Means::Engine => return Ok((put_by_engine(target, helper).await?, None)),
            Means::Extension => {
                let path = EditorTarget::HELPER.to_owned();
                return Ok((Installed { path, is_new: false }, None));
            }
        };
        check_system(target, &facts)?;
        let processor = marked(target, facts.get("processor").unwrap_or_default());
        let program =
            helper.for_processor(&processor).map_err(|error| in_context(target, error))?;
        if program.hash() != hash {
            facts = shell.ask(&["find_helper", program.hash()]).await?;
        }
        if let Some(path) = facts.get("path") {
            debug!(path = %printable(path), "the helper is there");
            return Ok((Installed { path: path.to_owned(), is_new: false }, Some(shell)));
        }
        let facts = shell.put(program.hash(), &processor, &program.bytes(), keeps_others).await?;
        let Some(path) = facts.get("path") else {
            return Err(not_put(target, &processor, &facts));
        };
        debug!(path = %printable(path), "the helper was put");
        Ok((Installed { path: path.to_owned(), is_new: true }, Some(shell)))
    }
}

/// Starts a shell that looks for the helper with a hash.
async fn open_shell(target: &Target, hash: &str, outlives_us: bool) -> Result<(Shell, Facts)> {
    match Shell::open(target, hash, outlives_us).await {
        Err(error) if error.kind == ErrorKind::LoginRefused => {
            let Some(other) = target.by_shared_connection() else { return Err(error) };
            // The first error is the reason: it is the same host.
            Shell::open(&other, hash, outlives_us).await.map_err(|_| error)
        }
        opened => opened,
    }
}

/// Runs a command with a shell of the target.
pub(super) async fn run_in_shell(target: &Target, command: &TargetCommand) -> Result<Process> {
    let (shell, facts) = open_shell(target, "", command.outlives_us).await?;
    check_terminal(target, &facts)?;
    shell.exec(command).await
}

/// The only system that the helper runs on.
const SYSTEM: &str = "Linux";

fn check_terminal(target: &Target, facts: &Facts) -> Result<()> {
    if facts.get("terminal").is_some() {
        let message = "the command gives its program a terminal, which changes bytes";
        return Err(Error::new(ErrorKind::Usage, format!("{}: {message}", target.address()))
            .hint("leave out its option for a terminal, such as -t"));
    }
    Ok(())
}

fn check_system(target: &Target, facts: &Facts) -> Result<()> {
    check_terminal(target, facts)?;
    match facts.get("system") {
        Some(SYSTEM) => Ok(()),
        other => {
            let system =
                other.map_or("an unknown system".to_owned(), |other| marked(target, other));
            let address = target.address();
            let message = format!("keybridge's helper needs {SYSTEM}, and {address} runs {system}");
            Err(Error::failed(message))
        }
    }
}

/// The programs that the script needs.
const PROGRAMS: [&str; 2] = ["sha256sum", "head"];

/// What a target gives as a value, for a sentence of ours.
fn marked(target: &Target, value: &str) -> String {
    let mut value = printable(value).to_string();
    mark_if_words(&target.address().name(), &mut value);
    value
}

/// Why the script couldn't write the helper.
fn not_put(target: &Target, processor: &str, facts: &Facts) -> Error {
    let failed = |kind, why: &dyn Display| in_context(target, Error::new(kind, why.to_string()));
    if let Some(programs) = facts.get("programs") {
        let programs = marked(target, programs);
        let why = format!("its uname reports {processor}, but its programs are for {programs}");
        return failed(ErrorKind::WrongProcessor, &why)
            .hint("make `uname -m` there name the processor: it decides which helper is sent");
    }
    if let Some(program) = facts.get("missing") {
        return match PROGRAMS.into_iter().find(|needed| *needed == program) {
            Some(program) => {
                failed(ErrorKind::NotFound, &format!("the program {program} is missing there"))
                    .hint(format!("install {program} there"))
            }
            None => failed(ErrorKind::NotFound, &says(&target.address().name(), program)),
        };
    }
    if let Some(folder) = facts.get("incomplete") {
        return failed(
            ErrorKind::IncompleteCopy,
            &format!("the disk may be full: it did not arrive whole in {}", marked(target, folder)),
        )
        .hint("it needs some MiB: free space there, or mount a larger temporary folder");
    }
    failed(
        ErrorKind::NotPermitted,
        &"the target has no folder that the helper can be put in and run from",
    )
    .hint("make the user's ~/.cache writable, or mount a temporary folder without noexec")
}

fn in_context(target: &Target, error: Error) -> Error {
    error.context(format!("putting the helper into {}", target.address())).at_check(Check::Helper)
}

/// Copies the helper into a target without a shell. The next link can't find it there.
async fn put_by_engine(target: &Target, helper: &Helper) -> Result<Installed> {
    let put = async {
        let program = helper.for_processor(&target.processor().await?)?;
        target.put("keybridge-remote", &program.bytes()).await
    };
    let path = put.await.map_err(|error| in_context(target, error))?;
    Ok(Installed { path, is_new: true })
}

/// The hash of the helper for our own processor. The target most likely has the same processor, and then
/// one request is enough.
fn likely_hash(helper: &Helper) -> String {
    let program = helper.for_processor(std::env::consts::ARCH);
    program.map(|program| program.hash().to_owned()).unwrap_or_default()
}
