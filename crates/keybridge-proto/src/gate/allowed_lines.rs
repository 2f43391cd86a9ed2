//! The lines that may reach gpg-agent: a verb, the form of its arguments, and the rule that decides.
//!
//! Who sends them, from the sources of GnuPG 2.2, 2.4 and 2.5 and from recordings of its test
//! suites, of GPGME and of git (which run gpg):
//!
//! | line | sent by |
//! |---|---|
//! | `RESET`, `OPTION agent-awareness`, `GETINFO version`, `restricted` | all, at the start |
//! | `OPTION pinentry-mode=loopback` | gpg, where its user asks for that |
//! | `HAVEKEY` with keygrips | gpg 2.2, gpgsm; gpg 2.4 for one key |
//! | `HAVEKEY --list` | gpg 2.4 and later |
//! | `KEYINFO` | gpg 2.3 and later before it signs, gpgsm |
//! | `SIGKEY`, `SETKEYDESC`, `SETHASH`, `PKSIGN` | gpg, gpgsm |
//! | `SETHASH --inquire` | gpgsm 2.4 and later, for Ed25519 |
//! | `SETKEY`, `PKDECRYPT` | gpg, gpgsm |
//! | `SETKEY --another`, `PKDECRYPT --kem=…` | gpg 2.5; `--kem=CMS`: gpgsm 2.5 |
//! | `ISTRUSTED`, `NOP`, `READKEY` | gpgsm |
//! | `GETINFO s2k_count`, `cmd_has_option`, `GET_PASSPHRASE` | gpg, for passphrases |
//! | `D`, `END`, `CAN` | all, in an inquiry alone |

use crate::assuan::{Command, is_keygrip};

/// The rule for a line of the right form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Always allowed.
    Forward,
    /// Always answered with OK, and not forwarded. Behind this gate every socket is restricted. And gpg
    /// gives up if the agent refuses `loopback`, as a restricted socket does; without it the host's
    /// pinentry asks.
    Affirm,
    /// Always allowed; no key is chosen after it.
    Reset,
    /// Always allowed; it chooses the key.
    Key,
    /// The same for the second key of a composite one.
    AnotherKey,
    /// Allowed if the chosen key is an X.509 key that may sign.
    RawData,
    /// Allowed if the chosen keys may do it.
    Operate(KeyOperation),
    /// Answered from the lent keys: whether one of the keygrips is among them.
    AnyLent,
    /// Answered with the lent keys.
    ListLent,
    /// Allowed if the keygrip is lent.
    OnlyLent,
    /// Always allowed; the text is made safe to show.
    Describe,
    /// Allowed if the user lets the target open dialogs.
    Dialog,
}

/// What a client asks to be done with the chosen keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOperation {
    /// `PKSIGN`.
    Sign,
    /// `PKDECRYPT`, for keys of any protocol.
    Decrypt,
    /// `PKDECRYPT` for X.509 keys.
    DecryptX509,
}

/// The form of a line's arguments.
enum Form {
    Empty,
    /// Exactly these.
    Exactly(&'static str),
    /// One word of any bytes; gpg-agent ignores further ones.
    Word,
    /// A SHA-1 hash of a certificate; has the form of a keygrip.
    Fingerprint,
    Keygrip,
    Keygrips,
    /// `--another` and a keygrip.
    AnotherKeygrip,
    /// The number of a hash algorithm, and a hash in hexadecimal digits.
    Hash,
    /// `--list`, or `--list=` and a number.
    List,
    /// `agent-awareness=` and a version.
    Awareness,
    Anything,
}

#[rustfmt::skip]
const TABLE: &[(&str, Form, Rule)] = &[
    ("RESET",          Form::Empty,                               Rule::Reset),
    ("BYE",            Form::Empty,                               Rule::Forward),
    ("NOP",            Form::Empty,                               Rule::Forward),
    ("OPTION",         Form::Awareness,                           Rule::Forward),
    ("OPTION",         Form::Exactly("pinentry-mode=loopback"),   Rule::Affirm),
    ("GETINFO",        Form::Exactly("version"),                  Rule::Forward),
    ("GETINFO",        Form::Exactly("restricted"),               Rule::Affirm),
    ("GETINFO",        Form::Exactly("s2k_count"),                Rule::Forward),
    ("GETINFO",        Form::Exactly("cmd_has_option GET_PASSPHRASE repeat"), Rule::Forward),
    ("GETINFO",        Form::Exactly("cmd_has_option GET_PASSPHRASE newsymkey"), Rule::Forward),
    ("HAVEKEY",        Form::Keygrips,                            Rule::AnyLent),
    ("HAVEKEY",        Form::List,                                Rule::ListLent),
    ("KEYINFO",        Form::Keygrip,                             Rule::OnlyLent),
    ("READKEY",        Form::Keygrip,                             Rule::OnlyLent),
    ("SIGKEY",         Form::Keygrip,                             Rule::Key),
    ("SETKEY",         Form::Keygrip,                             Rule::Key),
    ("SIGKEY",         Form::AnotherKeygrip,                      Rule::AnotherKey),
    ("SETKEY",         Form::AnotherKeygrip,                      Rule::AnotherKey),
    ("SETKEYDESC",     Form::Word,                                Rule::Describe),
    ("SETHASH",        Form::Hash,                                Rule::Forward),
    ("SETHASH",        Form::Exactly("--inquire"),                Rule::RawData),
    ("PKSIGN",         Form::Empty,                               Rule::Operate(KeyOperation::Sign)),
    ("PKDECRYPT",      Form::Empty,                               Rule::Operate(KeyOperation::Decrypt)),
    ("PKDECRYPT",      Form::Exactly("--kem=PGP"),                Rule::Operate(KeyOperation::Decrypt)),
    ("PKDECRYPT",      Form::Exactly("--kem=PQC-PGP"),            Rule::Operate(KeyOperation::Decrypt)),
    ("PKDECRYPT",      Form::Exactly("--kem=CMS"),                Rule::Operate(KeyOperation::DecryptX509)),
    ("ISTRUSTED",      Form::Fingerprint,                         Rule::Forward),
    ("GET_PASSPHRASE", Form::Anything,                            Rule::Dialog),
];

/// The lines that end an inquiry.
const END_OF_INQUIRY: [&str; 2] = ["END", "CAN"];

/// The rule for a command; `None` if it isn't in the table.
pub(super) fn find(command: &Command<'_>) -> Option<Rule> {
    TABLE
        .iter()
        .find(|(verb, form, _)| command.verb.is(verb) && form.admits(command))
        .map(|(_, _, rule)| *rule)
}

/// Whether a command is one of those that end an inquiry.
pub(super) fn ends_inquiry(command: &Command<'_>) -> bool {
    command.arguments.is_empty() && END_OF_INQUIRY.iter().any(|verb| command.verb.is(verb))
}

/// How many keygrips the client of a `HAVEKEY --list` accepts.
pub(super) fn list_limit(command: &Command<'_>) -> usize {
    let number = command.arguments.strip_prefix(b"--list=").unwrap_or_default();
    std::str::from_utf8(number).ok().and_then(|digits| digits.parse().ok()).unwrap_or(usize::MAX)
}

impl Form {
    fn admits(&self, command: &Command<'_>) -> bool {
        let arguments = command.arguments;
        match self {
            Self::Empty => arguments.is_empty(),
            Self::Exactly(text) => arguments == text.as_bytes(),
            Self::Word => !arguments.is_empty() && !arguments.contains(&b' '),
            Self::Fingerprint | Self::Keygrip => is_keygrip(arguments),
            Self::Keygrips => !arguments.is_empty() && command.words().all(is_keygrip),
            Self::AnotherKeygrip => arguments.strip_prefix(b"--another ").is_some_and(is_keygrip),
            Self::Hash => is_hash(arguments),
            Self::List => {
                arguments == b"--list"
                    || arguments.strip_prefix(b"--list=").is_some_and(|n| is_number(n, 6))
            }
            Self::Awareness => arguments.strip_prefix(b"agent-awareness=").is_some_and(is_version),
            Self::Anything => true,
        }
    }
}

/// An algorithm's number and the digits of a hash. gpg-agent knows hashes of 16 to 64 bytes.
fn is_hash(arguments: &[u8]) -> bool {
    let Some(blank) = arguments.iter().position(|&byte| byte == b' ') else { return false };
    let (algorithm, hash) = arguments.split_at(blank);
    let hash = hash.get(1..).unwrap_or_default();
    is_number(algorithm, 3)
        && (32..=128).contains(&hash.len())
        && hash.len().is_multiple_of(2)
        && hash.iter().all(u8::is_ascii_hexdigit)
}

fn is_number(word: &[u8], most_digits: usize) -> bool {
    (1..=most_digits).contains(&word.len()) && word.iter().all(u8::is_ascii_digit)
}

fn is_version(word: &[u8]) -> bool {
    (1..=32).contains(&word.len())
        && word.iter().all(|&byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
}
