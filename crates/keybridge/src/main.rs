//! The host's program.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use keybridge::askpass;
use keybridge::cli::Cli;
use keybridge::log::LogWriter;
use keybridge::output::{prepare_terminal, show_error};
use keybridge::{Error, ErrorKind};
use keybridge::{close_inherited, forbid_core_dumps};
use tokio::runtime::LocalOptions;

fn main() -> ExitCode {
    if askpass::is_wanted() {
        forbid_core_dumps();
        return if askpass::run() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    prepare_terminal();
    let cli = Cli::parse();
    if cli.outlives_its_starter() {
        close_inherited();
    }
    tracing_subscriber::fmt()
        .with_max_level(cli.kept_log_level())
        .with_writer(LogWriter::showing(cli.log_level()))
        .with_ansi(false)
        .with_target(false)
        .init();
    forbid_core_dumps();
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = match runtime.enable_all().build_local(LocalOptions::default()) {
        Ok(runtime) => runtime,
        Err(error) => {
            show_error(&Error::failed("can't start the runtime").caused_by(error));
            return ExitCode::FAILURE;
        }
    };
    // In a task of its own: the future that is blocked on is polled at every wake-up of the thread.
    let result = runtime.block_on(async {
        let run = tokio::task::spawn_local(cli.run()).await;
        run.unwrap_or_else(|error| Err(Error::from_source(ErrorKind::Failed, error)))
    });
    // A blocked read of standard input must not keep the program from ending.
    runtime.shutdown_background();
    match result {
        Ok(status) => status,
        Err(error) => {
            show_error(&error);
            ExitCode::from(error.exit_status())
        }
    }
}
