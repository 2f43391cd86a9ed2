//! The helper of keybridge: started in a target by the host's program, which it talks to over
//! standard input and output.
#![forbid(unsafe_code)]

mod arguments;
mod log;
mod probe;
mod remove;
mod serve;
mod undo;

use std::io::Write;
use std::process::ExitCode;

use arguments::{HELP, Request};

fn main() -> ExitCode {
    let request = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("keybridge-remote: {error}\nkeybridge-remote --help shows what can be said");
            return ExitCode::from(2);
        }
    };
    match request {
        Request::Help => print(HELP),
        Request::Version => print(concat!("keybridge-remote ", env!("CARGO_PKG_VERSION"), "\n")),
        Request::Probe(lane, socket) => match probe::run(lane, &socket) {
            Ok(answer) => print(&format!("{answer}\n")),
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        Request::Remove => match remove::run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        Request::Undo(bridge) => match undo::run(bridge.as_ref()) {
            Ok(said) => print(&format!("{said}\n")),
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        Request::Serve(options) => {
            log::start(options.log);
            serve::run(*options)
        }
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
