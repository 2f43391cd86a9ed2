//! What an agent session is doing, and what a line of the agent means then.

use super::State;
use super::keyinfo_fallback::KeyinfoFallback;
use crate::Secret;
use crate::assuan::{ErrorCode, ResponseLine, content};
use crate::session::SessionError;
use crate::socket_file::Opening;

/// What a session does with the agent's bytes.
#[derive(Debug)]
pub(super) enum Phase {
    /// The socket's opening exchange is under way; what came of the bytes that are due next.
    Opening { opening: Opening, came: Secret<Vec<u8>> },
    /// The greeting is awaited.
    Greeting,
    /// The greeting is held until the socket has proven that it is restricted.
    Proof { greeting: Vec<u8> },
    /// The client talks to the agent.
    Open,
    /// As Open, and the agent waits for data of the client.
    Inquiry,
    /// An inquiry was called off because the gate denied a line in it; the client gets the denial
    /// where the agent's answer would stand.
    DeniedInquiry,
    /// The agent forbade what an older one forbids, and is asked in another way.
    KeyinfoFallback(KeyinfoFallback),
}

/// What a line of the agent means to a session.
pub(super) enum Meaning {
    /// A part of a response, for the client.
    Part,
    /// A line that the client isn't shown.
    Swallowed,
    /// The greeting.
    Greeting,
    /// The socket is restricted.
    Proven,
    /// The end of a response, for the client.
    End { ok: bool },
    /// The agent wants data of the client.
    Inquire,
    /// The end of a command whose inquiry was called off.
    EndOfDenied,
    /// Such a command goes on asking.
    InquireAfterDenied,
    /// A refusal that can be healed.
    Refusal,
    /// What is needed to heal it.
    EndOfFallback { has_key: bool },
}

pub(super) fn judge(
    phase: &Phase,
    healable: bool,
    state: State,
    line: &[u8],
) -> Result<Meaning, SessionError> {
    let kind = ResponseLine::parse(line);
    let size = content(line).len();
    match phase {
        Phase::Opening { .. } | Phase::Greeting => match kind {
            Ok(ResponseLine::Ok) => Ok(Meaning::Greeting),
            Ok(ResponseLine::Err(code)) => Err(SessionError::GreetingErr(code)),
            Ok(_) | Err(_) => Err(SessionError::NotAGreeting { size }),
        },
        Phase::Proof { .. } => match kind? {
            ResponseLine::Ok => Ok(Meaning::Proven),
            ResponseLine::Comment | ResponseLine::Blank => Ok(Meaning::Swallowed),
            ResponseLine::Err(_)
            | ResponseLine::Status
            | ResponseLine::Data
            | ResponseLine::Inquire
            | ResponseLine::End => Err(SessionError::NotRestricted),
        },
        Phase::Open => match kind? {
            line if line.is_ignored() => Ok(Meaning::Part),
            _ if state == State::Ready => Err(SessionError::Unasked { size }),
            ResponseLine::Err(Some(ErrorCode::FORBIDDEN)) if healable => Ok(Meaning::Refusal),
            ResponseLine::Inquire => Ok(Meaning::Inquire),
            line if line.is_complete() => Ok(Meaning::End { ok: line == ResponseLine::Ok }),
            _ => Ok(Meaning::Part),
        },
        Phase::KeyinfoFallback(_) => match kind? {
            ResponseLine::Ok => Ok(Meaning::EndOfFallback { has_key: true }),
            ResponseLine::Err(_) => Ok(Meaning::EndOfFallback { has_key: false }),
            ResponseLine::Inquire => Err(SessionError::NestedInquiry),
            ResponseLine::Status
            | ResponseLine::Data
            | ResponseLine::End
            | ResponseLine::Comment
            | ResponseLine::Blank => Ok(Meaning::Swallowed),
        },
        Phase::Inquiry => match kind? {
            ResponseLine::Inquire => Err(SessionError::NestedInquiry),
            line if line.is_complete() => Ok(Meaning::End { ok: line == ResponseLine::Ok }),
            _ => Ok(Meaning::Part),
        },
        Phase::DeniedInquiry => match kind? {
            ResponseLine::Inquire => Ok(Meaning::InquireAfterDenied),
            line if line.is_complete() => Ok(Meaning::EndOfDenied),
            _ => Ok(Meaning::Swallowed),
        },
    }
}
