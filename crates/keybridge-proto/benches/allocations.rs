//! Counts allocations on the forwarding path, once it is warm: there must be none for a line or a
//! frame. Ends with failure if there are.
#![allow(clippy::expect_used, missing_docs, reason = "a bench may stop at the first fault")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use allocation_counter::measure;
use keybridge_proto::Lane;
use keybridge_proto::gate::{KeyGrip, LentKeys, Policy, Rights, Use};
use keybridge_proto::mux::{Config, End, Endpoint, StreamId, Version};
use keybridge_proto::session::{AgentSession, Limits, RequestSession, Session};
use keybridge_proto::socket_file::Opening;
use keybridge_proto::ssh;

fn main() -> ExitCode {
    let seen = measure(|| drop(std::hint::black_box(vec![0_u8; 8]))).count_total;
    assert_eq!(seen, 1, "the counter doesn't count");
    let mut all_good = true;
    println!("{:<54} {:>8} {:>12}", "forwarded", "units", "allocations");
    for (what, units, allocations) in [
        commands_through_both_sessions(),
        data_lines_through_both_sessions(),
        requests_through_an_ssh_session(),
        frames_over_the_mux("small frames over the mux, there and back", 40),
        frames_over_the_mux("frames of 32 KiB over the mux, there and back", 32 * 1024),
    ] {
        println!("{what:<54} {units:>8} {allocations:>12}");
        all_good &= allocations == 0;
    }
    if all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

const ROUNDS: u64 = 1000;

/// Runs until everything has happened once, the first credit too, then counts.
fn count(mut round: impl FnMut()) -> u64 {
    for _ in 0..100 {
        round();
    }
    measure(|| (0..ROUNDS).for_each(|_| round())).count_total
}

/// All but an operation with its text: a person is about to be asked, and the text is written anew.
fn commands_through_both_sessions() -> (&'static str, u64, u64) {
    let mut sessions = Sessions::ready();
    let allocations = count(|| {
        for line in [
            &b"RESET\n"[..],
            b"SIGKEY 0123456789ABCDEF0123456789ABCDEF01234567\n",
            b"SETHASH 8 0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF\n",
        ] {
            sessions.ask(line);
            sessions.answer(b"S PROGRESS x\nD some data\nOK\n");
        }
        // Answered by the gate.
        sessions.ask(b"HAVEKEY 0123456789ABCDEF0123456789ABCDEF01234567\n");
        sessions.answer(b"");
    });
    ("commands through both sessions", 4 * ROUNDS, allocations)
}

fn data_lines_through_both_sessions() -> (&'static str, u64, u64) {
    let mut sessions = Sessions::ready();
    sessions.ask(b"SETKEY 0123456789ABCDEF0123456789ABCDEF01234567\n");
    sessions.answer(b"OK\n");
    sessions.ask(b"SETKEYDESC A+key+is+used.\n");
    sessions.answer(b"OK\n");
    sessions.ask(b"PKDECRYPT\n");
    let line = [b"D ", &[b'x'; 990][..], b"\n"].concat();
    // In pieces that cut lines, as reads do.
    let piece = line.repeat(7);
    let (first, second) = piece.split_at(3333);
    let mut allocations = count(|| {
        sessions.answer(first);
        sessions.answer(second);
    });
    sessions.answer(b"INQUIRE CIPHERTEXT\n");
    allocations += count(|| {
        sessions.ask(first);
        sessions.ask(second);
    });
    ("D lines through both sessions, both ways", 14 * ROUNDS, allocations)
}

fn requests_through_an_ssh_session() -> (&'static str, u64, u64) {
    let now = Instant::now();
    let mut session = ssh::SshSession::new(Policy::default(), Limits::default());
    session.connect_requested(now);
    session.agent_connected();
    let frame = |kind, body: &[u8]| ssh::Frame::new(kind, body).expect("a frame").encode();
    let data = [b"\0\0\0\x03key\0\0\x01\0", &[7; 260][..]].concat();
    let sign = frame(ssh::MessageType::SIGN_REQUEST, &data);
    let refused = frame(ssh::MessageType::ADD_IDENTITY, &[1; 200]);
    let answer = frame(ssh::MessageType::SIGN_RESPONSE, &[2; 300]);
    let mut round = || {
        assert_eq!(session.client_bytes(&sign), sign.len());
        session.agent_took(session.to_agent().len(), now);
        assert_eq!(session.agent_bytes(&answer), answer.len());
        assert_eq!(session.client_bytes(&refused), refused.len());
        assert_eq!(session.to_client().len(), answer.len() + 5);
        session.client_took(session.to_client().len());
    };
    // Until as many uses of the key are remembered as ever.
    (0..10 * ROUNDS).for_each(|_| round());
    ("requests through a session of the ssh lane", 2 * ROUNDS, count(round))
}

fn frames_over_the_mux(what: &'static str, size: usize) -> (&'static str, u64, u64) {
    let config = |end| Config::new(end, Version::Two, &Lane::ALL);
    let mut host = Endpoint::new(config(End::Host)).expect("a host");
    let mut helper = Endpoint::new(config(End::Helper)).expect("a helper");
    let mut wire = Vec::new();
    let id = helper.open(Lane::Gpg).expect("a stream");
    let payload = vec![b'x'; size];
    let allocations = count(|| {
        helper.write(id, &payload).expect("written");
        carry(&mut helper, &mut host, &mut wire);
        read(&mut host, id, size);
        host.write(id, &payload).expect("written");
        carry(&mut host, &mut helper, &mut wire);
        read(&mut helper, id, size);
    });
    (what, 2 * ROUNDS, allocations)
}

fn carry(from: &mut Endpoint, to: &mut Endpoint, wire: &mut Vec<u8>) {
    while from.wants_transmit() {
        wire.clear();
        from.transmit(wire);
        to.receive(wire).expect("received");
        while to.poll_event().is_some() {}
    }
}

fn read(link: &mut Endpoint, id: StreamId, size: usize) {
    let mut read = 0;
    while !link.front(id).is_empty() {
        let part = link.front(id).len();
        link.consume(id, part);
        read += part;
    }
    assert_eq!(read, size);
}

/// One key that may do everything.
fn lent() -> Arc<LentKeys> {
    let keygrip = KeyGrip::parse(b"0123456789ABCDEF0123456789ABCDEF01234567");
    let rights = Rights { sign: Use::OpenPgp, decrypt: Use::OpenPgp };
    Arc::new(keygrip.map(|keygrip| (keygrip, rights)).into_iter().collect())
}

/// Both sessions, joined: what the one gives, the other takes.
struct Sessions {
    request: RequestSession,
    agent: AgentSession,
    now: Instant,
}

impl Sessions {
    fn ready() -> Self {
        let now = Instant::now();
        let mut request = RequestSession::new(Limits::default());
        let mut agent = AgentSession::new(Policy::default(), lent(), Limits::default());
        request.client_connected(now);
        agent.connect_requested(now);
        agent.agent_connected(Opening::none(), now);
        agent.agent_bytes(b"OK hello\n");
        agent.agent_took(agent.to_agent().len(), now);
        let mut sessions = Self { request, agent, now };
        sessions.agent.agent_bytes(b"OK\n");
        sessions.answer(b"");
        assert!(sessions.request.takes_client_bytes());
        sessions
    }

    fn ask(&mut self, bytes: &[u8]) {
        assert_eq!(self.request.client_bytes(bytes), bytes.len());
        let lines = self.request.to_agent();
        assert_eq!(self.agent.client_bytes(lines), lines.len());
        self.request.agent_took(lines.len(), self.now);
        self.agent.agent_took(self.agent.to_agent().len(), self.now);
    }

    fn answer(&mut self, bytes: &[u8]) {
        assert_eq!(self.agent.agent_bytes(bytes), bytes.len());
        let lines = self.agent.to_client();
        assert_eq!(self.request.agent_bytes(lines), lines.len());
        self.agent.client_took(lines.len());
        self.request.client_took(self.request.to_client().len());
    }
}
