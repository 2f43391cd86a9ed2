//! What a line of the agent means to a session.

use crate::assuan::{ErrorCode, ResponseLine, content};
use crate::gate::KeyOperation;
use crate::session::SessionError;
use crate::session::agent::State;
use crate::session::agent_machine::Phase;

/// What a line of the agent means to a session.
pub(crate) enum Meaning {
    /// A part of a response, for the client.
    Part,
    /// A line that the client doesn't see.
    Hidden,
    /// The greeting.
    Greeting,
    /// The socket is restricted.
    Proven,
    /// The end of a response, for the client.
    End { ok: bool },
    /// The end of a response with an inquiry.
    EndOfInquired { ok: bool },
    /// The end of a response, inside an inquiry that nobody has ended.
    EarlyEnd,
    /// The agent has read everything that it was sent.
    InStep,
    /// The operation that waits has a text for its dialog.
    Described(KeyOperation),
    /// The agent wants data of the client.
    Inquire,
    /// The end of a command whose inquiry was cancelled.
    EndOfDenied,
    /// Such a command asks for more data.
    InquireAfterDenied,
    /// The agent forbids `KEYINFO` for this key, and can be asked in another way.
    KeyinfoForbidden([u8; 40]),
    /// The answer to that other question.
    EndOfFallback { has_key: bool },
}

pub(crate) fn judge(phase: &Phase, state: State, line: &[u8]) -> Result<Meaning, SessionError> {
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
            ResponseLine::Comment | ResponseLine::Blank => Ok(Meaning::Hidden),
            ResponseLine::Err(_)
            | ResponseLine::Status
            | ResponseLine::Data
            | ResponseLine::Inquire
            | ResponseLine::End => Err(SessionError::NotRestricted),
        },
        Phase::Open { keyinfo } => match kind? {
            line if line.is_ignored() => Ok(Meaning::Part),
            _ if state == State::Ready => Err(SessionError::Unasked { size }),
            ResponseLine::Err(Some(ErrorCode::FORBIDDEN)) if let Some(keygrip) = keyinfo => {
                Ok(Meaning::KeyinfoForbidden(*keygrip))
            }
            ResponseLine::Inquire => Ok(Meaning::Inquire),
            line if line.is_complete() => Ok(Meaning::End { ok: line == ResponseLine::Ok }),
            _ => Ok(Meaning::Part),
        },
        // The agent's bytes aren't taken then.
        Phase::Turn { .. } => Err(SessionError::Unasked { size }),
        Phase::Describing(kind_of_operation) => match kind? {
            ResponseLine::Ok => Ok(Meaning::Described(*kind_of_operation)),
            ResponseLine::Err(_) => Ok(Meaning::End { ok: false }),
            ResponseLine::Inquire => Err(SessionError::NestedInquiry),
            ResponseLine::Status
            | ResponseLine::Data
            | ResponseLine::End
            | ResponseLine::Comment
            | ResponseLine::Blank => Ok(Meaning::Hidden),
        },
        Phase::KeyinfoFallback(_) => match kind? {
            ResponseLine::Ok => Ok(Meaning::EndOfFallback { has_key: true }),
            ResponseLine::Err(_) => Ok(Meaning::EndOfFallback { has_key: false }),
            ResponseLine::Inquire => Err(SessionError::NestedInquiry),
            ResponseLine::Status
            | ResponseLine::Data
            | ResponseLine::End
            | ResponseLine::Comment
            | ResponseLine::Blank => Ok(Meaning::Hidden),
        },
        Phase::Inquiry => match kind? {
            ResponseLine::Inquire => Err(SessionError::NestedInquiry),
            line if line.is_complete() => Ok(Meaning::EarlyEnd),
            _ => Ok(Meaning::Part),
        },
        Phase::EndedInquiry => match kind? {
            ResponseLine::Inquire => Ok(Meaning::Inquire),
            line if line.is_complete() => {
                Ok(Meaning::EndOfInquired { ok: line == ResponseLine::Ok })
            }
            _ => Ok(Meaning::Part),
        },
        Phase::InStep => match kind? {
            ResponseLine::Ok => Ok(Meaning::InStep),
            line if line.is_ignored() => Ok(Meaning::Hidden),
            _ => Err(SessionError::InquiryEndedEarly),
        },
        Phase::DeniedInquiry(_) => match kind? {
            ResponseLine::Inquire => Ok(Meaning::InquireAfterDenied),
            line if line.is_complete() => Ok(Meaning::EndOfDenied),
            _ => Ok(Meaning::Hidden),
        },
    }
}
