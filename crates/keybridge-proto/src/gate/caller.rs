//! Who asks: the process at the other end of a client's connection, as far as it is known.
//!
//! A fact is worth as much as its source. What the kernel says about the connection is proven. What a
//! process says about itself, its own name included, is claimed: a target can name a program as it likes.

use std::fmt;
use std::sync::{Arc, OnceLock};

use crate::printable::printable_up_to;

/// The longest text that is kept of each fact. Longer paths and arguments hardly say more.
const TEXT_LIMIT: usize = 256;

/// How much is kept of a command line, in bytes and in arguments.
const ARGUMENTS_LIMIT: usize = 512;
const MOST_ARGUMENTS: usize = 32;

/// How many processes above the caller are kept.
pub const MOST_PARENTS: usize = 6;

/// The process that opened a client's connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Where the facts in this struct come from, those in `program` excepted.
    pub source: Source,
    /// Its pid on the host; none if the host can't see the process.
    pub pid: Option<u32>,
    /// Its user on the host.
    pub uid: u32,
    /// Its group on the host.
    pub gid: u32,
    /// The container that it runs in, if it is known and in one.
    pub container: Option<ContainerId>,
    /// Where it runs, seen from the target.
    pub place: Place,
    /// What it says about itself. This is always claimed.
    pub program: Program,
}

/// How a fact is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The kernel vouches for it.
    Proven,
    /// It may be wrong: the target chose it, or another process may have the pid now.
    Claimed,
}

/// Where a process runs, seen from the target that its client came through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the target, or in a container inside it.
    Target,
    /// In another container.
    OtherContainer,
    /// On the host, in no container.
    Host,
    /// Not known.
    Unknown,
}

/// What a process says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// The path of its file, in the target.
    pub executable: Option<Text>,
    /// Its command line; none if it isn't known.
    pub arguments: Vec<Text>,
    /// Its working folder, in the target.
    pub folder: Option<Text>,
    /// The processes above it, the nearest first.
    pub parents: Vec<Parent>,
}

/// A process above the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parent {
    /// Its pid on the host.
    pub pid: u32,
    /// Its name.
    pub name: Text,
}

/// Untrusted text, printable and of bounded length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text(String);

/// The full id of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerId(String);

/// Where a session finds its caller. It is read while the session already runs, so it may be empty.
#[derive(Debug, Clone, Default)]
pub struct CallerSlot(Arc<OnceLock<Caller>>);

impl Program {
    /// Its command line, from `/proc/PID/cmdline`. What is left out is shown by an ellipsis.
    pub fn set_arguments(&mut self, line: &[u8]) {
        let line = line.strip_suffix(b"\0").unwrap_or(line);
        self.arguments.clear();
        let mut room = ARGUMENTS_LIMIT;
        for argument in line.split(|&byte| byte == 0).map(Text::new) {
            let Some(left) = room.checked_sub(argument.0.len()) else {
                return self.arguments.push(Text::ellipsis());
            };
            if self.arguments.len() == MOST_ARGUMENTS {
                return self.arguments.push(Text::ellipsis());
            }
            room = left;
            self.arguments.push(argument);
        }
    }
}

impl Text {
    /// Makes the text printable, and cuts it.
    pub fn new(text: &[u8]) -> Self {
        Self(printable_up_to(text, TEXT_LIMIT))
    }

    fn ellipsis() -> Self {
        Self("…".to_owned())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ContainerId {
    /// The id that this is: 64 hexadecimal digits, in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        (text.len() == 64 && text.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl CallerSlot {
    /// Stores the caller; the first one stays.
    pub fn fill(&self, caller: Caller) {
        // A second one would be of the same connection, and no better.
        let _ = self.0.set(caller);
    }

    /// The caller, once it is known.
    pub fn caller(&self) -> Option<&Caller> {
        self.0.get()
    }
}

impl Source {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::Claimed => "claimed",
        }
    }
}

impl Place {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::OtherContainer => "other-container",
            Self::Host => "host",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for CallerSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.caller() {
            Some(caller) => caller.fmt(f),
            None => f.write_str("not known"),
        }
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One line for the log.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, pid, uid, gid, container, place, program } = self;
        write!(f, "{}: ", source.word())?;
        match pid {
            Some(pid) => write!(f, "pid {pid}")?,
            None => f.write_str("unknown pid")?,
        }
        write!(f, ", uid {uid}, gid {gid}, place {}", place.word())?;
        if let Some(ContainerId(id)) = container {
            write!(f, ", container {id}")?;
        }
        write!(f, "; {}:", Source::Claimed.word())?;
        if let Some(executable) = &program.executable {
            write!(f, " {executable}")?;
        }
        f.write_str(" [")?;
        for (number, argument) in program.arguments.iter().enumerate() {
            write!(f, "{}{argument}", if number == 0 { "" } else { " " })?;
        }
        f.write_str("]")?;
        if let Some(folder) = &program.folder {
            write!(f, " in {folder}")?;
        }
        for Parent { pid, name } in &program.parents {
            write!(f, " < {name} ({pid})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_printable_and_bounded() {
        let mut program = Program::default();
        let mut line = b"gpg\0\x1b[31m\xff\0".to_vec();
        program.set_arguments(&line);
        let shown: Vec<_> = program.arguments.iter().map(Text::as_str).collect();
        assert_eq!(shown, ["gpg", "\\u{1b}[31m\\xff"]);
        for _ in 0..100 {
            line.extend_from_slice(&[b'\n'; 1000]);
            line.push(0);
        }
        for line in [line, vec![0; 4096], vec![b'x'; 4096], vec![0x80; 4096]] {
            program.set_arguments(&line);
            let Program { arguments, .. } = &program;
            let size: usize = arguments.iter().map(|text| text.as_str().len()).sum();
            assert!(size <= ARGUMENTS_LIMIT + 3 && arguments.len() <= MOST_ARGUMENTS + 1, "{size}");
            assert!(arguments.last().is_some_and(|text| text.as_str().ends_with('…')));
        }
    }

    #[test]
    fn an_empty_argument_is_one() {
        let mut program = Program::default();
        program.set_arguments(b"sh\0-c\0\0");
        let shown: Vec<_> = program.arguments.iter().map(Text::as_str).collect();
        assert_eq!(shown, ["sh", "-c", ""]);
    }

    #[test]
    fn a_container_id_has_64_digits() {
        let id = "5a".repeat(32);
        assert_eq!(ContainerId::parse(&id).as_ref().map(ContainerId::as_str), Some(&*id));
        let upper = id.to_uppercase();
        for other in ["", "5a", &id[1..], &format!("{id}0"), &upper, &format!("g{}", &id[1..])] {
            assert_eq!(ContainerId::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_line_for_the_log_has_every_fact() {
        let text = |text: &str| Text::new(text.as_bytes());
        let mut program = Program {
            executable: Some(text("/usr/bin/gpg")),
            folder: Some(text("/work")),
            parents: vec![Parent { pid: 6, name: text("git") }],
            ..Program::default()
        };
        program.set_arguments(b"gpg\0-bsau\0");
        let id = "0".repeat(64);
        let container = ContainerId::parse(&id);
        let (source, place) = (Source::Proven, Place::Target);
        let caller =
            Caller { source, pid: Some(7), uid: 1000, gid: 100, container, place, program };
        assert_eq!(
            caller.to_string(),
            format!(
                "proven: pid 7, uid 1000, gid 100, place target, container {id}; \
                 claimed: /usr/bin/gpg [gpg -bsau] in /work < git (6)"
            )
        );
    }
}
