//! Both sessions joined, between a client and a stand-in for gpg-agent, stepped by hand.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keybridge_proto::gate::{KeyGrip, LentKeys, Policy, Rights, Use};
use keybridge_proto::session::{AgentSession, Limits, RequestSession, Session, agent, request};
use keybridge_proto::socket_file::Opening;

/// A client, both sessions, and an agent; bytes move at most `chunk` at a time.
pub struct Chain {
    pub now: Instant,
    pub chunk: usize,
    pub request: RequestSession,
    pub agent: AgentSession,
    pub gpg_agent: StandIn,
    /// What the client has written and the request session hasn't taken.
    pub unsent: Vec<u8>,
    /// What the client has read.
    pub read: Vec<u8>,
    /// What is on the link, each way.
    pub to_host: Vec<u8>,
    pub to_target: Vec<u8>,
}

impl Chain {
    /// A chain whose client has connected, before anything moved.
    pub fn new(policy: Policy, chunk: usize) -> Self {
        let now = Instant::now();
        let mut chain = Self {
            now,
            chunk,
            request: RequestSession::new(Limits::default()),
            agent: AgentSession::new(policy, lent(), Limits::default()),
            gpg_agent: StandIn::default(),
            unsent: Vec::new(),
            read: Vec::new(),
            to_host: Vec::new(),
            to_target: Vec::new(),
        };
        chain.request.client_connected(now);
        chain.request.agent_connected(now);
        chain.agent.connect_requested(now);
        chain.agent.agent_connected(Opening::none(), now);
        chain.gpg_agent.greet();
        chain
    }

    /// A chain after the greeting, with a lent key in force that is described. What the client has read is forgotten.
    pub fn greeted(policy: Policy, chunk: usize) -> Self {
        let mut chain = Self::new(policy, chunk);
        chain.run();
        assert_eq!(chain.read, GREETING);
        assert_eq!(chain.request.state(), request::State::Ready);
        assert_eq!(chain.agent.state(), agent::State::Ready);
        chain.write(format!("SETKEY {KEY}\nSETKEYDESC x\n").as_bytes());
        assert_eq!(chain.read, [GREETING, b"OK\nOK\n"].concat());
        chain.read.clear();
        chain.gpg_agent.lines.clear();
        chain
    }

    /// The client writes, and everything moves until nothing does.
    pub fn write(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        self.run();
    }

    pub fn pass(&mut self, time: Duration) {
        self.now += time;
        self.request.timeout(self.now);
        self.agent.timeout(self.now);
        self.run();
    }

    pub fn run(&mut self) {
        while self.step() {}
    }

    fn step(&mut self) -> bool {
        let mut moved = false;
        if self.request.takes_client_bytes() {
            let part = self.chunk.min(self.unsent.len());
            let taken = self.request.client_bytes(&self.unsent[..part]);
            moved |= taken > 0;
            self.unsent.drain(..taken);
        }
        let part = self.chunk.min(self.request.to_agent().len());
        self.to_host.extend_from_slice(&self.request.to_agent()[..part]);
        self.request.agent_took(part, self.now);
        moved |= part > 0;

        if self.agent.takes_client_bytes() {
            let part = self.chunk.min(self.to_host.len());
            let taken = self.agent.client_bytes(&self.to_host[..part]);
            moved |= taken > 0;
            self.to_host.drain(..taken);
        }
        let part = self.chunk.min(self.agent.to_agent().len());
        self.gpg_agent.receive(&self.agent.to_agent()[..part]);
        self.agent.agent_took(part, self.now);
        moved |= part > 0;

        if self.agent.takes_agent_bytes() {
            let part = self.chunk.min(self.gpg_agent.out.len());
            let taken = self.agent.agent_bytes(&self.gpg_agent.out[..part]);
            moved |= taken > 0;
            self.gpg_agent.out.drain(..taken);
        }
        if self.gpg_agent.closed && self.gpg_agent.out.is_empty() {
            self.agent.agent_closed(false);
        }
        let part = self.chunk.min(self.agent.to_client().len());
        self.to_target.extend_from_slice(&self.agent.to_client()[..part]);
        self.agent.client_took(part);
        moved |= part > 0;

        if self.request.takes_agent_bytes() {
            let part = self.chunk.min(self.to_target.len());
            let taken = self.request.agent_bytes(&self.to_target[..part]);
            moved |= taken > 0;
            self.to_target.drain(..taken);
        }
        let part = self.chunk.min(self.request.to_client().len());
        self.read.extend_from_slice(&self.request.to_client()[..part]);
        self.request.client_took(part);
        moved |= part > 0;

        if self.agent.to_client().is_empty() && self.agent.cleanup().is_some() {
            self.agent.cleanup_done(Ok::<(), String>(()));
            moved = true;
        }
        if self.agent.state() == agent::State::Disconnected && self.to_target.is_empty() {
            self.request.agent_closed(false);
        }
        if self.request.to_client().is_empty() && self.request.cleanup().is_some() {
            self.request.cleanup_done(Ok::<(), String>(()));
            self.agent.client_closed(false);
            moved = true;
        }
        moved
    }
}

/// The key that is lent.
pub const KEY: &str = "0123456789ABCDEF0123456789ABCDEF01234567";

/// One key that may do everything.
pub fn lent() -> Arc<LentKeys> {
    let rights = Rights { sign: Use::OpenPgp, decrypt: Use::OpenPgp };
    Arc::new([(KeyGrip::parse(KEY.as_bytes()).unwrap(), rights)].into_iter().collect())
}

pub const GREETING: &[u8] = b"OK Pleased to meet you, process 42\n";
pub const FORBIDDEN: &[u8] = b"ERR 67109115 Forbidden <GPG Agent>\n";
pub const UNKNOWN: &[u8] = b"ERR 67109139 Unknown IPC command <GPG Agent>\n";
pub const UNEXPECTED: &[u8] = b"ERR 67109138 Unexpected IPC command <GPG Agent>\n";
pub const TOO_MUCH_DATA: &[u8] = b"ERR 67109137 Too much data for IPC layer <GPG Agent>\n";
pub const CANCELED: &[u8] = b"ERR 67109141 IPC call has been cancelled <GPG Agent>\n";

/// Stands in for gpg-agent where every byte has to be placed by hand: reads lines and inquiries as
/// libassuan does, and notes what reached it. It even obeys `GET_PASSPHRASE`, so that a test sees
/// when the gate lets one through.
pub struct StandIn {
    /// Data above this ends an inquiry at once.
    pub most_data: usize,
    partial: Vec<u8>,
    pub lines: Vec<Vec<u8>>,
    pub out: Vec<u8>,
    pub closed: bool,
    /// Inquiries that are still to be asked, the current one first.
    inquiries: Vec<&'static str>,
    data: Vec<u8>,
}

impl Default for StandIn {
    fn default() -> Self {
        Self {
            most_data: usize::MAX,
            partial: Vec::new(),
            lines: Vec::new(),
            out: Vec::new(),
            closed: false,
            inquiries: Vec::new(),
            data: Vec::new(),
        }
    }
}

impl StandIn {
    pub fn greet(&mut self) {
        self.out.extend_from_slice(GREETING);
    }

    pub fn receive(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.partial.push(byte);
            if byte == b'\n' {
                let line = std::mem::take(&mut self.partial);
                self.lines.push(line.clone());
                let line = line.strip_suffix(b"\n").unwrap();
                self.line(line.strip_suffix(b"\r").unwrap_or(line));
            }
        }
    }

    /// The lines that are not data, blank or comments, as text.
    pub fn commands(&self) -> Vec<String> {
        let text = |line: &Vec<u8>| String::from_utf8_lossy(line).trim_end().to_owned();
        let skip =
            |line: &String| line.is_empty() || line.starts_with(['#']) || line.starts_with("D ");
        self.lines.iter().map(text).filter(|line| !skip(line)).collect()
    }

    fn line(&mut self, line: &[u8]) {
        if line.is_empty() || line.starts_with(b"#") {
            return;
        }
        if self.inquiries.is_empty() { self.command(line) } else { self.inquiry_line(line) }
    }

    fn command(&mut self, line: &[u8]) {
        let end = line.iter().position(|byte| b" \t\0".contains(byte)).unwrap_or(line.len());
        match line[..end].to_ascii_uppercase().as_slice() {
            b"NOP" | b"RESET" | b"SETKEY" | b"SETKEYDESC" => self.out.extend_from_slice(b"OK\n"),
            b"GETINFO" if line.ends_with(b"restricted") => self.out.extend_from_slice(b"OK\n"),
            b"GETINFO" => self.out.extend_from_slice(b"D 2.2.40\nOK\n"),
            b"PKDECRYPT" if line.ends_with(b"--kem=PQC-PGP") => self.ask(vec!["A", "B", "C"]),
            b"PKDECRYPT" => self.ask(vec!["CIPHERTEXT"]),
            b"PKSIGN" => self.out.extend_from_slice(b"S PROGRESS 1\n"),
            b"GET_PASSPHRASE" => self.out.extend_from_slice(b"OK hunter2\n"),
            b"BYE" => {
                self.out.extend_from_slice(b"OK closing connection\n");
                self.closed = true;
            }
            _ => self.out.extend_from_slice(UNKNOWN),
        }
    }

    fn ask(&mut self, inquiries: Vec<&'static str>) {
        self.inquiries = inquiries;
        self.data.clear();
        self.ask_next();
    }

    fn ask_next(&mut self) {
        if let Some(name) = self.inquiries.first() {
            self.out.extend_from_slice(format!("S ASKING {name}\nINQUIRE {name}\n").as_bytes());
        } else {
            self.out.extend_from_slice(b"D ");
            self.out.extend_from_slice(&self.data);
            self.out.extend_from_slice(b"\nOK\n");
        }
    }

    fn inquiry_line(&mut self, line: &[u8]) {
        let upper = line.to_ascii_uppercase();
        if let Some(data) = line.strip_prefix(b"D ") {
            self.data.extend_from_slice(data);
            if self.data.len() > self.most_data {
                self.inquiries.clear();
                self.out.extend_from_slice(TOO_MUCH_DATA);
            }
        } else if upper == b"END" || upper.starts_with(b"END ") {
            self.inquiries.remove(0);
            self.ask_next();
        } else {
            self.inquiries.clear();
            self.out.extend_from_slice(if line.starts_with(b"CAN") {
                CANCELED
            } else {
                UNEXPECTED
            });
        }
    }
}

/// Sends `bytes` in every way of cutting them in two, and in chunks of every size; the client reads
/// `answer`, and the commands that reach the agent are `commands`.
pub fn exchange(bytes: &[u8], answer: &[u8], commands: &[&str]) {
    let check = |chain: &Chain, how: &str| {
        let read = String::from_utf8_lossy(&chain.read);
        assert_eq!(read, String::from_utf8_lossy(answer), "{how}");
        assert_eq!(chain.gpg_agent.commands(), commands, "{how}");
    };
    for chunk in 1..=bytes.len() {
        let mut chain = Chain::greeted(Policy::default(), chunk);
        chain.write(bytes);
        check(&chain, &format!("chunks of {chunk}"));
    }
    for cut in 0..=bytes.len() {
        let mut chain = Chain::greeted(Policy::default(), usize::MAX);
        chain.write(&bytes[..cut]);
        chain.write(&bytes[cut..]);
        check(&chain, &format!("cut at {cut}"));
    }
}

/// A session whose agent has greeted, with a lent key in force that is described.
pub fn ready_agent_session(policy: Policy) -> AgentSession {
    let now = Instant::now();
    let mut session = AgentSession::new(policy, lent(), Limits::default());
    session.connect_requested(now);
    session.agent_connected(Opening::none(), now);
    session.agent_bytes(b"OK hello\n");
    session.agent_took(19, now);
    session.agent_bytes(b"OK\n");
    for line in [format!("SETKEY {KEY}\n").as_bytes(), b"SETKEYDESC x\n"] {
        session.client_bytes(line);
        session.agent_took(usize::MAX, now);
        session.agent_bytes(b"OK\n");
        session.client_took(usize::MAX);
    }
    assert_eq!(session.state(), agent::State::Ready);
    session
}
