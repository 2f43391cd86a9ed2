use std::sync::Arc;

use super::gpg::GpgVerdict::{self, Answer, Forward, Operate, Skip};
use super::gpg::{FORBIDDEN, GpgGate, NO_SECRET_KEY};
use super::{AgentSocket, KeyGrip, LentKeys, Policy, Rights, Use};
use crate::assuan::{Reply, RequestLine};

/// A key for signatures, one for decryption, one for both, an X.509 key, and one that isn't lent.
const SIGNS: &str = "1111111111111111111111111111111111111111";
const DECRYPTS: &str = "2222222222222222222222222222222222222222";
const BOTH: &str = "ABABABABABABABABABABABABABABABABABABABAB";
const X509: &str = "4444444444444444444444444444444444444444";
const OTHER: &str = "9999999999999999999999999999999999999999";

const HASH: &str = "SETHASH 8 0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF";

fn lent() -> Arc<LentKeys> {
    let keys = [
        (SIGNS, Use::OpenPgp, Use::Denied),
        (DECRYPTS, Use::Denied, Use::OpenPgp),
        (BOTH, Use::OpenPgp, Use::OpenPgp),
        (X509, Use::X509, Use::X509),
    ];
    let keys = keys.map(|(grip, sign, decrypt)| {
        (KeyGrip::parse(grip.as_bytes()).unwrap(), Rights { sign, decrypt })
    });
    Arc::new(keys.into_iter().collect())
}

fn gate(policy: Policy) -> GpgGate {
    GpgGate::new(policy, lent())
}

fn main_socket() -> Policy {
    Policy { socket: AgentSocket::Main, ..Policy::default() }
}

/// The verdict on a line that the agent then answers with OK.
fn ok(gate: &mut GpgGate, line: &str) -> GpgVerdict {
    let verdict = gate.judge(&RequestLine::parse(line.as_bytes()).unwrap());
    gate.answered(true);
    verdict
}

/// The verdict on a line that the agent then refuses.
fn refused(gate: &mut GpgGate, line: &str) -> GpgVerdict {
    let verdict = gate.judge(&RequestLine::parse(line.as_bytes()).unwrap());
    gate.answered(false);
    verdict
}

/// Lines beside the table, and lines of its verbs in another form.
const REFUSED: &[&str] = &[
    "INPUT FD=3",
    "OUTPUT FD=3",
    "input FD=3",
    "INPUT",
    "OUTPUT FILE=/tmp/x",
    "RESET x",
    "BYE x",
    "NOP x",
    "HELP",
    "AUTH x",
    "CANCEL",
    "END",
    "CAN",
    "D x",
    "SCD SERIALNO",
    "SCD GETATTR KEY-FPR",
    "OPTION agent-awareness",
    "OPTION agent-awareness 2.1.0",
    "OPTION agent-awareness=",
    "OPTION agent-awareness=2 x",
    "OPTION --agent-awareness=2.1.0",
    "OPTION agent-awareness=2.1.0\u{1b}",
    "OPTION ttyname=/dev/tty",
    "OPTION putenv=LD_PRELOAD=x",
    "OPTION pinentry-mode",
    "OPTION pinentry-mode=",
    "OPTION pinentry-mode=error",
    "OPTION pinentry-mode=cancel",
    "OPTION pinentry-mode=ask",
    "OPTION pinentry-mode=loopback x",
    "OPTION pinentry-mode = loopback",
    "OPTION allow-pinentry-notify",
    "OPTION ephemeral=1",
    "OPTION use-cache-for-signing",
    "GETINFO",
    "GETINFO pid",
    "GETINFO socket_name",
    "GETINFO version ",
    "GETINFO versions",
    "GETINFO VERSION",
    "GETINFO cmd_has_option PKSIGN x",
    "SETKEYDESC",
    "SETKEYDESC two words",
    "SETHASH",
    "SETHASH 8",
    "SETHASH 8 ",
    "SETHASH 8  0123456789ABCDEF0123456789ABCDEF",
    "SETHASH 8 0123456789ABCDEF0123456789ABCDEF0",
    "SETHASH 8 0123456789ABCDEF",
    "SETHASH 8 0123456789ABCDEF0123456789ABCDEx",
    "SETHASH 1234 0123456789ABCDEF0123456789ABCDEF",
    "SETHASH -8 0123456789ABCDEF0123456789ABCDEF",
    "SETHASH --hash=sha256 0123456789ABCDEF0123456789ABCDEF",
    "SETHASH --hash=tls-md5sha1 0123456789ABCDEF0123456789ABCDEF",
    "SETHASH --inquire",
    "SETHASH --pss --inquire",
    "ISTRUSTED",
    "ISTRUSTED 0123",
    "PKSIGN -- 0123456789ABCDEF",
    "PKSIGN x",
    "PKDECRYPT x",
    "PKDECRYPT --kem",
    "PKDECRYPT --kem=NONE",
    "HAVEKEY",
    "HAVEKEY --info 1111111111111111111111111111111111111111",
    "HAVEKEY --list=",
    "HAVEKEY --list=x",
    "HAVEKEY --list 1",
    "KEYINFO",
    "KEYINFO --list",
    "KEYINFO --ssh-list",
    "KEYINFO --data 1111111111111111111111111111111111111111",
    "READKEY",
    "READKEY --card OPENPGP.1",
    "SIGKEY",
    "SIGKEY 11",
    "SIGKEY 1111111111111111111111111111111111111111 x",
    "SETKEY --another",
    "GET_PASSPHRASE --data X X X x",
    "GET_CONFIRMATION x",
    "GENKEY",
    "EXPORT_KEY 1111111111111111111111111111111111111111",
    "UNKNOWN",
    " NOP",
    "\tNOP",
    "NOP\u{b}x",
    "PKSIGN\rx",
];

#[test]
fn lines_of_the_table_go_on_and_no_others() {
    for policy in [Policy::default(), main_socket()] {
        let table: &[(GpgVerdict, &[&str])] = &[
            (
                Forward,
                &[
                    "RESET",
                    "reset",
                    "BYE",
                    "NOP",
                    "OPTION agent-awareness=2.1.0",
                    "OPTION agent-awareness=2.2.42-beta1",
                    "GETINFO version",
                    "GetInfo\tversion",
                    "GETINFO s2k_count",
                    "GETINFO cmd_has_option GET_PASSPHRASE repeat",
                    "GETINFO cmd_has_option GET_PASSPHRASE newsymkey",
                    HASH,
                    "ISTRUSTED 0123456789ABCDEF0123456789ABCDEF01234567",
                ],
            ),
            (
                GpgVerdict::Describe,
                &["SETKEYDESC Please+enter%0A", "setkeydesc J\u{fc}rgen", "SETKEYDESC \u{1b}\t[2J"],
            ),
            (
                Answer(Reply::Ok),
                &[
                    "GETINFO restricted",
                    "getinfo restricted",
                    "OPTION pinentry-mode=loopback",
                    "option pinentry-mode=loopback",
                ],
            ),
            (FORBIDDEN, REFUSED),
            (Skip, &["", "# x"]),
        ];
        for (verdict, lines) in table {
            for line in *lines {
                assert_eq!(ok(&mut gate(policy.clone()), line), *verdict, "{line:?}");
            }
        }
    }
}

#[test]
fn a_passphrase_dialog_is_opened_only_where_it_is_allowed() {
    for line in ["GET_PASSPHRASE", "get_passphrase --data x", "Get_Passphrase\tx"] {
        let allowed = Policy { allow_get_passphrase: true, ..Policy::default() };
        assert_eq!(ok(&mut gate(allowed), line), Forward, "{line}");
        assert_eq!(ok(&mut gate(Policy::default()), line), FORBIDDEN, "{line}");
        // There the agent would also give out what it has cached.
        let main = Policy { allow_get_passphrase: true, ..main_socket() };
        assert_eq!(ok(&mut gate(main), line), FORBIDDEN, "{line}");
    }
}

#[test]
fn an_inquiry_takes_data_and_its_end_alone() {
    for (verdict, lines) in [
        (Forward, &["D x", "D ", "END", "end", "CAN", "can"][..]),
        (Skip, &["", "#"]),
        (
            FORBIDDEN,
            &["RESET", "PKSIGN", "D", "d x", "END x", "CANCEL", "FOO", "INPUT FD=3", "BYE", " "],
        ),
    ] {
        for line in lines {
            let parsed = RequestLine::parse(line.as_bytes()).unwrap();
            assert_eq!(GpgGate::judge_in_inquiry(&parsed), verdict, "{line:?}");
        }
    }
}

#[test]
fn the_verdict_falls_on_the_key_in_force() {
    for choose in ["SIGKEY", "SETKEY", "sigkey"] {
        for (key, sign, decrypt) in [
            (SIGNS, Operate, FORBIDDEN),
            (DECRYPTS, FORBIDDEN, Operate),
            (BOTH, Operate, Operate),
            (X509, Operate, Operate),
            (OTHER, NO_SECRET_KEY, NO_SECRET_KEY),
        ] {
            let mut gate = gate(Policy::default());
            assert_eq!(ok(&mut gate, "PKSIGN"), NO_SECRET_KEY);
            assert_eq!(ok(&mut gate, "PKDECRYPT"), NO_SECRET_KEY);
            let chosen = ok(&mut gate, &format!("{choose} {}", key.to_lowercase()));
            // The agent doesn't hear of a key that isn't lent.
            assert_eq!(chosen, if key == OTHER { Answer(Reply::Ok) } else { Forward });
            assert_eq!(ok(&mut gate, "PKSIGN"), sign, "{choose} {key}");
            assert_eq!(ok(&mut gate, "PKDECRYPT"), decrypt, "{choose} {key}");
            ok(&mut gate, "RESET");
            assert_eq!(ok(&mut gate, "PKSIGN"), NO_SECRET_KEY);
        }
    }
}

#[test]
fn a_key_that_is_refused_or_not_lent_leaves_none_in_force() {
    let mut gate = gate(Policy::default());
    ok(&mut gate, &format!("SIGKEY {SIGNS}"));
    assert_eq!(ok(&mut gate, &format!("SIGKEY {SIGNS} x")), FORBIDDEN);
    assert_eq!(ok(&mut gate, "PKSIGN"), Operate);
    ok(&mut gate, &format!("SIGKEY {OTHER}"));
    assert_eq!(ok(&mut gate, "PKSIGN"), NO_SECRET_KEY);
    // The agent may still have the one before.
    ok(&mut gate, &format!("SIGKEY {SIGNS}"));
    assert_eq!(refused(&mut gate, &format!("SIGKEY {BOTH}")), Forward);
    assert_eq!(ok(&mut gate, "PKSIGN"), FORBIDDEN);
    assert_eq!(ok(&mut gate, "PKDECRYPT"), FORBIDDEN);
    refused(&mut gate, "RESET");
    assert_eq!(ok(&mut gate, "PKSIGN"), FORBIDDEN);
    ok(&mut gate, "RESET");
    ok(&mut gate, &format!("SIGKEY {BOTH}"));
    assert_eq!(ok(&mut gate, "PKSIGN"), Operate);
}

#[test]
fn a_composite_key_needs_both_halves() {
    for (first, second, verdict) in [
        (DECRYPTS, BOTH, Operate),
        (BOTH, DECRYPTS, Operate),
        (DECRYPTS, SIGNS, FORBIDDEN),
        (SIGNS, DECRYPTS, FORBIDDEN),
        (DECRYPTS, OTHER, NO_SECRET_KEY),
        (OTHER, DECRYPTS, NO_SECRET_KEY),
    ] {
        for operation in ["PKDECRYPT --kem=PQC-PGP", "PKDECRYPT --kem=PGP", "PKDECRYPT"] {
            let mut gate = gate(Policy::default());
            ok(&mut gate, &format!("SETKEY {first}"));
            ok(&mut gate, &format!("SETKEY --another {second}"));
            assert_eq!(ok(&mut gate, operation), verdict, "{first} {second} {operation}");
        }
    }
    let mut gate = gate(Policy::default());
    ok(&mut gate, &format!("SETKEY {BOTH}"));
    // An agent before 2.5 doesn't know the option.
    refused(&mut gate, &format!("SETKEY --another {BOTH}"));
    assert_eq!(ok(&mut gate, "PKDECRYPT --kem=PGP"), FORBIDDEN);
}

#[test]
fn raw_data_is_signed_by_x509_keys_alone() {
    let mut gate = gate(Policy::default());
    ok(&mut gate, &format!("SIGKEY {SIGNS}"));
    assert_eq!(ok(&mut gate, "SETHASH --inquire"), FORBIDDEN);
    assert_eq!(ok(&mut gate, "PKDECRYPT --kem=CMS"), FORBIDDEN);
    ok(&mut gate, &format!("SIGKEY {X509}"));
    assert_eq!(ok(&mut gate, "PKDECRYPT --kem=CMS"), Operate);
    assert_eq!(ok(&mut gate, "SETHASH --inquire"), Forward);
    assert_eq!(ok(&mut gate, "PKSIGN"), Operate);
    // Whatever the agent keeps of it, no other key signs in this session.
    ok(&mut gate, &format!("SIGKEY {SIGNS}"));
    assert_eq!(ok(&mut gate, "PKSIGN"), FORBIDDEN);
    ok(&mut gate, "RESET");
    ok(&mut gate, &format!("SIGKEY {SIGNS}"));
    ok(&mut gate, HASH);
    assert_eq!(ok(&mut gate, "PKSIGN"), FORBIDDEN);
    ok(&mut gate, &format!("SIGKEY {X509}"));
    assert_eq!(ok(&mut gate, "PKSIGN"), Operate);
}

#[test]
fn what_is_not_lent_is_not_seen() {
    let mut gate = gate(Policy::default());
    for (verdict, line) in [
        (Answer(Reply::Ok), format!("HAVEKEY {SIGNS}")),
        (Answer(Reply::Ok), format!("HAVEKEY {OTHER} {BOTH}")),
        (NO_SECRET_KEY, format!("HAVEKEY {OTHER}")),
        (NO_SECRET_KEY, format!("HAVEKEY {OTHER}\t{OTHER}")),
        (GpgVerdict::ListKeys { limit: usize::MAX }, "HAVEKEY --list".into()),
        (GpgVerdict::ListKeys { limit: 1000 }, "havekey --list=1000".into()),
        (Forward, format!("KEYINFO {SIGNS}")),
        (Answer(Reply::NotFound), format!("KEYINFO {OTHER}")),
        (Forward, format!("READKEY {SIGNS}")),
        (Answer(Reply::NotFound), format!("READKEY {OTHER}")),
    ] {
        assert_eq!(ok(&mut gate, &line), verdict, "{line}");
    }
}
