//! Binds to SSH sessions, which the session itself verifies.

use std::time::{Duration, Instant};

use keybridge_proto::Operation;
use keybridge_proto::gate::Policy;
use keybridge_proto::session::{Limits, Operations, Session};
use keybridge_proto::ssh::{BindError, MessageType, Request, SessionError, SshSession};

use crate::ssh_talk::{FAILURE, Talk, extension, frame, login, sign, string};

macro_rules! binds {
    ($($name:literal),*) => { [$(include_bytes!(concat!("../golden/binds/", $name)).as_slice()),*] };
}

/// One that OpenSSH's agent accepts, of an ed25519 host key.
pub const BIND: &[u8] = include_bytes!("../golden/binds/ed25519");

/// All of these OpenSSH's agent accepts.
const BINDS: [&[u8]; 12] = binds![
    "ed25519",
    "ed25519-certificate",
    "ecdsa-256",
    "ecdsa-256-certificate",
    "ecdsa-384",
    "ecdsa-521",
    "rsa-1024-sha2-512",
    "rsa-2048-sha2-256",
    "rsa-2048-sha2-256-certificate",
    "rsa-2048-sha2-512",
    "rsa-2048-sha2-512-certificate",
    "rsa-sha1"
];

const REFUSED: [u8; 5] = [0, 0, 0, 1, 28];
const SUCCESS: [u8; 5] = [0, 0, 0, 1, 6];

/// Before the fields of a bind: the frame's length and type, and the extension's name.
const HEAD: usize = 4 + 1 + 4 + Request::SESSION_BIND.len();

fn connected() -> Talk {
    Talk::connected(Policy::default(), 1 << 20)
}

/// What the client gets for a request, to which the agent answers that.
fn ask(talk: &mut Talk, request: &[u8], answer: &[u8]) -> Vec<u8> {
    talk.forget();
    talk.answers.push_back(answer.to_vec());
    talk.write(request);
    std::mem::take(&mut talk.client_got)
}

/// Whether a signature is still asked for.
fn signs(talk: &mut Talk) -> bool {
    let signature = frame(MessageType::SIGN_RESPONSE, &[3; 100]);
    let answer = ask(talk, &sign(b"a key", &login()), &signature);
    assert!(answer == signature || answer == FAILURE, "{answer:?}");
    answer == signature
}

/// The data of a login in a session.
fn login_in(session_id: &[u8]) -> Vec<u8> {
    let fields = [&b"user"[..], b"ssh-connection", b"publickey"].map(string).concat();
    let rest = [&[1][..], &string(b"ssh-ed25519"), &string(b"a key")].concat();
    [string(session_id), vec![50], fields, rest].concat()
}

#[test]
fn where_logins_alone_are_lent_a_bound_connection_logs_in_only_where_it_is_bound_to() {
    let operations = Operations::default();
    operations.lend([Operation::Login].into_iter().collect());
    let mut talk = Talk::new(Policy::default(), 1 << 20);
    talk.session = SshSession::new(Policy::default(), Limits::default()).sharing(operations);
    talk.connect();
    let signature = frame(MessageType::SIGN_RESPONSE, &[3; 100]);
    let logs_in = |talk: &mut Talk, session_id: &[u8]| {
        let answer = ask(talk, &sign(b"a key", &login_in(session_id)), &signature);
        assert!(answer == signature || answer == FAILURE, "{answer:?}");
        answer == signature
    };
    assert!(logs_in(&mut talk, b"any"), "it isn't bound");
    assert_eq!(ask(&mut talk, BIND, &SUCCESS), SUCCESS);
    let mut fields = &BIND[HEAD..];
    let mut next = || {
        let (length, rest) = fields.split_first_chunk::<4>().unwrap();
        let (field, rest) = rest.split_at(u32::from_be_bytes(*length).try_into().unwrap());
        fields = rest;
        field.to_vec()
    };
    let (_host_key, session_id) = (next(), next());
    assert!(logs_in(&mut talk, &session_id) && !logs_in(&mut talk, b"another"));
}

/// A bind with other fields.
fn bind(fields: &[&[u8]], flag: &[u8]) -> Vec<u8> {
    let fields: Vec<u8> = fields.iter().flat_map(|field| string(field)).collect();
    extension(Request::SESSION_BIND, &[&fields[..], flag].concat())
}

#[test]
fn a_bind_with_any_kind_of_host_key_reaches_the_agent_byte_for_byte() {
    for bytes in BINDS {
        let mut talk = connected();
        assert_eq!(ask(&mut talk, bytes, &SUCCESS), SUCCESS);
        assert_eq!(talk.agent_got, bytes);
        assert!(signs(&mut talk));
    }
}

#[test]
fn nothing_is_signed_after_a_bind_that_its_host_has_not_signed() {
    for bytes in BINDS.into_iter().filter(|bytes| !bytes.windows(5).any(|part| part == b"-cert")) {
        // Every field but whether the agent is forwarded.
        for at in (HEAD..bytes.len() - 1).step_by(29) {
            let mut forged = bytes.to_vec();
            forged[at] ^= 1;
            let mut talk = connected();
            assert_eq!(ask(&mut talk, &forged, &SUCCESS), REFUSED, "{at}");
            assert_eq!(talk.agent_got, b"", "{at}");
            assert!(!signs(&mut talk), "{at}");
            // No other bind mends that.
            assert_eq!(ask(&mut talk, bytes, &SUCCESS), REFUSED);
            assert!(!signs(&mut talk));
        }
    }
}

#[test]
fn a_certificate_never_proves_a_session_with_the_key_of_its_signer() {
    // The same length before the key: the certificate's nonce and the key in it.
    let certificate = binds!["ed25519-certificate"][0];
    let plain = BIND;
    let signature = &plain[plain.len() - 84..];
    assert_eq!(signature, &certificate[certificate.len() - 84..], "one key has signed both");
    let mut forged = certificate.to_vec();
    let key = HEAD + 4 + 4 + 32 + 4 + 32 + 4;
    forged[key] ^= 1;
    let mut talk = connected();
    assert_eq!(ask(&mut talk, &forged, &SUCCESS), REFUSED);
    assert!(!signs(&mut talk));
}

#[test]
fn nothing_is_signed_after_a_bind_that_cannot_be_verified() {
    let unknown = string(b"ssh-new@example.com");
    let (key, signature) = (&BIND[HEAD + 4..][..51], &BIND[BIND.len() - 84..][..83]);
    let binds = [
        bind(&[&unknown, &[1; 32], &unknown], b"\0"),
        bind(&[key, &[1; 129], signature], b"\0"),
        extension(Request::SESSION_BIND, b""),
        extension(Request::SESSION_BIND, &vec![1; 70_000]),
        [&BIND[..3], &[BIND[3] + 1], &BIND[4..], b"\0"].concat(),
        [&BIND[..BIND.len() - 1], b"\x02"].concat(),
        frame(MessageType::EXTENSION, b"\0\0\x01\0session-bind@openssh.com"),
    ];
    for bytes in binds {
        let mut talk = connected();
        assert_eq!(ask(&mut talk, &bytes, &SUCCESS), REFUSED, "{bytes:?}");
        assert_eq!(talk.agent_got, b"");
        assert!(!signs(&mut talk), "{bytes:?}");
        assert!(matches!(talk.session.error(), Some(SessionError::Bind(_))));
    }
}

#[test]
fn nothing_is_signed_after_an_agent_has_taken_one_bind_and_refused_another() {
    let mut talk = connected();
    assert_eq!(ask(&mut talk, BIND, &SUCCESS), SUCCESS);
    assert!(signs(&mut talk));
    assert_eq!(ask(&mut talk, BINDS[2], &FAILURE), FAILURE);
    assert!(!signs(&mut talk));
    assert_eq!(talk.session.error(), Some(&SessionError::Bind(BindError::Refused)));
}

#[test]
fn an_agent_that_takes_no_bind_signs_on() {
    let mut talk = connected();
    for answer in [&FAILURE, &REFUSED, &FAILURE] {
        assert_eq!(ask(&mut talk, BIND, answer), answer);
        assert!(signs(&mut talk));
    }
    assert!(talk.session.error().is_none());
}

#[test]
fn no_connection_has_more_binds_verified_than_an_agent_keeps() {
    let mut talk = connected();
    for _ in 0..16 {
        assert_eq!(ask(&mut talk, BIND, &SUCCESS), SUCCESS);
    }
    assert_eq!(ask(&mut talk, BIND, &SUCCESS), REFUSED);
    assert!(!signs(&mut talk));
}

#[test]
fn no_target_keeps_the_host_busy_with_binds() {
    let (operations, start) = (Operations::default(), Instant::now());
    let is_looked_at = |passed: Duration, bytes: &[u8]| {
        let mut talk = Talk::new(Policy::default(), 1 << 20);
        let session = SshSession::new(Policy::default(), Limits::default());
        (talk.session, talk.now) = (session.sharing(operations.clone()), start + passed);
        talk.connect();
        ask(&mut talk, bytes, &SUCCESS);
        talk.session.error() != Some(&SessionError::Bind(BindError::TooFast))
    };
    // It takes no time to see that this is none.
    let broken = extension(Request::SESSION_BIND, b"");
    assert_eq!((0..600).filter(|_| is_looked_at(Duration::ZERO, &broken)).count(), 512);
    let millis = (1..=1000).map(Duration::from_millis);
    assert_eq!(millis.filter(|passed| is_looked_at(*passed, &broken)).count(), 20);
    assert!(!is_looked_at(Duration::from_secs(1), BIND));
    assert!(is_looked_at(Duration::from_mins(1), BIND));
}
