//! The command line.

use std::ffi::OsString;

use keybridge_proto::inspection::Inspection;
use keybridge_proto::mux::Cookie;
use keybridge_proto::printable;
use keybridge_remote::{BridgeToken, InspectionRequest, ServeOption, Settings};

const HELP: &str = "\
The half of keybridge that runs in a target. The program `keybridge` starts it there and talks to it
over standard input and output; there is no need to start it by hand.

Usage: keybridge-remote serve --mux 2 --cookie HEX [OPTIONS]
       keybridge-remote undo [--bridge TOKEN] [--purge]
                                        undoes what a helper that was killed has left; a running
                                        helper of this bridge is ended first. With --purge it also
                                        removes the public keys and the ownertrust that helpers
                                        have imported
       keybridge-remote inspect [--key FINGERPRINT]... [--sign FINGERPRINT] [--no-questions]
                                [--remove]
                                        prints what is in the target for the bridge, and these
                                        public keys; changes nothing. With --sign gpg makes a
                                        signature and verifies it. With --no-questions nothing
                                        goes through the bridge. With --remove this program and
                                        its folder are removed first
       keybridge-remote remove          removes this program and its folder

Options of serve:
  --mux 2              the version of the link
  --cookie HEX         32 hexadecimal digits that mark where the output starts
";

const HELP_END: &str = "
  --help               this text
  --version            the version

GNUPGHOME names the GnuPG home, as for gpg, and SSH_AUTH_SOCK where ssh looks for its agent.
";

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Command {
    Help,
    Version,
    Serve(Box<ServeArguments>),
    Undo(UndoArguments),
    Inspect(InspectArguments),
    Remove,
}

/// The arguments of `inspect`.
#[derive(Debug)]
pub(crate) struct InspectArguments {
    pub(crate) request: InspectionRequest,
    /// Whether this program is there for this alone.
    pub(crate) remove: bool,
}

/// The arguments of `undo`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct UndoArguments {
    pub(crate) bridge: Option<BridgeToken>,
    pub(crate) purge: bool,
}

/// The arguments of `serve`.
#[derive(Debug)]
pub(crate) struct ServeArguments {
    pub(crate) cookie: Cookie,
    pub(crate) settings: Settings,
}

/// The help text.
pub(crate) fn help() -> String {
    [HELP, &Settings::help(), HELP_END].concat()
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut arguments = arguments.map(|argument| {
        argument
            .into_string()
            .map_err(|argument| format!("not UTF-8: {}", printable(argument.as_encoded_bytes())))
    });
    match arguments.next().transpose()?.as_deref() {
        Some("--help" | "-h" | "help") => Ok(Command::Help),
        Some("--version" | "-V") => Ok(Command::Version),
        Some("serve") => parse_serve(arguments),
        Some("undo") => parse_undo(arguments),
        Some("inspect") => parse_inspect(arguments),
        Some("remove") => match arguments.next() {
            None => Ok(Command::Remove),
            Some(_) => Err("remove takes no arguments".into()),
        },
        Some(word) => Err(format!("unknown command {}", printable(word))),
        None => Err("a command is missing: serve, undo, inspect or remove".into()),
    }
}

fn parse_undo(
    mut arguments: impl Iterator<Item = Result<String, String>>,
) -> Result<Command, String> {
    let mut parsed = UndoArguments::default();
    while let Some(argument) = arguments.next().transpose()? {
        match argument.as_str() {
            "--purge" => parsed.purge = true,
            "--bridge" => {
                let token = arguments.next().transpose()?.ok_or("--bridge needs a value")?;
                let token = token.parse().map_err(|error| format!("--bridge: {error}"))?;
                parsed.bridge = Some(token);
            }
            _ => return Err("undo takes --bridge TOKEN and --purge alone".into()),
        }
    }
    Ok(Command::Undo(parsed))
}

fn parse_inspect(
    mut arguments: impl Iterator<Item = Result<String, String>>,
) -> Result<Command, String> {
    let (mut request, mut settings) = (InspectionRequest::default(), Settings::default());
    let mut remove = false;
    while let Some(name) = arguments.next().transpose()? {
        let mut value = || arguments.next().unwrap_or_else(|| Err(format!("{name} needs a value")));
        let key = |text: String| text.parse().map_err(|error| format!("{name}: {error}"));
        match (name.as_str(), ServeOption::find(&name)) {
            ("--key", _) => request.keys.push(key(value()?)?),
            ("--sign", _) => request.sign = Some(key(value()?)?),
            ("--remove", _) => remove = true,
            ("--no-questions", _) => request.no_questions = true,
            ("--host-home" | "--host-ssh", Some(option)) => {
                option.read(&mut settings, &value()?)?;
            }
            _ => return Err(format!("unknown argument {}", printable(&name))),
        }
    }
    if request.keys.len() > Inspection::MOST_KEYS {
        return Err(format!("--key can be given {} times", Inspection::MOST_KEYS));
    }
    request.host_folders = settings.host_folders;
    Ok(Command::Inspect(InspectArguments { request, remove }))
}

fn parse_serve(
    mut arguments: impl Iterator<Item = Result<String, String>>,
) -> Result<Command, String> {
    let (mut mux, mut cookie, mut settings) = (None, None, Settings::default());
    while let Some(argument) = arguments.next().transpose()? {
        let (name, attached) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        let mut value = || match attached.clone() {
            Some(value) => Ok(value),
            None => arguments.next().unwrap_or_else(|| Err(format!("{name} needs a value"))),
        };
        match (name, ServeOption::find(name)) {
            ("--mux", _) => mux = Some(value()?),
            ("--cookie", _) => {
                cookie = Some(Cookie::from_hex(&value()?).map_err(|error| error.to_string())?);
            }
            ("--help" | "-h", _) => return Ok(Command::Help),
            (_, Some(option)) if option.has_value() => option.read(&mut settings, &value()?)?,
            (_, Some(option)) if attached.is_none() => option.read(&mut settings, "")?,
            (_, Some(_) | None) => {
                return Err(format!("unknown argument {}", printable(&argument)));
            }
        }
    }
    match mux.as_deref() {
        Some("2") => {}
        Some(other) => return Err(format!("--mux {}: only 2 is known", printable(other))),
        None => return Err("--mux 2 is missing".into()),
    }
    let cookie = cookie.ok_or("--cookie HEX is missing")?;
    settings.check()?;
    Ok(Command::Serve(Box::new(ServeArguments { cookie, settings })))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keybridge_proto::Lane;
    use keybridge_remote::FileId;
    use tracing::Level;

    use super::*;

    const COOKIE: &str = "000123456789abcdefff1032547698ba";

    fn of(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn serve(line: &str) -> Settings {
        let Ok(Command::Serve(arguments)) = of(line) else { panic!("{line}") };
        arguments.settings
    }

    #[test]
    fn every_option_is_in_the_help() {
        let help = help();
        for option in ["--mux 2 ", "--cookie HEX ", "--need LANES ", "--replace ", "--log LEVEL "] {
            assert!(help.contains(&format!("\n  {option}")), "{help}");
        }
        assert!(help.lines().all(|line| line.len() <= 105), "{help}");
    }

    #[test]
    fn everything_can_be_said() {
        let line = format!(
            "serve --mux 2 --cookie {COOKIE} --lanes gpg,ssh --need ssh --max-sessions=7 \
             --host-home 1:2 --host-ssh 3:4 --replace --ask --bridge 0123abcd --outlive 600 --log trace"
        );
        let options = serve(&line);
        assert_eq!(options.max_sessions, 7);
        assert_eq!(options.lanes.served, Lane::AGENTS);
        assert_eq!(options.lanes.needed, [Lane::Ssh]);
        assert_eq!(options.host_folders.gpg, Some(FileId { device: 1, inode: 2 }));
        assert_eq!(options.host_folders.ssh, Some(FileId { device: 3, inode: 4 }));
        assert!(options.replace && options.ask);
        assert_eq!(options.outlive, Duration::from_mins(10));
        assert_eq!(options.bridge, "0123abcd".parse().ok());
        assert_eq!(options.log, Level::TRACE);
        let line = format!("serve --mux=2 --cookie={COOKIE} --git=gpg=0123456789abcdef");
        let options = serve(&line);
        assert_eq!(options.git, "gpg=0123456789abcdef".parse().ok());
        let options = serve(&format!("serve --cookie={COOKIE} --mux=2"));
        assert_eq!((options.max_sessions, options.replace, options.ask), (256, false, false));
        assert_eq!((options.lanes.served, options.lanes.needed), (vec![Lane::Gpg], vec![]));
        assert_eq!(options.outlive, Duration::ZERO);
        assert!(matches!(of("--version"), Ok(Command::Version)));
        assert!(matches!(of("serve --help"), Ok(Command::Help)));
        let undo = |line| match of(line) {
            Ok(Command::Undo(arguments)) => arguments,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(undo("undo"), UndoArguments::default());
        let (bridge, purge) = ("0123abcd".parse().ok(), true);
        let line = "inspect --key 0123456789abcdef --sign 0123456789ABCDEF --host-ssh 3:4 --remove";
        let Ok(Command::Inspect(InspectArguments { request, remove })) = of(line) else {
            panic!("{line}")
        };
        assert!(remove);
        assert_eq!((request.keys.len(), request.sign.is_some()), (1, true));
        assert_eq!(request.host_folders.ssh, Some(FileId { device: 3, inode: 4 }));
        assert_eq!(undo("undo --purge --bridge 0123abcd"), UndoArguments { bridge, purge });
    }

    #[test]
    fn errors_name_the_word() {
        let full = format!("serve --mux 2 --cookie {COOKIE} ");
        for (line, error) in [
            ("", "a command is missing"),
            ("run", "unknown command run"),
            ("undo now", "undo takes --bridge TOKEN"),
            ("undo --bridge", "--bridge needs a value"),
            ("undo --bridge x", "--bridge: expected 8 to 64"),
            ("inspect --key", "--key needs a value"),
            ("inspect --key -x", "--key: expected a fingerprint"),
            ("inspect --sign x", "--sign: expected a fingerprint"),
            ("inspect --replace", "unknown argument --replace"),
            ("inspect --host-home x", "--host-home x"),
            (&format!("inspect{}", " --key 0123456789abcdef".repeat(33)), "32 times"),
            ("serve", "--mux 2 is missing"),
            ("serve --mux 1", "--mux 1"),
            ("serve --mux 2", "--cookie HEX is missing"),
            ("serve --mux 2 --cookie 12", "32 hexadecimal digits"),
            (&format!("{full} --cookie"), "--cookie needs a value"),
            (&format!("{full} --lanes ssh,"), "--lanes ssh,: no such lane"),
            (&format!("{full} --need ssh"), "--need ssh: it is not among"),
            (&format!("{full} --lanes x"), "--lanes x"),
            (&format!("{full} --git x"), "--git x: expected gpg=FINGERPRINT,"),
            (&format!("{full} --git ssh=a"), "--git ssh=a: expected a line of an SSH public key"),
            (&format!("{full} --lanes ssh --git gpg=0123456789abcdef"), "--git gpg: it is not"),
            (&format!("{full} --max-sessions 0"), "--max-sessions 0"),
            (&format!("{full} --outlive -1"), "--outlive -1: expected 0 to 604800"),
            (&format!("{full} --bridge 12"), "--bridge 12: expected 8 to 64"),
            (&format!("{full} --host-home 12"), "--host-home 12"),
            (&format!("{full} --log loud"), "--log loud"),
            (&format!("{full} --replace=yes"), "--replace=yes"),
            (&format!("{full} extra"), "unknown argument extra"),
        ] {
            let message = of(line).unwrap_err();
            assert!(message.contains(error), "{line}: {message}");
        }
    }
}
