//! A client that is connected never uses a key that is no longer lent.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use keybridge_proto::gate::{KeyGrip, KeySource, LentKeys, Policy, ReadingKeys, Rights, Use};
use keybridge_proto::permission::{Decided, Refusal};
use keybridge_proto::session::{AgentSession, Entry, Limits, Operations, Recorder, Session};
use keybridge_proto::ssh::{Fingerprint, KeySelection, MessageType, SelectionInForce, SshSession};
use keybridge_proto::{Operation, OperationSet};

use crate::ssh_talk::{frame, login, login_with, sign};
use crate::stepped_client::Client;

const KEY: &str = "0123456789ABCDEF0123456789ABCDEF01234567";
const NO_SECRET_KEY: &str = "ERR 67108881 No secret key <GPG Agent>\n";

/// Keys that a test sets, and how long they take to be read.
#[derive(Debug, Default)]
struct Keys {
    now: RefCell<Arc<LentKeys>>,
    known: RefCell<Arc<LentKeys>>,
    is_slow: Rc<Cell<bool>>,
}

impl KeySource for Keys {
    fn known(&self) -> Arc<LentKeys> {
        Arc::clone(&self.known.borrow())
    }

    fn read(self: Rc<Self>) -> ReadingKeys {
        Box::pin(poll_fn(move |_| {
            if self.is_slow.get() {
                return Poll::Pending;
            }
            self.known.replace(Arc::clone(&self.now.borrow()));
            Poll::Ready(self.known())
        }))
    }
}

impl Keys {
    fn lending(sign: Use, decrypt: Use) -> Rc<Self> {
        let keys = Rc::new(Self::default());
        keys.set(sign, decrypt);
        keys.known.replace(Arc::clone(&keys.now.borrow()));
        keys
    }

    /// What the next reading finds.
    fn set(&self, sign: Use, decrypt: Use) {
        let grip = KeyGrip::parse(KEY.as_bytes()).unwrap();
        self.now.replace(Arc::new([(grip, Rights { sign, decrypt })].into_iter().collect()));
    }
}

/// Keeps who decided on each operation.
#[derive(Debug, Default)]
struct Written(RefCell<Vec<Decided>>);

impl Recorder for Written {
    fn is_ready(&self) -> bool {
        true
    }

    fn record(&self, entry: &Entry<'_>) {
        self.0.borrow_mut().extend(entry.decided.cloned());
    }
}

/// A client that has chosen the key while it was lent.
fn client(keys: &Rc<Keys>, operations: &Operations) -> Client {
    let session = AgentSession::new(Policy::default(), Arc::default(), Limits::default());
    let session = session.sharing(operations.clone()).asking(Rc::clone(keys) as Rc<_>);
    Client::of(session, KEY, Instant::now())
}

fn is_woken(client: &Client) -> bool {
    client.session.poll_turn(&Context::from_waker(Waker::noop())).is_ready()
}

#[test]
fn a_client_never_signs_or_decrypts_with_a_key_that_was_taken_away() {
    for (operation, left) in
        [("PKSIGN\n", (Use::Denied, Use::OpenPgp)), ("PKDECRYPT\n", (Use::OpenPgp, Use::Denied))]
    {
        let keys = Keys::lending(Use::OpenPgp, Use::OpenPgp);
        let mut client = client(&keys, &Operations::default());
        assert_eq!(client.asks(operation), operation);
        client.answers("OK\n");
        // What it was lent for, and then the key itself.
        keys.set(left.0, left.1);
        assert_eq!(client.asks(operation), "", "{operation}");
        assert_eq!(client.gets(), "ERR 67109115 Forbidden <GPG Agent>\n");
        keys.set(Use::Denied, Use::Denied);
        assert_eq!(client.asks(operation), "", "{operation}");
        assert_eq!(client.gets(), NO_SECRET_KEY);
        keys.set(Use::OpenPgp, Use::OpenPgp);
        assert_eq!(client.asks(operation), operation, "it is lent again");
    }
}

#[test]
fn an_operation_never_begins_before_the_keys_of_now_are_read() {
    let keys = Keys::lending(Use::OpenPgp, Use::OpenPgp);
    let mut client = client(&keys, &Operations::default());
    keys.is_slow.set(true);
    assert_eq!(client.asks("PKSIGN\n"), "");
    assert!(!is_woken(&client) && !client.session.takes_client_bytes());
    assert_eq!(client.sent(), "");
    // Others aren't kept from their turns by one that only reads.
    keys.set(Use::Denied, Use::OpenPgp);
    keys.is_slow.set(false);
    assert!(is_woken(&client));
    assert_eq!(client.sent(), "");
    assert_eq!(client.gets(), "ERR 67109115 Forbidden <GPG Agent>\n");
    assert_eq!(client.asks("NOP\n"), "NOP\n");
}

#[test]
fn an_operation_that_waits_never_begins_with_a_key_that_was_taken_away_meanwhile() {
    let (keys, operations) = (Keys::lending(Use::OpenPgp, Use::OpenPgp), Operations::default());
    let mut clients: Vec<Client> = (0..6).map(|_| client(&keys, &operations)).collect();
    for client in &mut clients[..4] {
        assert_eq!(client.asks("PKSIGN\n"), "PKSIGN\n");
    }
    assert_eq!(clients[4].asks("PKSIGN\n"), "");
    assert_eq!(clients[5].asks("PKSIGN\n"), "");
    clients[0].answers("OK\n");
    keys.is_slow.set(true);
    assert_eq!(clients[4].sent(), "", "its turn has come, and the keys are read");
    keys.set(Use::Denied, Use::Denied);
    keys.is_slow.set(false);
    assert_eq!(clients[4].sent(), "");
    assert_eq!(clients[4].gets(), NO_SECRET_KEY);
    // It has given its turn back.
    assert_eq!(clients[5].sent(), "");
    assert_eq!(clients[5].gets(), NO_SECRET_KEY);
}

#[test]
fn an_operation_never_begins_with_a_key_that_was_taken_away_while_its_dialog_got_a_text() {
    let keys = Keys::lending(Use::OpenPgp, Use::OpenPgp);
    let mut client = client(&keys, &Operations::default());
    assert!(client.says("PKSIGN\n").starts_with("SETKEYDESC "));
    keys.set(Use::Denied, Use::Denied);
    assert_eq!(client.answers("OK\n"), NO_SECRET_KEY);
    assert_eq!(client.sent(), "");
}

#[test]
fn an_inquiry_never_ends_with_a_key_that_was_taken_away_meanwhile() {
    let keys = Keys::lending(Use::OpenPgp, Use::OpenPgp);
    let mut client = client(&keys, &Operations::default());
    assert_eq!(client.asks("PKDECRYPT\n"), "PKDECRYPT\n");
    client.answers("INQUIRE CIPHERTEXT\n");
    assert_eq!(client.asks("D data\n"), "D data\n");
    keys.set(Use::OpenPgp, Use::Denied);
    assert_eq!(client.asks("END\n"), "CAN\n");
    let told = client.answers("ERR 67109141 IPC call has been cancelled <GPG Agent>\n");
    assert_eq!(told, "ERR 67109115 Forbidden <GPG Agent>\n");
    assert_eq!(client.sent(), "NOP\n");
}

#[test]
fn a_client_that_was_told_of_no_key_uses_one_once_it_can_be_read() {
    let keys = Keys::lending(Use::OpenPgp, Use::OpenPgp);
    let mut client = client(&keys, &Operations::default());
    // A reading has failed.
    keys.known.take();
    assert_eq!(client.asks("PKSIGN\n"), "PKSIGN\n");
}

#[test]
fn a_client_never_logs_in_with_an_ssh_key_that_was_taken_away() {
    let [first, other] = [&b"first"[..], b"other"];
    let selection = |key| {
        let print = Fingerprint::of(key).unwrap().to_string();
        KeySelection::of_words([print.as_str()]).unwrap()
    };
    let (chosen, operations) = (SelectionInForce::default(), Operations::default());
    let written = Rc::new(Written::default());
    operations.record_with(Rc::clone(&written) as Rc<_>);
    let now = Instant::now();
    let connected = || {
        let session = SshSession::new(Policy::default(), Limits::default());
        let mut session = session.sharing(operations.clone()).asking(&chosen);
        session.connect_requested(now);
        session.agent_connected();
        session
    };
    let signed = frame(MessageType::SIGN_RESPONSE, &[3; 100]);
    let refused = frame(MessageType::FAILURE, &[]);
    let asks = |session: &mut SshSession, key: &[u8]| {
        let request = sign(key, &login_with(key));
        session.timeout(now);
        session.client_bytes(&request);
        let sent = session.to_agent().len();
        session.agent_took(sent, now);
        if sent > 0 {
            session.agent_bytes(&signed);
        }
        let told = session.to_client().to_vec();
        session.client_took(told.len());
        told
    };
    let mut session = connected();
    assert_eq!(asks(&mut session, first), signed);
    chosen.set(selection(other));
    assert_eq!(asks(&mut session, first), refused);
    assert_eq!(asks(&mut session, other), signed);
    operations.lend([Operation::Sshsig].into_iter().collect());
    assert_eq!(asks(&mut session, other), refused);
    operations.lend([Operation::Login].into_iter().collect());
    assert_eq!(asks(&mut session, other), signed);
    // What the gate refuses is recorded too.
    let (done, refused_there) = (Decided::Settings, Decided::Refused(Refusal::NotLent));
    let expected = [&done, &refused_there, &done, &refused_there, &done];
    assert_eq!(written.0.borrow().iter().collect::<Vec<_>>(), expected);
    operations.lend(OperationSet::default());
    // One that waits for its turn.
    chosen.set(KeySelection::default());
    let mut busy: Vec<SshSession> = (0..4).map(|_| connected()).collect();
    let request = sign(first, &login());
    for session in &mut busy {
        session.client_bytes(&request);
        session.agent_took(session.to_agent().len(), now);
    }
    assert_eq!(asks(&mut session, first), b"");
    chosen.set(selection(other));
    busy.clear();
    session.timeout(now);
    assert_eq!(session.to_agent(), b"");
    assert_eq!(session.to_client(), refused);
}
