//! Nothing secret reaches a log, at the finest level.
//!
//! A program of its own: tracing asks the thread that comes first to a place whether it is logged, and
//! other tests' threads, which log nothing, would silence it for these.
#![allow(dead_code, unreachable_pub, reason = "it uses a part of what the other suite has")]
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

#[path = "agent_side/agent_home.rs"]
mod agent_home;
#[path = "agent_side/bridge_helper.rs"]
mod bridge_helper;

use std::io;
use std::sync::{Arc, Mutex};

use agent_home::{FoundAgent, Home, SshHome, agent, gnupg, local};
use bridge_helper::{Pair, idle, ssh_pair};
use keybridge::agent::AgentDialer;
use keybridge::git::GitKeys;
use keybridge::interface::{CommandInterface, Settings};
use keybridge_proto::Lane;
use keybridge_proto::git::{self, Answer, Format};
use keybridge_proto::session::Operations;
use keybridge_proto::ssh::{Frame, MessageType, Request, SelectionInForce};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Log {
    /// Logs everything of a test to memory, and gives it back as text.
    fn of(test: impl FnOnce()) -> String {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(log.clone())
            .with_max_level(tracing::Level::TRACE)
            .with_ansi(false)
            .finish();
        let logging = subscriber.set_default();
        test();
        drop(logging);
        String::from_utf8(log.0.lock().unwrap().clone()).unwrap()
    }
}

#[test]
fn no_data_and_no_nonce_is_logged_at_trace_level() {
    let home = Home::with_key("log@test");
    let grip = home.keygrip_of("log@test");
    let log = Log::of(|| {
        local(async {
            let interface =
                CommandInterface::new(gnupg(&home), agent(&home).await, Settings::default());
            let id = interface.connect_agent(None).await.unwrap().session_id.to_string();
            let block =
                format!("SETKEY {grip}\nSETKEYDESC PLANTED-1\nPKDECRYPT\nD PLANTED-2\nEND\n");
            interface.send_commands(&id, &block).await.unwrap();
            // A line that can't be Assuan ends the session; what it was isn't told.
            interface.send_commands(&id, "PLANTED-3\0").await.unwrap_err();
            // Nobody listens at this port, and the nonce has no business in the error.
            let file = home.file("socket-file");
            std::fs::write(&file, b"1\nPLANTED-4xxxxxxx").unwrap();
            let error = AgentDialer::at(&file).dial().await.unwrap_err();
            tracing::error!(%error, ?error, "dialling");
            std::fs::write(&file, b"PLANTED-5").unwrap();
            let error = AgentDialer::at(&file).dial().await.unwrap_err();
            tracing::error!(%error, ?error, "dialling");
        });
    });
    assert!(log.contains("WaitingForAgent"), "the trace is on");
    assert!(!log.contains("PLANTED"), "{log}");
}

#[test]
fn of_the_ssh_lane_verbs_and_sizes_are_logged_and_errors_aloud() {
    let home = SshHome::with_key();
    let log = Log::of(|| {
        local(async {
            let Pair { bridge, helper } = ssh_pair(home.dialer(), |_| {}).await;
            let client = helper.client_of(Lane::Ssh);
            client.request(&Request::LIST).await.unwrap();
            for kind in [
                MessageType::LOCK,
                MessageType::ADD_IDENTITY,
                MessageType::SIGN_REQUEST,
                MessageType::EXTENSION,
            ] {
                let frame = Frame::new(kind, b"\0\0\0\x09PLANTED-1\0\0\0\x09PLANTED-2\0\0\0\0");
                client.request(&frame.unwrap().encode()).await.unwrap();
            }
            for _ in 0..5 {
                let broken = helper.client_of(Lane::Ssh);
                broken.request(b"\xff\0\0\0PLANTED-3").await.unwrap();
                drop(broken);
                idle_but_one(&bridge).await;
            }
            drop(client);
            idle(&bridge).await;
        });
    });
    assert!(!log.contains("PLANTED"), "{log}");
    for line in [
        "from the client: LOCK (30 bytes)",
        "LOCK (30 bytes) is refused with FAILURE",
        "EXTENSION (30 bytes) is refused with EXTENSION_FAILURE",
        "from the agent: IDENTITIES_ANSWER (",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    assert!(log.contains("keybridge::ssh_agent: the ssh-agent: /tmp/"), "{log}");
    let failures = log.lines().filter(|line| line.contains("a session failed")).collect::<Vec<_>>();
    assert_eq!(failures.len(), 5, "{log}");
    let aloud = failures.iter().filter(|line| line.contains("INFO")).count();
    assert_eq!(aloud, 1, "a line a minute at most: {failures:?}");
    assert!(failures[0].contains("expected a frame of at most 262144 bytes"), "{failures:?}");
}

#[test]
fn commits_that_nobody_can_sign_never_fill_the_log() {
    let home = SshHome::with_key();
    let key = home.public_key("key").into();
    home.kill();
    let log = Log::of(|| {
        local(async {
            let keys = GitKeys { openpgp: None, ssh: Some(home.dialer()) };
            let signer = keys.signer(&SelectionInForce::default(), &Operations::default());
            let request = git::Request { format: Format::Ssh, key, object: Vec::new() };
            for _ in 0..5 {
                let answer = signer.answer(&request).await;
                assert!(matches!(answer, Answer::NotLent(_)), "{answer:?}");
            }
        });
    });
    let aloud = log.lines().filter(|line| !line.contains("DEBUG") && !line.contains("TRACE"));
    assert_eq!(aloud.count(), 1, "that there is no agent: {log}");
}

/// Waits until only one client is left.
async fn idle_but_one(bridge: &keybridge::bridge::Bridge) {
    while bridge.stats().ssh.open > 1 {
        tokio::task::yield_now().await;
    }
}
