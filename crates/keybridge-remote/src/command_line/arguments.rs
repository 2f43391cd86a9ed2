//! The command line.

use std::ffi::OsString;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use keybridge_proto::mux::{Cookie, DEFAULT_MAX_STREAMS};
use keybridge_proto::{Lane, printable};
use keybridge_remote::{BridgeToken, GitSigning, HostFolders, LaneSelection};
use tracing::Level;

pub(crate) const HELP: &str = "\
The half of keybridge that runs in a target. The program `keybridge` starts it there and talks to it
over standard input and output; there is no need to start it by hand.

Usage: keybridge-remote serve --mux 2 --cookie HEX [OPTIONS]
       keybridge-remote undo [--bridge TOKEN]
                                        undoes what a helper that was killed has left; one of this
                                        bridge that lives is ended first
       keybridge-remote remove          removes this program and its folder

Options of serve:
  --mux 2              the version of the link
  --cookie HEX         32 hexadecimal digits that mark where the output starts
  --lanes LANES        the agents to bridge: gpg, ssh or gpg,ssh (gpg)
  --need LANES         those without which there is no bridge; otherwise a target without GnuPG, or an
                       ssh lane that can't be set up, is a warning, as long as one lane is (none)
  --max-sessions N     how many clients are served at once (256)
  --host-home DEV:INO  device and inode of the host's own GnuPG home, which is never bridged
  --host-ssh DEV:INO   the same of the host's own ssh folder
  --replace            take the sockets over from whoever answers there
  --ask                when ready, ask the agents through the sockets and report what they say:
                       gpg-agent its version, an ssh-agent how many keys it has
  --git KEY            have git sign with gpg=FINGERPRINT, or with ssh=PUBLICKEY, a line as in a file
                       of an SSH public key
  --bridge TOKEN       8 to 64 hexadecimal digits that name the bridge: a newer helper of the same
                       bridge takes the place of an older one
  --outlive SECONDS    stay for so long after the link is lost, with an error for every client (0)
  --log LEVEL          error, warn, info, debug or trace, on standard error (warn)

  --help               this text
  --version            the version

GNUPGHOME names the GnuPG home, as for gpg, and SSH_AUTH_SOCK where ssh looks for its agent.
";

/// More clients than descriptors that a process can ever have make no sense.
const MOST_SESSIONS: usize = 65_536;

/// A week is longer than anybody waits for a bridge.
const LONGEST_OUTLIVING: u64 = 7 * 24 * 3600;

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Command {
    Help,
    Version,
    Serve(Box<ServeOptions>),
    Undo(Option<BridgeToken>),
    Remove,
}

/// The options of `serve`.
#[derive(Debug)]
pub(crate) struct ServeOptions {
    pub(crate) cookie: Cookie,
    pub(crate) lanes: LaneSelection,
    pub(crate) max_sessions: usize,
    pub(crate) host: HostFolders,
    pub(crate) replace: bool,
    pub(crate) ask: bool,
    pub(crate) git: Option<GitSigning>,
    pub(crate) bridge: Option<BridgeToken>,
    pub(crate) outlive: Duration,
    pub(crate) log: Level,
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
        Some("undo") => match (arguments.next().transpose()?.as_deref(), arguments.next()) {
            (None, _) => Ok(Command::Undo(None)),
            (Some("--bridge"), Some(token)) => {
                let token = token?.parse().map_err(|error| format!("--bridge: {error}"))?;
                Ok(Command::Undo(Some(token)))
            }
            (Some(_), _) => Err("undo takes --bridge TOKEN alone".into()),
        },
        Some("remove") => match arguments.next() {
            None => Ok(Command::Remove),
            Some(_) => Err("remove takes no arguments".into()),
        },
        Some(word) => Err(format!("unknown command {}", printable(word))),
        None => Err("a command is missing: serve, undo or remove".into()),
    }
}

fn parse_serve(
    mut arguments: impl Iterator<Item = Result<String, String>>,
) -> Result<Command, String> {
    let (mut mux, mut cookie) = (None, None);
    let mut lanes = LaneSelection { served: vec![Lane::Gpg], needed: Vec::new() };
    let mut host = HostFolders::default();
    let (mut max_sessions, mut bridge, mut git) = (DEFAULT_MAX_STREAMS, None, None);
    let (mut replace, mut ask) = (false, false);
    let (mut outlive, mut log) = (Duration::ZERO, Level::WARN);
    while let Some(argument) = arguments.next().transpose()? {
        let (name, attached) = match argument.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (argument.as_str(), None),
        };
        let mut value = || match attached.clone() {
            Some(value) => Ok(value),
            None => arguments.next().unwrap_or_else(|| Err(format!("{name} needs a value"))),
        };
        match name {
            "--mux" => mux = Some(value()?),
            "--cookie" => {
                cookie = Some(Cookie::from_hex(&value()?).map_err(|error| error.to_string())?);
            }
            "--lanes" => lanes.served = parse_lanes(name, &value()?)?,
            "--need" => {
                let text = value()?;
                lanes.needed = if text.is_empty() { Vec::new() } else { parse_lanes(name, &text)? };
            }
            "--max-sessions" => max_sessions = number(name, &value()?, 1..=MOST_SESSIONS)?,
            "--outlive" => {
                outlive = Duration::from_secs(number(name, &value()?, 0..=LONGEST_OUTLIVING)?);
            }
            "--host-home" => host.gnupg = Some(parsed(name, &value()?)?),
            "--host-ssh" => host.ssh = Some(parsed(name, &value()?)?),
            "--bridge" => bridge = Some(parsed(name, &value()?)?),
            "--git" => git = Some(parsed(name, &value()?)?),
            "--log" => {
                let text = value()?;
                log = level(&text).ok_or_else(|| {
                    format!("--log {}: error, warn, info, debug or trace", printable(&text))
                })?;
            }
            "--replace" if attached.is_none() => replace = true,
            "--ask" if attached.is_none() => ask = true,
            "--help" | "-h" => return Ok(Command::Help),
            _ => return Err(format!("unknown argument {}", printable(&argument))),
        }
    }
    match mux.as_deref() {
        Some("2") => {}
        Some(other) => return Err(format!("--mux {}: only 2 is known", printable(other))),
        None => return Err("--mux 2 is missing".into()),
    }
    let cookie = cookie.ok_or("--cookie HEX is missing")?;
    if let Some(lane) = lanes.needed.iter().find(|lane| !lanes.served.contains(lane)) {
        return Err(format!("--need {lane}: it is not among the --lanes"));
    }
    if let Some(lane) = git.as_ref().map(GitSigning::lane).filter(|it| !lanes.served.contains(it)) {
        return Err(format!("--git {lane}: it is not among the --lanes"));
    }
    Ok(Command::Serve(Box::new(ServeOptions {
        cookie,
        lanes,
        max_sessions,
        host,
        replace,
        ask,
        git,
        bridge,
        outlive,
        log,
    })))
}

fn parsed<T: FromStr<Err = &'static str>>(name: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|why| format!("{name} {}: {why}", printable(text)))
}

fn number<T>(name: &str, text: &str, range: RangeInclusive<T>) -> Result<T, String>
where
    T: FromStr + PartialOrd + Display,
{
    text.parse()
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| format!("{name} {}: {} to {}", printable(text), range.start(), range.end()))
}

fn parse_lanes(name: &str, text: &str) -> Result<Vec<Lane>, String> {
    let lane = |word: &str| match word.parse() {
        Ok(lane) => Ok(lane),
        Err(error) => Err(format!("{name} {}: {error}", printable(word))),
    };
    text.split(',').map(lane).collect()
}

fn level(text: &str) -> Option<Level> {
    match text {
        "error" => Some(Level::ERROR),
        "warn" => Some(Level::WARN),
        "info" => Some(Level::INFO),
        "debug" => Some(Level::DEBUG),
        "trace" => Some(Level::TRACE),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use keybridge_remote::FileId;

    use super::*;

    const COOKIE: &str = "000123456789abcdefff1032547698ba";

    fn of(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn everything_can_be_said() {
        let line = format!(
            "serve --mux 2 --cookie {COOKIE} --lanes gpg,ssh --need ssh --max-sessions=7 \
             --host-home 1:2 --host-ssh 3:4 --replace --ask --bridge 0123abcd --outlive 600 --log trace"
        );
        let Ok(Command::Serve(options)) = of(&line) else { panic!("{line}") };
        assert_eq!(options.max_sessions, 7);
        assert_eq!(options.lanes.served, Lane::ALL);
        assert_eq!(options.lanes.needed, [Lane::Ssh]);
        assert_eq!(options.host.gnupg, Some(FileId { device: 1, inode: 2 }));
        assert_eq!(options.host.ssh, Some(FileId { device: 3, inode: 4 }));
        assert!(options.replace && options.ask);
        assert_eq!(options.outlive, Duration::from_mins(10));
        assert_eq!(options.bridge, "0123abcd".parse().ok());
        assert_eq!(options.log, Level::TRACE);
        let line = format!("serve --mux=2 --cookie={COOKIE} --git=gpg=0123456789abcdef");
        let Ok(Command::Serve(options)) = of(&line) else { panic!("{line}") };
        assert_eq!(options.git, "gpg=0123456789abcdef".parse().ok());
        let Ok(Command::Serve(options)) = of(&format!("serve --cookie={COOKIE} --mux=2")) else {
            panic!()
        };
        assert_eq!((options.max_sessions, options.replace, options.ask), (256, false, false));
        assert_eq!((options.lanes.served, options.lanes.needed), (vec![Lane::Gpg], vec![]));
        assert_eq!(options.outlive, Duration::ZERO);
        assert!(matches!(of("--version"), Ok(Command::Version)));
        assert!(matches!(of("serve --help"), Ok(Command::Help)));
        assert!(matches!(of("undo"), Ok(Command::Undo(None))));
    }

    #[test]
    fn errors_name_the_word() {
        let full = format!("serve --mux 2 --cookie {COOKIE} ");
        for (line, error) in [
            ("", "a command is missing"),
            ("run", "unknown command run"),
            ("undo now", "undo takes --bridge TOKEN"),
            ("serve", "--mux 2 is missing"),
            ("serve --mux 1", "--mux 1"),
            ("serve --mux 2", "--cookie HEX is missing"),
            ("serve --mux 2 --cookie 12", "32 hexadecimal digits"),
            (&format!("{full} --cookie"), "--cookie needs a value"),
            (&format!("{full} --lanes ssh,"), "--lanes : no such lane"),
            (&format!("{full} --need ssh"), "--need ssh: it is not among"),
            (&format!("{full} --lanes x"), "--lanes x"),
            (&format!("{full} --git x"), "--git x: gpg=FINGERPRINT or"),
            (&format!("{full} --git ssh=a"), "--git ssh=a: a line of an SSH public key"),
            (&format!("{full} --lanes ssh --git gpg=0123456789abcdef"), "--git gpg: it is not"),
            (&format!("{full} --max-sessions 0"), "--max-sessions 0"),
            (&format!("{full} --outlive -1"), "--outlive -1: 0 to 604800"),
            (&format!("{full} --bridge 12"), "--bridge 12: 8 to 64"),
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
