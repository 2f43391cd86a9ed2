//! What a log may show of a line.

use std::fmt;

use super::{Verb, content};

/// Shows the verb and the size of a line, nothing else. A verb that isn't known isn't shown: it may
/// be data in the wrong place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    verb: Option<&'static str>,
    size: usize,
}

impl Summary {
    /// Summarizes a line.
    pub fn of(line: &[u8]) -> Self {
        let line = content(line);
        let verb = Verb::of(line);
        let verb = KNOWN_VERBS.iter().copied().find(|name| verb.is(name));
        Self { verb, size: line.len() }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.verb.unwrap_or("unknown verb"), self.size)
    }
}

/// Verbs of gpg-agent from 2.1 to 2.5, of Assuan itself, and of the agent's answers.
const KNOWN_VERBS: &[&str] = &[
    "D",
    "S",
    "OK",
    "ERR",
    "INQUIRE",
    "END",
    "CAN",
    "#",
    "NOP",
    "CANCEL",
    "OPTION",
    "BYE",
    "AUTH",
    "RESET",
    "HELP",
    "GETEVENTCOUNTER",
    "ISTRUSTED",
    "HAVEKEY",
    "KEYINFO",
    "SIGKEY",
    "SETKEY",
    "SETKEYDESC",
    "SETHASH",
    "PKSIGN",
    "PKDECRYPT",
    "GENKEY",
    "READKEY",
    "GET_PASSPHRASE",
    "PRESET_PASSPHRASE",
    "CLEAR_PASSPHRASE",
    "GET_CONFIRMATION",
    "LISTTRUSTED",
    "MARKTRUSTED",
    "LEARN",
    "PASSWD",
    "INPUT",
    "OUTPUT",
    "SCD",
    "KEYWRAP_KEY",
    "IMPORT_KEY",
    "EXPORT_KEY",
    "DELETE_KEY",
    "GET_SECRET",
    "PUT_SECRET",
    "GETVAL",
    "PUTVAL",
    "UPDATESTARTUPTTY",
    "KILLAGENT",
    "RELOADAGENT",
    "GETINFO",
    "KEYTOCARD",
    "KEYATTR",
    "KEYTOTPM",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_verb_and_size_only() {
        assert_eq!(Summary::of(b"pksign --hash=x\n").to_string(), "PKSIGN (15 bytes)");
        assert_eq!(Summary::of(b"D hunter2\n").to_string(), "D (9 bytes)");
        assert_eq!(Summary::of(b"hunter2\n").to_string(), "unknown verb (7 bytes)");
        assert_eq!(Summary::of(b"ERR 67108941 x\n").to_string(), "ERR (14 bytes)");
    }
}
