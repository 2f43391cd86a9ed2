//! A client of the gpg lane that has chosen a key, and its agent, stepped by hand.

use std::time::Instant;

use keybridge_proto::session::{AgentSession, Session};
use keybridge_proto::socket_file::Opening;

pub struct Client {
    pub session: AgentSession,
    pub now: Instant,
}

impl Client {
    /// A client of this session that has chosen this key.
    pub fn of(session: AgentSession, key: &str, now: Instant) -> Self {
        let mut client = Self { session, now };
        client.session.connect_requested(now);
        client.session.agent_connected(Opening::none(), now);
        client.answers("OK hello\n");
        if client.sent() == "GETINFO restricted\n" {
            client.answers("OK\n");
        }
        let choose = format!("SIGKEY {key}\n");
        assert_eq!(client.asks(&choose), choose);
        client.answers("OK\n");
        client
    }

    /// Time passes, or the session was woken. Gives back what the agent gets then.
    pub fn sent(&mut self) -> String {
        self.session.timeout(self.now);
        let sent = String::from_utf8(self.session.to_agent().to_vec()).unwrap();
        self.session.agent_took(sent.len(), self.now);
        sent
    }

    /// What the agent gets when the client writes that. As gpg does, it describes a key before it uses it.
    pub fn asks(&mut self, line: &str) -> String {
        if line.starts_with("PK") {
            assert_eq!(self.says("SETKEYDESC x\n").lines().count(), 1);
            assert_eq!(self.answers("OK\n"), "OK\n");
        }
        self.says(line)
    }

    /// What the agent gets when the client writes just that.
    pub fn says(&mut self, line: &str) -> String {
        self.session.timeout(self.now);
        assert_eq!(self.session.client_bytes(line.as_bytes()), line.len());
        self.sent()
    }

    /// What the client gets when the agent writes that.
    pub fn answers(&mut self, line: &str) -> String {
        self.session.timeout(self.now);
        assert_eq!(self.session.agent_bytes(line.as_bytes()), line.len());
        self.gets()
    }

    pub fn gets(&mut self) -> String {
        let got = String::from_utf8(self.session.to_client().to_vec()).unwrap();
        self.session.client_took(got.len());
        got
    }
}
