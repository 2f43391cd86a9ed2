//! Measures what a person feels of keybridge, beside what people use instead, in one run: on this machine, in
//! a container, and on a host that ssh leads to.
#![forbid(unsafe_code)]

mod arguments;
mod assuan;
mod bars;
mod client;
mod error;
mod figures;
mod lab;
mod measures;
mod question;
mod report;
mod run;
mod slow_link;
mod stand_in;
mod subjects;

use std::process::ExitCode;

use arguments::Request;
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
    match arguments::parse(std::env::args().skip(1))? {
        Request::Client => client::run()?,
        Request::SlowLink(words) => slow_link::run(&words)?,
        Request::Run(options) => {
            if !run::run(&options)? && options.check {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
