//! The entries of git: the names under which git runs the helper in the place of gpg and ssh-keygen.
//!
//! A request to sign goes to the host. Everything else runs the program that would have run without the
//! entry, with the same arguments and bytes, and so does a key that isn't lent.

mod command_line;
mod instead;
mod pipe_slot;
mod request;
mod road;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use keybridge_proto::git::{Answer, Format, MAX_FRAME};

use command_line::{GpgSignature, SshSignature};
use instead::Instead;
use request::Request;
use road::{NoRoad, Road};

/// The names of the entries, in the folder of the lane. Each is a link to the helper.
pub(crate) const GPG: &str = ".keybridge-gpg";
pub(crate) const SSH_KEYGEN: &str = ".keybridge-ssh-keygen";

/// The socket of the lane, beside them.
pub(crate) const SOCKET: &str = "git.sock";

/// Says that only an entry in a sandbox asks the host.
pub(crate) const ONLY_SANDBOXES: &str = ".keybridge-only-sandboxes";

/// Names the folder with the pipes, if it isn't this one.
pub(crate) const PIPES_ELSEWHERE: &str = ".keybridge-pipes-elsewhere";

/// What a person or a coding agent reads after a refusal.
const STOP: &str = "stop and tell the user, do not commit unsigned";

const BUSY: &str = "too many signatures are being made; try again";

/// An entry, as git has started it.
#[derive(Debug)]
pub struct Entry {
    format: Format,
    /// Where the entry is, and the socket beside it.
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Entry {
    /// The entry that a program's name and arguments mean.
    pub fn of(mut words: impl Iterator<Item = OsString>) -> Option<Self> {
        let path = PathBuf::from(words.next()?);
        let format = match path.file_name()?.to_str()? {
            GPG => Format::Openpgp,
            SSH_KEYGEN => Format::Ssh,
            _ => return None,
        };
        Some(Self { format, path, arguments: words.collect() })
    }

    /// Signs, or runs the program that would have run. Success means that there is a signature.
    pub fn run(&self) -> ExitCode {
        let instead =
            Instead { format: self.format, entry: &self.path, arguments: &self.arguments };
        let wanted = match self.format {
            Format::Openpgp => GpgSignature::read(&self.arguments).map(Wanted::Openpgp),
            Format::Ssh => SshSignature::read(&self.arguments).map(Wanted::Ssh),
        };
        let folder = self.path.parent().unwrap_or(Path::new("/"));
        let Some(wanted) = wanted else { return instead.run(None) };
        let road = match road::connect(folder) {
            Ok(road) => road,
            Err(NoRoad::Busy) => return failed(BUSY),
            Err(reason @ (NoRoad::NoBridge | NoRoad::NoBridgeForSandbox | NoRoad::Forbidden)) => {
                explain(reason);
                return instead.run((reason == NoRoad::NoBridge).then_some("there is no bridge"));
            }
        };
        let request = match wanted.request() {
            Ok(Some(request)) => request,
            // Its own words are the better ones.
            Ok(None) => return instead.run(None),
            Err(error) => {
                return failed(&format!("can't read what git wants to be signed: {error}"));
            }
        };
        let Ok(frame) = request.to_send.encode() else {
            let why = format!("the host doesn't sign a commit or a tag over {MAX_FRAME} bytes");
            return instead.run_with(&request, Some(&why));
        };
        match ask(road, folder, &frame) {
            Ok(Answer::Signed { status, signature }) => match wanted.give(&status, &signature) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => failed(&format!("can't give git the signature: {error}")),
            },
            Ok(Answer::NotLent(why)) => {
                instead.run_with(&request, Some(&format!("the host doesn't sign this: {why}")))
            }
            Ok(Answer::Refused(why)) => failed(&format!("refused on the host: {why}; {STOP}")),
            Ok(Answer::Failed(why)) => failed(&why),
            Ok(Answer::Busy) => failed(BUSY),
            Err(error) => {
                say(&format!(
                    "the bridge doesn't answer ({error}); run `keybridge up` on the host"
                ));
                instead.run_with(&request, None)
            }
        }
    }
}

/// How long an entry tries again while as many others as there may be are served.
const BUSY_TIME: Duration = Duration::from_mins(1);

/// The longest pause in between.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Asks, also again where there are too many clients.
fn ask(mut road: Road, folder: &Path, frame: &[u8]) -> io::Result<Answer> {
    let (start, mut pause) = (Instant::now(), Duration::from_millis(10));
    loop {
        match road.ask(frame)? {
            Answer::Busy if start.elapsed() < BUSY_TIME => {}
            answer => return Ok(answer),
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
        road = match road::connect(folder) {
            Ok(road) => road,
            Err(NoRoad::Busy) => return Ok(Answer::Busy),
            Err(NoRoad::NoBridge | NoRoad::NoBridgeForSandbox | NoRoad::Forbidden) => {
                return Err(io::ErrorKind::NotConnected.into());
            }
        };
    }
}

/// What git wants to be signed.
enum Wanted {
    Openpgp(GpgSignature),
    Ssh(SshSignature),
}

impl Wanted {
    /// What is sent. Nothing if only the real program can do it.
    fn request(&self) -> io::Result<Option<Request>> {
        match self {
            Self::Openpgp(signature) => Request::openpgp(signature).map(Some),
            Self::Ssh(signature) => Request::ssh(signature),
        }
    }

    /// Gives git the signature where it looks for it.
    fn give(&self, status: &str, signature: &[u8]) -> io::Result<()> {
        match self {
            Self::Openpgp(wanted) => {
                if let Some(descriptor) = wanted.status {
                    write_to(descriptor, status.as_bytes())?;
                }
                write_to(STDOUT, signature)
            }
            Self::Ssh(SshSignature { file: Some(file), .. }) => {
                let mut name = file.clone();
                name.push(".sig");
                // In a temporary folder others could put a link there.
                std::fs::File::create_new(name)?.write_all(signature)
            }
            Self::Ssh(SshSignature { file: None, .. }) => write_to(STDOUT, signature),
        }
    }
}

const STDOUT: u32 = 1;
const STDERR: u32 = 2;

/// Writes to a descriptor that git has opened.
fn write_to(descriptor: u32, bytes: &[u8]) -> io::Result<()> {
    match descriptor {
        STDOUT => {
            let mut output = io::stdout().lock();
            output.write_all(bytes)?;
            output.flush()
        }
        STDERR => io::stderr().lock().write_all(bytes),
        other => {
            let path = format!("/proc/self/fd/{other}");
            std::fs::File::options().write(true).open(path)?.write_all(bytes)
        }
    }
}

/// Says what to do where git can't sign for a reason that git won't name.
fn explain(reason: NoRoad) {
    match reason {
        NoRoad::NoBridge | NoRoad::Busy => {}
        NoRoad::NoBridgeForSandbox => say(&format!(
            "no bridge serves this sandbox: have the user run `keybridge up` outside of it; {STOP}"
        )),
        NoRoad::Forbidden => say(&format!(
            "this sandbox forbids sockets and the pipes of the bridge: have the user run \
             `keybridge up --pipes DIR` with a folder that it may write to; {STOP}"
        )),
    }
}

fn failed(why: &str) -> ExitCode {
    say(why);
    ExitCode::FAILURE
}

fn say(line: &str) {
    let _ = writeln!(io::stderr(), "keybridge: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_known_by_its_name() {
        let of = |path: &str| Entry::of([path, "-x"].map(OsString::from).into_iter());
        let entry = of("/home/me/.keybridge/.keybridge-gpg").unwrap();
        assert_eq!((entry.format, entry.arguments), (Format::Openpgp, vec!["-x".into()]));
        assert_eq!(of(".keybridge-ssh-keygen").unwrap().format, Format::Ssh);
        for other in ["/usr/bin/gpg", "keybridge-remote", "/.keybridge-gpg/x", ""] {
            assert!(of(other).is_none(), "{other}");
        }
        assert!(Entry::of(std::iter::empty()).is_none());
    }
}
