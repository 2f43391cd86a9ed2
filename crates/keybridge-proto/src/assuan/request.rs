//! Lines of a client: commands, and the answers to inquiries.

use super::content;

/// A line of a client, parsed as the agent parses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestLine<'a> {
    /// An empty line, which is ignored everywhere.
    Blank,
    /// A line that begins with `#`, which is ignored everywhere.
    Comment,
    /// `D ` and data: the one line that may hold any byte.
    Data,
    /// Everything else, `END` and `CAN` included.
    Command(Command<'a>),
}

/// A verb and what follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Command<'a> {
    /// The first word.
    pub verb: Verb<'a>,
    /// The rest, without the blanks before it.
    pub arguments: &'a [u8],
}

/// The first word of a line, up to a space, a TAB, a NUL or the line's end. The agent ignores its
/// case, and so does [`Verb::is`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verb<'a>(&'a [u8]);

/// A NUL byte outside a `D ` line. The agent would stop parsing there, and see another line than the
/// gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a line without NUL bytes, got one with them (only D lines may have them)")]
pub struct NulByte;

impl<'a> RequestLine<'a> {
    /// Reads a line, with or without its line end.
    pub fn parse(line: &'a [u8]) -> Result<Self, NulByte> {
        let line = content(line);
        if line.starts_with(b"D ") {
            return Ok(Self::Data);
        }
        if line.contains(&0) {
            return Err(NulByte);
        }
        Ok(match line.first() {
            None => Self::Blank,
            Some(b'#') => Self::Comment,
            Some(_) => Self::Command(Command::parse(line)),
        })
    }

    /// The command, if the line is one.
    pub const fn command(&self) -> Option<Command<'a>> {
        match self {
            Self::Blank | Self::Comment | Self::Data => None,
            Self::Command(command) => Some(*command),
        }
    }

    /// Whether the line leaves an inquiry open. Any other line ends it: `END`, `CAN`, and commands too.
    pub(crate) const fn continues_inquiry(&self) -> bool {
        match self {
            Self::Blank | Self::Comment | Self::Data => true,
            Self::Command(_) => false,
        }
    }

    /// Whether the agent closes the connection after the line.
    pub const fn is_bye(&self) -> bool {
        match self {
            Self::Blank | Self::Comment | Self::Data => false,
            Self::Command(command) => command.verb.is("BYE"),
        }
    }

    /// Whether the agent answers the line when no inquiry is open.
    pub const fn is_answered(&self) -> bool {
        match self {
            Self::Blank | Self::Comment => false,
            Self::Data | Self::Command(_) => true,
        }
    }
}

impl<'a> Command<'a> {
    fn parse(line: &'a [u8]) -> Self {
        let verb = Verb::of(line);
        let rest = line.get(verb.0.len()..).unwrap_or_default();
        let blanks = rest.iter().take_while(|&&byte| is_blank(byte)).count();
        Self { verb, arguments: rest.get(blanks..).unwrap_or_default() }
    }

    /// The arguments, split at blanks.
    pub fn words(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.arguments.split(|&byte| is_blank(byte)).filter(|word| !word.is_empty())
    }
}

impl<'a> Verb<'a> {
    /// The verb of a line. A line that begins with white space has an empty one.
    pub fn of(line: &'a [u8]) -> Self {
        let end = line.iter().position(|&byte| is_blank(byte) || byte == 0).unwrap_or(line.len());
        Self(line.get(..end).unwrap_or_default())
    }

    /// Whether the agent would understand this verb as `name`.
    pub const fn is(&self, name: &str) -> bool {
        self.0.eq_ignore_ascii_case(name.as_bytes())
    }

    /// The verb as it was written.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// Whether a word has the form of a keygrip.
pub fn is_keygrip(word: &[u8]) -> bool {
    word.len() == 40 && word.iter().all(u8::is_ascii_hexdigit)
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(line: &[u8]) -> Command<'_> {
        match RequestLine::parse(line) {
            Ok(RequestLine::Command(command)) => command,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn verbs_end_where_the_agent_ends_them() {
        for line in [&b"get_passphrase\n"[..], b"GET_PASSPHRASE x\n", b"Get_Passphrase\tx\r\n"] {
            assert!(command(line).verb.is("GET_PASSPHRASE"), "{line:?}");
        }
        assert!(Verb::of(b"NOP\0zzz").is("NOP"));
        assert!(!command(b"GET_PASSPHRASE2\n").verb.is("GET_PASSPHRASE"));
        assert!(command(b" NOP\n").verb.as_bytes().is_empty());
    }

    #[test]
    fn arguments_are_what_follows_the_blanks() {
        assert_eq!(command(b"HAVEKEY \t AB  CD\n").arguments, b"AB  CD");
        assert_eq!(command(b"HAVEKEY AB\tCD\n").words().collect::<Vec<_>>(), [b"AB", b"CD"]);
        assert_eq!(command(b"BYE\n").arguments, b"");
    }

    #[test]
    fn lines_are_told_apart() {
        for (line, kind) in [
            (&b"\n"[..], RequestLine::Blank),
            (b"\r\n", RequestLine::Blank),
            (b"# D x\n", RequestLine::Comment),
            (b"D \0x\n", RequestLine::Data),
            (b"D \n", RequestLine::Data),
        ] {
            assert_eq!(RequestLine::parse(line), Ok(kind), "{line:?}");
        }
        // Only an upper-case D with a space is data.
        for line in [&b"D\n"[..], b"d x\n", b"D\tx\n", b"DX\n"] {
            assert!(!RequestLine::parse(line).unwrap().continues_inquiry(), "{line:?}");
        }
        for line in [&b"NOP\0\n"[..], b"\0\n", b"#\0\n", b"D\0 x\n"] {
            assert_eq!(RequestLine::parse(line), Err(NulByte), "{line:?}");
        }
    }
}
