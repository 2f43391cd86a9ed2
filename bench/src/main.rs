//! Measures keybridge beside what people use instead, in one run, for a local target and for Docker.
#![forbid(unsafe_code)]

mod arguments;
mod bars;
mod client;
mod error;
mod figures;
mod lab;
mod lane;
mod measures;
mod question;
mod report;
mod run;
mod stand_in;
mod subjects;

use std::process::ExitCode;

use arguments::{HELP, Request};
use error::Result;

fn main() -> ExitCode {
    match answer() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("keybridge-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answer() -> Result<ExitCode> {
    match arguments::parse(std::env::args_os().skip(1))? {
        Request::Help => print!("{HELP}"),
        Request::Client => client::run()?,
        Request::StandIn(sockets) => stand_in::run(sockets)?,
        Request::Run(options) => {
            if !run::run(&options)? && options.check {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
