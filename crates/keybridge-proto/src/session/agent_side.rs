//! What whoever moves the bytes of a session on the host needs of it, whatever its lane.

use std::fmt::Display;
use std::time::Instant;

use super::core::Machine;
use super::{AgentSession, Cleanup};
use crate::ssh;

/// A session of the host's side. How the agent is reached differs between lanes; from then on the
/// sessions of all lanes are driven alike.
pub trait AgentSide {
    /// The agent can't be reached.
    fn agent_unreachable(&mut self, reason: String);
    /// Whether bytes of the client can be taken now. What comes at other times has to wait.
    fn takes_client_bytes(&self) -> bool;
    /// Takes bytes of the client; says how many.
    fn client_bytes(&mut self, input: &[u8]) -> usize;
    /// The client's input is at its end, and all of it was taken.
    fn client_eof(&mut self);
    /// The client hung up.
    fn client_closed(&mut self, had_error: bool);
    /// Whether bytes of the agent can be taken now.
    fn takes_agent_bytes(&self) -> bool;
    /// Takes bytes of the agent; says how many.
    fn agent_bytes(&mut self, input: &[u8]) -> usize;
    /// The agent's connection closed, and all of its bytes were taken.
    fn agent_closed(&mut self, had_error: bool);
    /// What is to be sent to the agent.
    fn to_agent(&self) -> &[u8];
    /// The agent's socket took so many bytes.
    fn agent_took(&mut self, count: usize, now: Instant);
    /// What is to be sent to the client.
    fn to_client(&self) -> &[u8];
    /// The way to the client took so many bytes.
    fn client_took(&mut self, count: usize);
    /// When [`Self::timeout`] wants to be called.
    fn deadline(&self) -> Option<Instant>;
    /// Time has passed.
    fn timeout(&mut self, now: Instant);
    /// Whether nothing is left but to clean up.
    fn is_over(&self) -> bool;
    /// The work of ending the session, once.
    fn cleanup(&mut self) -> Option<Cleanup>;
    /// How the work of ending the session went.
    fn cleanup_done(&mut self, outcome: Result<(), &str>);
    /// Where the session stands, for a log.
    fn state_name(&self) -> &'static str;
    /// The first error, if there was one.
    fn error(&self) -> Option<&dyn Display>;
}

macro_rules! agent_side {
    ($session:ty) => {
        impl AgentSide for $session {
            fn agent_unreachable(&mut self, reason: String) {
                self.agent_unreachable(reason);
            }

            fn takes_client_bytes(&self) -> bool {
                self.takes_client_bytes()
            }

            fn client_bytes(&mut self, input: &[u8]) -> usize {
                self.client_bytes(input)
            }

            fn client_eof(&mut self) {
                self.client_eof();
            }

            fn client_closed(&mut self, had_error: bool) {
                self.client_closed(had_error);
            }

            fn takes_agent_bytes(&self) -> bool {
                self.takes_agent_bytes()
            }

            fn agent_bytes(&mut self, input: &[u8]) -> usize {
                self.agent_bytes(input)
            }

            fn agent_closed(&mut self, had_error: bool) {
                self.agent_closed(had_error);
            }

            fn to_agent(&self) -> &[u8] {
                self.to_agent()
            }

            fn agent_took(&mut self, count: usize, now: Instant) {
                self.agent_took(count, now);
            }

            fn to_client(&self) -> &[u8] {
                self.to_client()
            }

            fn client_took(&mut self, count: usize) {
                self.client_took(count);
            }

            fn deadline(&self) -> Option<Instant> {
                self.deadline()
            }

            fn timeout(&mut self, now: Instant) {
                self.timeout(now);
            }

            fn is_over(&self) -> bool {
                !self.state().is_live()
            }

            fn cleanup(&mut self) -> Option<Cleanup> {
                self.cleanup()
            }

            fn cleanup_done(&mut self, outcome: Result<(), &str>) {
                self.cleanup_done(outcome);
            }

            fn state_name(&self) -> &'static str {
                self.state().name()
            }

            fn error(&self) -> Option<&dyn Display> {
                self.error().map(|error| error as &dyn Display)
            }
        }
    };
}

agent_side!(AgentSession);
agent_side!(ssh::Session);
