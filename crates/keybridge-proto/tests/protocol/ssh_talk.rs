//! A session of the ssh lane between a client and an agent whose answers are placed by hand.

use std::collections::VecDeque;
use std::time::Instant;

use keybridge_proto::gate::Policy;
use keybridge_proto::session::{Limits, Session};
use keybridge_proto::ssh::{Frame, MessageType, SshSession};

pub const FAILURE: [u8; 5] = [0, 0, 0, 1, 5];
pub const EMPTY_LIST: [u8; 9] = [0, 0, 0, 5, 12, 0, 0, 0, 0];

/// A client, the session, and an agent; bytes move at most `chunk` at a time.
pub struct Talk {
    pub now: Instant,
    pub chunk: usize,
    pub session: SshSession,
    /// What the client has written and the session hasn't taken.
    unsent: Vec<u8>,
    pub client_got: Vec<u8>,
    pub agent_got: Vec<u8>,
    /// What the agent says to each request, as soon as the whole of it has come.
    pub answers: VecDeque<Vec<u8>>,
    /// How much of what the agent got was answered.
    answered: usize,
    unread: Vec<u8>,
}

impl Talk {
    pub fn new(policy: Policy, chunk: usize) -> Self {
        Self {
            now: Instant::now(),
            chunk,
            session: SshSession::new(policy, Limits::default()),
            unsent: Vec::new(),
            client_got: Vec::new(),
            agent_got: Vec::new(),
            answers: VecDeque::new(),
            answered: 0,
            unread: Vec::new(),
        }
    }

    pub fn connected(policy: Policy, chunk: usize) -> Self {
        let mut talk = Self::new(policy, chunk);
        talk.connect();
        talk
    }

    pub fn connect(&mut self) {
        self.session.connect_requested(self.now);
        self.session.agent_connected();
    }

    /// Forgets what was said, once all of it was answered.
    pub fn forget(&mut self) {
        self.client_got.clear();
        self.agent_got.clear();
        self.answers.clear();
        self.answered = 0;
    }

    /// The client writes, and everything moves until nothing does.
    pub fn write(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        self.run();
    }

    /// The agent says its next answer, whatever has come.
    pub fn answer(&mut self) {
        self.unread.extend(self.answers.pop_front().unwrap());
        self.run();
    }

    pub fn run(&mut self) {
        while self.step() {}
        if self.session.cleanup().is_some() {
            self.session.cleanup_done(Ok::<(), String>(()));
        }
    }

    fn step(&mut self) -> bool {
        let mut moved = 0;
        if self.session.takes_client_bytes() {
            let part = self.chunk.min(self.unsent.len());
            let taken = self.session.client_bytes(&self.unsent[..part]);
            self.unsent.drain(..taken);
            moved += taken;
        }
        let part = self.chunk.min(self.session.to_agent().len());
        self.agent_got.extend_from_slice(&self.session.to_agent()[..part]);
        self.session.agent_took(part, self.now);
        moved += part;
        while let Some((_, size)) = Frame::parse(&self.agent_got[self.answered..]).unwrap()
            && let Some(answer) = self.answers.pop_front()
        {
            self.answered += size;
            self.unread.extend(answer);
        }
        if self.session.takes_agent_bytes() {
            let part = self.chunk.min(self.unread.len());
            let taken = self.session.agent_bytes(&self.unread[..part]);
            self.unread.drain(..taken);
            moved += taken;
        }
        let part = self.chunk.min(self.session.to_client().len());
        self.client_got.extend_from_slice(&self.session.to_client()[..part]);
        self.session.client_took(part);
        moved + part > 0
    }
}

pub fn frame(kind: MessageType, body: &[u8]) -> Vec<u8> {
    Frame::new(kind, body).unwrap().encode()
}

pub fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

pub fn sign(key: &[u8], data: &[u8]) -> Vec<u8> {
    frame(MessageType::SIGN_REQUEST, &[&string(key)[..], &string(data), &[0; 4]].concat())
}

pub fn extension(name: &[u8], rest: &[u8]) -> Vec<u8> {
    frame(MessageType::EXTENSION, &[&string(name)[..], rest].concat())
}

/// What a login has signed.
pub fn login() -> Vec<u8> {
    [&string(&[9; 32])[..], &[50], &string(b"user"), &string(b"ssh-connection")].concat()
}

/// What ssh has signed when it logs in with a key.
pub fn login_with(key: &[u8]) -> Vec<u8> {
    let rest = [&string(b"publickey")[..], &[1], &string(b"ssh-ed25519"), &string(key)].concat();
    [login(), rest].concat()
}

/// What `ssh-keygen -Y sign` has signed.
pub fn message(namespace: &[u8]) -> Vec<u8> {
    [b"SSHSIG", &string(namespace)[..], &string(b""), &string(b"sha512"), &string(&[4; 64])]
        .concat()
}
