//! The program of the host.

use std::process::ExitCode;

use clap::Parser;
use keybridge::askpass;
use keybridge::cli::Cli;
use keybridge::limits::forbid_core_dumps;
use keybridge::log::LogWriter;
use keybridge::report::show_error;

fn main() -> ExitCode {
    if askpass::is_wanted() {
        forbid_core_dumps();
        return if askpass::run() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let cli = Cli::parse();
    tracing_subscriber::fmt()
        .with_max_level(cli.log_level())
        .with_writer(|| LogWriter)
        .with_ansi(false)
        .with_target(false)
        .init();
    forbid_core_dumps();
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            show_error(&keybridge::Error::failed(format!("starting: {error}")));
            return ExitCode::FAILURE;
        }
    };
    // A task like any other: what is blocked on is looked at each time that anything happens.
    let result = tokio::task::LocalSet::new().block_on(&runtime, async {
        let run = tokio::task::spawn_local(cli.run()).await;
        run.unwrap_or_else(|error| Err(keybridge::Error::failed(error.to_string())))
    });
    // What still reads standard input must not keep the program from ending.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            show_error(&error);
            ExitCode::from(error.exit_status())
        }
    }
}
