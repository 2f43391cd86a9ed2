//! Private-key operations of several sessions of a bridge, each of which can raise a dialog.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use keybridge_proto::gate::{AgentSocket, KeyGrip, LentKeys, Policy, Rights, Use};
use keybridge_proto::session::{AgentSession, Limits, Operations, Session};
use keybridge_proto::ssh::{MessageType, SshSession};

use crate::ssh_talk::{frame, login, sign};
use crate::stepped_client::Client;

const SECOND: Duration = Duration::from_secs(1);

const ONE: &str = "1111111111111111111111111111111111111111";
const TWO: &str = "2222222222222222222222222222222222222222";

const CANCELLED: &str = "ERR 67108963 Operation cancelled <GPG Agent>\n";

fn lent() -> Arc<LentKeys> {
    let rights = Rights { sign: Use::OpenPgp, decrypt: Use::OpenPgp };
    let keys = [ONE, TWO].map(|grip| (KeyGrip::parse(grip.as_bytes()).unwrap(), rights));
    Arc::new(keys.into_iter().collect())
}

/// A client that has chosen this key.
fn with_key(operations: &Operations, key: &str, now: Instant) -> Client {
    let session = AgentSession::new(Policy::default(), lent(), Limits::default());
    Client::of(session.sharing(operations.clone()), key, now)
}

impl Client {
    fn hangs_up(mut self) {
        self.session.client_closed(false);
        assert!(self.session.cleanup().is_some());
        // It takes its time to end.
        std::mem::forget(self);
    }
}

/// Counts how often it was woken.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn no_more_than_four_operations_are_under_way_and_the_others_wait() {
    let (operations, now) = (Operations::default(), Instant::now());
    let mut clients: Vec<Client> = (0..7).map(|_| with_key(&operations, ONE, now)).collect();
    let sent: Vec<String> = clients.iter_mut().map(|client| client.asks("PKSIGN\n")).collect();
    assert_eq!(sent, ["PKSIGN\n"; 4].into_iter().chain([""; 3]).collect::<Vec<_>>());
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let context = Context::from_waker(&waker);
    let [first, second, _, _, fifth, sixth, seventh] = &mut clients[..] else { panic!() };
    for waiting in [&fifth, &sixth, &seventh] {
        assert!(waiting.session.poll_turn(&context).is_pending());
        assert!(!waiting.session.takes_client_bytes());
    }
    // What isn't an operation doesn't wait.
    let mut other = with_key(&operations, TWO, now);
    assert_eq!(other.asks("GETINFO version\n"), "GETINFO version\n");
    // An answer makes room, also one that isn't a success.
    let failed = "ERR 67108875 Bad passphrase <GPG Agent>\n";
    assert_eq!(first.answers(failed), failed);
    assert_eq!(woken.0.load(Ordering::Relaxed), 1);
    assert!(fifth.session.poll_turn(&context).is_ready());
    assert_eq!(fifth.sent(), "PKSIGN\n");
    assert!(fifth.session.poll_turn(&context).is_pending(), "it has been taken");
    assert_eq!(sixth.sent(), "");
    assert_eq!(second.answers("D signature\nOK\n"), "D signature\nOK\n");
    assert_eq!(sixth.sent(), "PKSIGN\n");
    assert_eq!(seventh.sent(), "");
}

#[test]
fn a_client_that_hangs_up_leaves_its_turn_to_others_at_once() {
    let (operations, now) = (Operations::default(), Instant::now());
    let mut clients: Vec<Client> = (0..6).map(|_| with_key(&operations, ONE, now)).collect();
    for client in &mut clients {
        client.asks("PKSIGN\n");
    }
    // One that waits, and one that is under way.
    clients.remove(4).hangs_up();
    assert_eq!(clients[4].sent(), "");
    clients.remove(0).hangs_up();
    assert_eq!(clients[3].sent(), "PKSIGN\n");
    for client in clients.drain(..) {
        client.hangs_up();
    }
    assert!(!operations.may_ask());
}

#[test]
fn a_client_that_asks_no_more_still_gets_its_answer() {
    let (operations, now) = (Operations::default(), Instant::now());
    let mut clients: Vec<Client> = (0..5).map(|_| with_key(&operations, ONE, now)).collect();
    for client in &mut clients {
        client.asks("PKSIGN\n");
    }
    clients[4].session.client_eof();
    assert!(!clients[4].session.is_over());
    clients[0].answers("OK\n");
    assert_eq!(clients[4].sent(), "PKSIGN\n");
    assert_eq!(clients[4].answers("D signature\nOK\n"), "D signature\nOK\n");
    assert!(clients[4].session.is_over());
}

#[test]
fn no_dialog_for_a_key_follows_at_once_when_a_person_has_cancelled_one() {
    for cancelled in ["ERR 83886179 Operation cancelled <Pinentry>\n", "ERR 83886278 x\n"] {
        let (operations, now) = (Operations::default(), Instant::now());
        let mut clients: Vec<Client> = (0..6).map(|_| with_key(&operations, ONE, now)).collect();
        for client in &mut clients[..5] {
            client.asks("PKSIGN\n");
        }
        assert_eq!(clients[0].answers(cancelled), cancelled);
        // One that has waited, one that asks now, and the same one again.
        for at in [4, 5, 0] {
            let sent = if at == 4 { clients[4].sent() } else { clients[at].asks("PKSIGN\n") };
            assert_eq!(sent, "", "{at}");
            assert_eq!(clients[at].gets(), CANCELLED, "{at}");
        }
        let mut other = with_key(&operations, TWO, now);
        assert_eq!(other.asks("PKSIGN\n"), "PKSIGN\n", "gpg goes on to the next key");
        other.answers("OK\n");
        let later = &mut clients[5];
        later.now = now + 5 * SECOND;
        assert_eq!(later.asks("PKDECRYPT\n"), "PKDECRYPT\n");
        later.answers("INQUIRE CIPHERTEXT\n");
        assert_eq!(later.asks("END\n"), "END\n");
        assert_eq!(later.answers(cancelled), cancelled);
        assert_eq!(later.sent(), "NOP\n");
        later.answers("OK\n");
        later.now += 9 * SECOND;
        assert_eq!(later.asks("PKSIGN\n"), "", "twice as long");
        assert_eq!(later.gets(), CANCELLED);
        later.now += SECOND;
        assert_eq!(later.asks("PKSIGN\n"), "PKSIGN\n");
    }
}

#[test]
fn a_client_that_owes_its_agent_data_has_no_turn() {
    let (operations, now) = (Operations::default(), Instant::now());
    let mut clients: Vec<Client> = (0..6).map(|_| with_key(&operations, ONE, now)).collect();
    for client in &mut clients {
        assert_eq!(client.asks("PKDECRYPT\n"), "PKDECRYPT\n");
        client.answers("INQUIRE CIPHERTEXT\n");
        assert_eq!(client.asks("D data\n"), "D data\n");
    }
    let sent: Vec<String> = clients.iter_mut().map(|client| client.asks("END\n")).collect();
    assert_eq!(sent, ["END\n", "END\n", "END\n", "END\n", "", ""]);
    clients[0].answers("D text\nOK\n");
    assert_eq!(clients[4].sent(), "END\n");
    // A person cancels: the inquiry of the one that waits is cancelled too.
    clients[1].answers("ERR 83886179 Operation cancelled <Pinentry>\n");
    assert_eq!(clients[5].sent(), "CAN\n");
    let cancelled = clients[5].answers("ERR 67109141 IPC call has been cancelled <GPG Agent>\n");
    assert_eq!(cancelled, CANCELLED);
    assert_eq!(clients[5].sent(), "NOP\n");
    clients[5].answers("OK\n");
    assert_eq!(clients[5].asks("GETINFO version\n"), "GETINFO version\n");
}

#[test]
fn a_key_that_failed_in_another_way_is_not_refused() {
    let (operations, now) = (Operations::default(), Instant::now());
    let mut client = with_key(&operations, ONE, now);
    for answer in ["ERR 67108875 Bad passphrase\n", "ERR 83886142 Timeout\n", "ERR\n", "OK\n"] {
        assert_eq!(client.asks("PKSIGN\n"), "PKSIGN\n");
        assert_eq!(client.answers(answer), answer);
    }
}

#[test]
fn signatures_of_the_ssh_lane_take_turns_too() {
    let (operations, now) = (Operations::default(), Instant::now());
    let request = sign(b"a key", &login());
    let connected = || {
        let session = SshSession::new(Policy::default(), Limits::default());
        let mut session = session.sharing(operations.clone());
        session.connect_requested(now);
        session.agent_connected();
        session
    };
    let asks = |session: &mut SshSession, bytes: &[u8]| {
        session.timeout(now);
        let taken = session.client_bytes(bytes);
        let sent = session.to_agent().to_vec();
        session.agent_took(sent.len(), now);
        (taken, sent)
    };
    let mut sessions: Vec<SshSession> = (0..4).map(|_| connected()).collect();
    for session in &mut sessions {
        assert_eq!(asks(session, &request), (request.len(), request.clone()));
    }
    let mut client = with_key(&operations, ONE, now);
    assert_eq!(client.asks("PKSIGN\n"), "");
    // However it arrives, and listing doesn't wait.
    let mut fifth = connected();
    let list = keybridge_proto::ssh::Request::LIST;
    assert_eq!(asks(&mut fifth, &list).1, list);
    fifth.agent_bytes(&crate::ssh_talk::EMPTY_LIST);
    fifth.client_took(fifth.to_client().len());
    let (taken, sent) = asks(&mut fifth, &request);
    assert_eq!(sent, b"");
    let answer = frame(MessageType::SIGN_RESPONSE, &[3; 100]);
    sessions[0].agent_bytes(&answer);
    assert_eq!(client.sent(), "PKSIGN\n");
    assert_eq!(asks(&mut fifth, &request[taken..]).1, b"");
    sessions[1].client_closed(false);
    assert!(sessions[1].cleanup().is_some());
    fifth.timeout(now);
    let mut sent = fifth.to_agent().to_vec();
    fifth.agent_took(sent.len(), now);
    sent.extend(asks(&mut fifth, &request[taken..]).1);
    assert_eq!(sent, request);
    fifth.agent_bytes(&answer);
    assert_eq!(fifth.to_client(), answer);
}

#[test]
fn who_does_not_confirm_the_use_of_a_key_is_not_asked_again_at_once() {
    let (operations, now) = (Operations::default(), Instant::now());
    let mut client = with_key(&operations, ONE, now);
    client.asks("PKSIGN\n");
    let denied = "ERR 83886194 Not confirmed <Pinentry>\n";
    assert_eq!(client.answers(denied), denied);
    let mut next = with_key(&operations, ONE, now);
    assert_eq!((next.asks("PKSIGN\n").as_str(), next.gets().as_str()), ("", CANCELLED));
}

#[test]
fn no_dialog_lacks_the_note_that_it_comes_from_a_remote_site() {
    let text = "A+program+there+uses+a+secret+key+of+yours.\n";
    for (socket, own) in [
        // gpg-agent adds the note to each text that comes over this one.
        (AgentSocket::Extra, format!("SETKEYDESC {text}")),
        (AgentSocket::Main, format!("SETKEYDESC Note:+Request+from+a+remote+site.%0A%0A{text}")),
    ] {
        let policy = Policy { socket, ..Policy::default() };
        let session = AgentSession::new(policy, lent(), Limits::default());
        let mut client = Client::of(session, ONE, Instant::now());
        // Without a text, after one that the agent has refused, and after one that it has forgotten.
        let (choose, ok) = (format!("SIGKEY {ONE}\n"), "OK\n");
        let refused = "ERR 67109144 Parameter error <GPG Agent>\n";
        for before in [
            &[][..],
            &[("SETKEYDESC x\n", refused)],
            &[("SETKEYDESC x\n", ok), ("RESET\n", ok), (&choose, ok)],
        ] {
            for (line, answer) in before {
                client.says(line);
                assert_eq!(client.answers(answer), *answer);
            }
            assert_eq!(client.says("PKSIGN\n"), own);
            assert!(!client.session.takes_client_bytes());
            assert_eq!(client.answers(ok), "");
            assert_eq!(client.sent(), "PKSIGN\n");
            assert_eq!(client.answers("D x\nOK\n"), "D x\nOK\n");
        }
        // The same for a decryption, whose text holds until its inquiry is answered.
        assert_eq!(client.says("PKDECRYPT\n"), own);
        client.answers("OK\n");
        assert_eq!(client.sent(), "PKDECRYPT\n");
        client.answers("INQUIRE CIPHERTEXT\n");
        assert_eq!(client.says("END\n"), "END\n");
        client.answers("D x\nOK\n");
        assert_eq!(client.sent(), "NOP\n");
        client.answers("OK\n");
        // An agent that takes no text is asked nothing.
        assert_eq!(client.says("PKSIGN\n"), own);
        assert_eq!(client.answers(refused), refused);
        assert_eq!(client.sent(), "");
        assert_eq!(client.says("NOP\n"), "NOP\n");
    }
}

#[test]
fn a_client_that_goes_before_its_dialog_never_shortens_the_next_pause() {
    let (operations, mut now) = (Operations::default(), Instant::now());
    for pause in [5, 10, 20] {
        let mut client = with_key(&operations, ONE, now);
        assert!(client.says("PKSIGN\n").starts_with("SETKEYDESC "));
        client.session.client_closed(false);
        // The agent's OK is to the text, not to an operation.
        if let Some(left) = client.session.left_operation() {
            left.answered(b"OK\n", now);
        }
        assert!(client.session.cleanup().is_some());
        let mut client = with_key(&operations, ONE, now);
        assert_eq!(client.asks("PKSIGN\n"), "PKSIGN\n");
        client.answers("ERR 83886179 Operation cancelled <Pinentry>\n");
        now += pause * SECOND;
        client.now = now.checked_sub(SECOND).unwrap();
        assert_eq!(client.asks("PKSIGN\n"), "", "{pause}");
        assert_eq!(client.gets(), CANCELLED);
    }
}
