//! The gate: what a target may ask of the host's agents.
//!
//! On the agent side every request of a target passes [`decide`] before it is sent, whatever a
//! session believes about inquiries. It is a pure function of the policy and the request.
//!
//! | lane | socket | denied |
//! |---|---|---|
//! | gpg | extra | `GET_PASSPHRASE`, unless the policy allows it; gpg-agent itself forbids the rest |
//! | gpg | main | everything that an extra socket would forbid, and `GET_PASSPHRASE` always |
//! | ssh | | everything but listing and signing with lent keys and two extensions; with changes allowed, what could make the agent load something |

mod ssh;

use crate::Lane;
use crate::assuan::{Command, RequestLine, is_keygrip};
use crate::ssh::KeySelection;

/// Which of gpg-agent's sockets a session leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AgentSocket {
    /// The restricted one, which is made for being forwarded. Proven at every dial.
    #[default]
    Extra,
    /// The unrestricted one, only when the user asked for it by name. The gate takes the place of
    /// the agent's own restrictions.
    Main,
}

/// What the user allows a target.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    /// The socket that gpg requests go to.
    pub socket: AgentSocket,
    /// Let the target choose the text of a dialog on the host and read what is typed there. On the
    /// main socket it has no effect: there the agent would also give out what it has cached.
    pub allow_get_passphrase: bool,
    /// Answer `KEYINFO` from `HAVEKEY` where an older agent forbids it.
    pub heal: bool,
    /// Let the target add and remove plain keys of the host's ssh-agent, and lock and unlock it.
    pub allow_ssh_changes: bool,
    /// Which keys of the host's ssh-agent the target may see and use.
    pub ssh_keys: KeySelection,
}

/// One request of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The target that asks.
    pub target: &'a str,
    /// What it asks.
    pub message: Message<'a>,
}

/// A request in the words of its lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// A line for gpg-agent.
    Gpg(RequestLine<'a>),
    /// A request for ssh-agent.
    Ssh(crate::ssh::Request<'a>),
}

/// What becomes of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on, byte for byte.
    Allow,
    /// It gets the agent's own kind of refusal and goes no further.
    Deny,
    /// It is answered with success in the agent's place.
    Affirm,
}

impl Message<'_> {
    /// The lane of the request.
    pub const fn lane(&self) -> Lane {
        match self {
            Self::Gpg(_) => Lane::Gpg,
            Self::Ssh(_) => Lane::Ssh,
        }
    }
}

/// Decides on one request.
pub fn decide(policy: &Policy, request: &Request<'_>) -> Verdict {
    match request.message {
        Message::Gpg(RequestLine::Blank | RequestLine::Comment | RequestLine::Data) => {
            Verdict::Allow
        }
        Message::Gpg(RequestLine::Command(command)) => decide_gpg(policy, &command),
        Message::Ssh(request) => ssh::decide(policy, &request),
    }
}

fn decide_gpg(policy: &Policy, command: &Command<'_>) -> Verdict {
    match policy.socket {
        AgentSocket::Extra if command.verb.is("GET_PASSPHRASE") && !policy.allow_get_passphrase => {
            Verdict::Deny
        }
        AgentSocket::Extra => Verdict::Allow,
        // gpg goes on after a Forbidden only on a socket that calls itself restricted, and behind
        // this gate it is.
        AgentSocket::Main if command.verb.is("GETINFO") && command.arguments == b"restricted" => {
            Verdict::Affirm
        }
        AgentSocket::Main => {
            let row = EXTRA_SOCKET.iter().find(|(verb, _)| command.verb.is(verb));
            match row {
                Some((_, arguments)) if arguments.admit(command) => Verdict::Allow,
                Some(_) | None => Verdict::Deny,
            }
        }
    }
}

/// Which arguments an extra socket takes for a verb.
enum Arguments {
    Any,
    /// One keygrip or several, no options.
    Keygrips,
    /// Exactly one keygrip.
    Keygrip,
    /// The whole of the arguments is one of these.
    Exactly(&'static [&'static str]),
    /// The first word, up to a blank or `=`, is one of these.
    Named(&'static [&'static str]),
}

/// What the extra socket of gpg-agent 2.4 lets through, less `GET_PASSPHRASE`.
const EXTRA_SOCKET: &[(&str, Arguments)] = &[
    ("NOP", Arguments::Any),
    ("RESET", Arguments::Any),
    ("BYE", Arguments::Any),
    ("END", Arguments::Any),
    ("CAN", Arguments::Any),
    ("CANCEL", Arguments::Any),
    ("HELP", Arguments::Any),
    ("ISTRUSTED", Arguments::Any),
    ("HAVEKEY", Arguments::Keygrips),
    ("KEYINFO", Arguments::Keygrip),
    ("SIGKEY", Arguments::Any),
    ("SETKEY", Arguments::Any),
    ("SETKEYDESC", Arguments::Any),
    ("SETHASH", Arguments::Any),
    ("PKSIGN", Arguments::Any),
    ("PKDECRYPT", Arguments::Any),
    ("GETINFO", Arguments::Named(&["version", "s2k_count", "cmd_has_option", "ephemeral"])),
    ("OPTION", Arguments::Named(&["agent-awareness", "ephemeral"])),
    (
        "SCD",
        Arguments::Exactly(&[
            "SERIALNO",
            "GETINFO version",
            "GETATTR KEY-FPR",
            "KEYINFO --list=encr",
        ]),
    ),
];

impl Arguments {
    fn admit(&self, command: &Command<'_>) -> bool {
        match self {
            Self::Any => true,
            Self::Keygrips => command.words().count() > 0 && command.words().all(is_keygrip),
            Self::Keygrip => command.words().count() == 1 && command.words().all(is_keygrip),
            Self::Exactly(whole) => whole.iter().any(|text| text.as_bytes() == command.arguments),
            Self::Named(names) => {
                let mut words = command.arguments.split(|byte| b" \t=".contains(byte));
                let first = words.next().unwrap_or_default();
                names.iter().any(|name| name.as_bytes() == first)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Affirm, Allow, Deny};

    const GRIP: &str = "0123456789ABCDEF0123456789ABCDEF01234567";

    fn gpg(policy: &Policy, line: &str) -> Verdict {
        let message = Message::Gpg(RequestLine::parse(line.as_bytes()).unwrap());
        assert_eq!(message.lane(), Lane::Gpg);
        decide(policy, &Request { target: "test", message })
    }

    #[test]
    fn an_extra_socket_is_left_to_the_agent_but_for_the_passphrase_dialog() {
        let policy = Policy::default();
        for line in ["GET_PASSPHRASE", "get_passphrase --data x", "Get_Passphrase\tx"] {
            assert_eq!(gpg(&policy, line), Deny, "{line}");
            assert_eq!(
                gpg(&Policy { allow_get_passphrase: true, ..policy.clone() }, line),
                Allow,
                "{line}"
            );
        }
        for line in ["PKSIGN", "KILLAGENT", "GETINFO restricted", "FOO", " NOP", "", "#", "D x"] {
            assert_eq!(gpg(&policy, line), Allow, "{line}");
        }
    }

    #[test]
    fn a_main_socket_gets_what_an_extra_socket_would_take() {
        let policy =
            Policy { socket: AgentSocket::Main, allow_get_passphrase: true, ..Policy::default() };
        let table = [
            (Allow, "NOP".to_owned()),
            (Allow, "reset".into()),
            (Allow, "BYE".into()),
            (Allow, "END".into()),
            (Allow, "CAN".into()),
            (Allow, "HELP PKSIGN".into()),
            (Allow, format!("HAVEKEY {GRIP}")),
            (Allow, format!("HAVEKEY {GRIP} {GRIP}")),
            (Deny, "HAVEKEY --list".into()),
            (Deny, format!("HAVEKEY --list {GRIP}")),
            (Deny, "HAVEKEY".into()),
            (Allow, format!("KEYINFO {GRIP}")),
            (Deny, "KEYINFO --list".into()),
            (Deny, format!("KEYINFO --data {GRIP}")),
            (Deny, format!("KEYINFO {GRIP} {GRIP}")),
            (Deny, format!("KEYINFO {GRIP}0")),
            (Allow, format!("SIGKEY {GRIP}")),
            (Allow, format!("SETKEY {GRIP}")),
            (Allow, "SETKEYDESC x".into()),
            (Allow, "SETHASH 8 ABCD".into()),
            (Allow, "PKSIGN".into()),
            (Allow, "PKDECRYPT".into()),
            (Allow, "ISTRUSTED ABCD".into()),
            (Allow, "GETINFO version".into()),
            (Allow, "GETINFO s2k_count".into()),
            (Allow, "GETINFO cmd_has_option KEYINFO --data".into()),
            (Affirm, "GETINFO restricted".into()),
            (Deny, "GETINFO pid".into()),
            (Deny, "GETINFO socket_name".into()),
            (Allow, "OPTION agent-awareness=2.1.0".into()),
            (Allow, "OPTION agent-awareness 2.1.0".into()),
            (Deny, "OPTION ttyname=/dev/tty".into()),
            (Deny, "OPTION putenv=LD_PRELOAD=x".into()),
            (Deny, "OPTION pinentry-mode=loopback".into()),
            (Allow, "SCD SERIALNO".into()),
            (Allow, "SCD GETATTR KEY-FPR".into()),
            (Deny, "SCD SERIALNO openpgp".into()),
            (Deny, "SCD APDU 00".into()),
            (Deny, "SCD".into()),
            (Deny, "GET_PASSPHRASE".into()),
            (Deny, format!("GET_PASSPHRASE --data {GRIP} X X X")),
            (Deny, "UNKNOWN".into()),
            (Deny, " NOP".into()),
        ];
        for (verdict, line) in table {
            assert_eq!(gpg(&policy, &line), verdict, "{line}");
        }
        for verb in [
            "READKEY",
            "GENKEY",
            "EXPORT_KEY",
            "IMPORT_KEY",
            "DELETE_KEY",
            "PASSWD",
            "LEARN",
            "KEYWRAP_KEY",
            "PRESET_PASSPHRASE",
            "CLEAR_PASSPHRASE",
            "GET_CONFIRMATION",
            "GETEVENTCOUNTER",
            "LISTTRUSTED",
            "MARKTRUSTED",
            "GETVAL",
            "PUTVAL",
            "UPDATESTARTUPTTY",
            "KILLAGENT",
            "RELOADAGENT",
            "KEYTOCARD",
        ] {
            assert_eq!(gpg(&policy, verb), Deny, "{verb}");
            assert_eq!(gpg(&policy, &format!("{} {GRIP}", verb.to_lowercase())), Deny, "{verb}");
        }
    }

    #[test]
    fn data_is_always_allowed() {
        for socket in [AgentSocket::Extra, AgentSocket::Main] {
            let policy = Policy { socket, ..Policy::default() };
            for line in ["D x", "D GET_PASSPHRASE", "", "# x", "END", "end of it", "CAN"] {
                assert_eq!(gpg(&policy, line), Allow, "{line}");
            }
        }
    }
}
