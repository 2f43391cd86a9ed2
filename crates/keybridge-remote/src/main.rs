//! The helper of keybridge: started in a target by the host's program, which it talks to over
//! standard input and output.
#![forbid(unsafe_code)]

mod command_line;
mod version_1;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use command_line::arguments::{self, Command};
use command_line::{inspect, remove_program, serve, stderr_log, undo};
use keybridge_remote::Entry;
use tracing::Level;

fn main() -> ExitCode {
    if let Some(entry) = Entry::of(std::env::args_os()) {
        return entry.run();
    }
    if is_version_1(std::env::args_os()) {
        stderr_log::start(Level::WARN);
        return version_1::run();
    }
    let request = match arguments::parse(std::env::args_os().skip(1)) {
        Ok(request) => request,
        Err(error) => {
            eprintln!("keybridge-remote: {error}\nfor the usage: keybridge-remote --help");
            return ExitCode::from(2);
        }
    };
    match request {
        Command::Help => print(arguments::help()),
        Command::Version => print(concat!("keybridge-remote ", env!("CARGO_PKG_VERSION"), "\n")),
        Command::Remove => match remove_program() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        Command::Inspect(arguments) => match inspect(&arguments) {
            Ok(found) => print(&found),
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        Command::Undo(arguments) => match undo::run(&arguments) {
            Ok(said) => print(format!("{said}\n")),
            Err(error) => {
                eprintln!("{error}");
                ExitCode::FAILURE
            }
        },
        Command::Serve(arguments) => {
            stderr_log::start(arguments.settings.log);
            serve::run(*arguments)
        }
    }
}

/// An existing host starts the helper by the name of its own server, and knows no options.
fn is_version_1(mut words: impl Iterator<Item = std::ffi::OsString>) -> bool {
    let name = words.next().unwrap_or_default();
    let is_mux = |word: std::ffi::OsString| word.as_encoded_bytes().starts_with(b"--mux");
    Path::new(&name).file_name() == Some(version_1::NAME.as_ref()) && !words.any(is_mux)
}

fn print(text: impl AsRef<[u8]>) -> ExitCode {
    match std::io::stdout().write_all(text.as_ref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_1_is_chosen_by_the_name_alone() {
        let is = |line: &str| is_version_1(line.split(' ').map(Into::into));
        assert!(is("/usr/local/bin/clawker-socket-server"));
        assert!(is("clawker-socket-server"));
        assert!(!is("clawker-socket-server serve --mux 2 --cookie x"));
        assert!(!is("clawker-socket-server serve --mux=2"));
        assert!(!is("/x/keybridge-remote"));
        assert!(!is("/clawker-socket-server/keybridge-remote"));
    }
}
