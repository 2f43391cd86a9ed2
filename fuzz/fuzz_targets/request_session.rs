//! The request session between a hostile client and a hostile host.
#![no_main]

use std::time::{Duration, Instant};

use arbitrary::Arbitrary;
use keybridge_proto::session::{Limits, RequestSession, Session};
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
enum Happening<'a> {
    ClientBytes(&'a [u8]),
    AgentBytes(&'a [u8]),
    AgentTook(u16),
    ClientTook(u16),
    AgentConnected,
    AgentUnreachable,
    ClientEof,
    ClientClosed(bool),
    AgentClosed(bool),
    Pass(u8),
    CleanedUp(bool),
}

/// Two outboxes of 16 KiB, a line over, and the farewell.
const BOUND: usize = 16 * 1024 + 2048;

fuzz_target!(|happenings: Vec<Happening<'_>>| {
    let mut now = Instant::now();
    let mut session = RequestSession::new(Limits::default());
    session.client_connected(now);
    let mut cleanups = 0;
    for happening in happenings {
        match happening {
            Happening::ClientBytes(bytes) => {
                assert!(session.client_bytes(bytes) <= bytes.len());
            }
            Happening::AgentBytes(bytes) => assert!(session.agent_bytes(bytes) <= bytes.len()),
            Happening::AgentTook(count) => {
                session.agent_took(usize::from(count).min(session.to_agent().len()), now);
            }
            Happening::ClientTook(count) => {
                session.client_took(usize::from(count).min(session.to_client().len()));
            }
            Happening::AgentConnected => session.agent_connected(now),
            Happening::AgentUnreachable => session.agent_unreachable("fuzz"),
            Happening::ClientEof => session.client_eof(),
            Happening::ClientClosed(had_error) => session.client_closed(had_error),
            Happening::AgentClosed(had_error) => session.agent_closed(had_error),
            Happening::Pass(seconds) => {
                now += Duration::from_secs(seconds.into());
                session.timeout(now);
            }
            Happening::CleanedUp(well) => {
                if session.cleanup().is_some() {
                    cleanups += 1;
                    session.cleanup_done(if well { Ok(()) } else { Err("fuzz") });
                }
            }
        }
        assert!(session.to_agent().len() <= BOUND && session.to_client().len() <= BOUND);
        assert!(cleanups <= 1);
    }
});
