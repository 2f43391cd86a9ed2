//! Nothing secret reaches a log, at the finest level.
#![allow(clippy::unwrap_used, reason = "a test that lacks a part fails")]

mod agent_home;

use std::io;
use std::sync::{Arc, Mutex};

use agent_home::{Home, local};
use keybridge::agent::AgentDialer;
use keybridge::interface::{CommandInterface, Settings};
use keybridge_proto::gate::AgentSocket;
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

#[test]
fn no_data_and_no_nonce_is_logged_at_trace_level() {
    let home = Home::with_key("log@test");
    let grip = home.keygrip("log@test");
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log.clone())
        .with_max_level(tracing::Level::TRACE)
        .finish();
    let logging = subscriber.set_default();
    local(async {
        let dialer = AgentDialer::find(home.gnupg(), AgentSocket::Extra).await.unwrap();
        let interface = CommandInterface::new(home.gnupg(), dialer, Settings::default());
        let id = interface.connect_agent(None).await.unwrap().session_id.to_string();
        let block = format!("SETKEY {grip}\nSETKEYDESC PLANTED-1\nPKDECRYPT\nD PLANTED-2\nEND\n");
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
    drop(logging);
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert!(log.contains("WaitingForAgent"), "the trace is on");
    assert!(!log.contains("PLANTED"), "{log}");
}
