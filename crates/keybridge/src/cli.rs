//! The command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{
    approve, demo, doctor, down, env, generated, link, logs, record, rpc, run, serve, status, sync,
    up, watch,
};
use crate::config::{self, ConfigFile};
use crate::{Error, ErrorKind, Result};

/// Use your gpg and ssh keys in containers and on other hosts, while they stay on this machine, the host.
///
/// `keybridge up TARGET` makes the gpg-agent and the ssh-agent of the host usable in a target:
/// git commit -S, gpg -d, pass and ssh work there as they do on the host, and the keys never leave.
///
/// A target is a container (its name or id), `ssh://[USER@]HOST[:PORT]`, `wsl://DISTRO`, `local:DIR` (a second
/// GnuPG home on the host), or `exec:COMMAND`, where a command such as 'docker exec -i web' starts
/// programs in the target.
#[derive(Debug, Parser)]
#[command(name = "keybridge", version, long_version = env!("KEYBRIDGE_VERSION"), max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 success, 1 failure, 2 wrong usage, 3 the target or an agent \
                  can't be found.\nTo see the whole chain with a throw-away key: keybridge demo"
)]
pub struct Cli {
    /// The configuration file
    #[arg(
        long,
        value_name = "FILE",
        global = true,
        env = "KEYBRIDGE_CONFIG",
        hide_env_values = true
    )]
    config: Option<PathBuf>,
    /// How much to log to standard error: error, warn (the default), info, debug, trace
    #[arg(
        long,
        value_name = "LEVEL",
        global = true,
        env = "KEYBRIDGE_LOG",
        hide_env_values = true
    )]
    log: Option<tracing::Level>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a bridge, which then runs in the background
    Up(Box<up::Up>),
    /// Stop a bridge, and undo what up changed in the target
    Down(down::Down),
    /// Show what is bridged, since when, and how busy it is
    Status(status::Status),
    /// Answer the questions of bridges at this terminal
    Approve(approve::Approve),
    /// Check every link of the chain, with the fix for each that is broken
    Doctor(Box<doctor::Doctor>),
    /// Send the public keys and ownertrust again
    Sync(sync::Sync),
    /// Bridge every container with a label, as containers start and stop
    Watch(Box<watch::Watch>),
    /// Show what a bridge did
    Logs(logs::Logs),
    /// Show what was done with your keys, and check that this is all
    Record(record::Record),
    /// Print the variables to set in the target's shell
    Env(env::Env),
    /// Run a command in the target with the agents available
    Run(Box<run::Run>),
    /// Serve the bridge of a target; up starts this in the background
    #[command(hide = true)]
    Serve(Box<serve::Serve>),
    /// Serve the bridge of an editor's window, whose remote only the editor can reach
    #[command(hide = true)]
    Link(Box<link::Link>),
    /// Show the whole chain on the host alone, with a throw-away key
    Demo(demo::Demo),
    /// Serve the command interface over standard input and output, for editors
    Rpc(Box<rpc::Rpc>),
    /// Write shell completions to standard output
    Completions(generated::Completions),
    /// Write the manual pages
    Man(generated::Man),
}

impl Cli {
    /// The level to log at.
    pub fn log_level(&self) -> tracing::Level {
        // The log of a bridge in the background is read later.
        let default = match self.command {
            Command::Serve(_) | Command::Watch(_) => tracing::Level::INFO,
            _ => tracing::Level::WARN,
        };
        self.log.unwrap_or(default)
    }

    /// The level to log at where the log is kept: that of a bridge in the foreground is read later, too.
    pub fn kept_log_level(&self) -> tracing::Level {
        match &self.command {
            Command::Up(up) if up.is_in_foreground() => self.log_level().max(tracing::Level::INFO),
            _ => self.log_level(),
        }
    }

    /// Whether the process is to have nothing of its starter's but the standard streams.
    pub const fn outlives_its_starter(&self) -> bool {
        matches!(self.command, Command::Serve(_))
    }

    /// Runs the command; returns its exit status.
    pub async fn run(self) -> Result<ExitCode> {
        let config = || load_config(self.config.as_deref());
        let done = match self.command {
            // It shows what is broken itself.
            Command::Doctor(doctor) => return Box::pin(doctor.run(config()?)).await,
            Command::Up(up) => up.run(&config()?).await,
            Command::Down(down) => down.run().await,
            Command::Status(status) => status.run().await,
            Command::Approve(approve) => approve.run().await,
            Command::Sync(sync) => sync.run().await,
            Command::Watch(watch) => watch.run(&config()?).await,
            Command::Logs(logs) => logs.run().await,
            Command::Record(record) => record.run().await,
            Command::Env(env) => env.run().await,
            Command::Run(run) => run.run(&config()?).await,
            Command::Serve(serve) => Box::pin(serve.run(&config()?)).await,
            Command::Link(link) => Box::pin(link.run(&config()?)).await,
            Command::Demo(demo) => Box::pin(demo.run()).await,
            Command::Rpc(rpc) => rpc.run(&config()?).await,
            Command::Completions(completions) => {
                completions.run();
                Ok(())
            }
            Command::Man(man) => man.run(),
        };
        done.map(|()| ExitCode::SUCCESS)
    }
}

fn load_config(named: Option<&Path>) -> Result<ConfigFile> {
    match named {
        // Only the default file may be missing.
        Some(path) if !path.exists() => {
            let message = format!("there is no configuration file {}", path.display());
            Err(Error::new(ErrorKind::Usage, message))
        }
        Some(path) => ConfigFile::load(path),
        None => config::default_path()
            .map_or_else(|| Ok(ConfigFile::default()), |path| ConfigFile::load(&path)),
    }
}
