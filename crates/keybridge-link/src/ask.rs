//! Short questions to an agent: one side's own, and not a client's. The caller sets a time limit.

use std::io;

use keybridge_proto::assuan::{LineBuffer, ResponseLine, content};
use keybridge_proto::printable;
use keybridge_proto::ssh::Frame;

use crate::Duplex;

/// How much an agent may answer: one with a thousand keys lists them in less.
const ANSWER_LIMIT: usize = 256 * 1024;

/// A conversation with gpg-agent.
#[derive(Debug)]
pub struct GpgQuestions<D> {
    agent: D,
    lines: LineBuffer,
    unread: Vec<u8>,
}

/// The lines of data and status with which gpg-agent answered a command, or the one with which it refused,
/// without their ends.
pub type GpgAnswer = Result<Vec<String>, String>;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum QuestionError {
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// It closed the connection.
    #[error("the agent hung up")]
    HungUp,
    /// It answered something else.
    #[error("unexpected answer: {}", printable(.0))]
    Unexpected(String),
    /// It answered more than anything that is asked needs.
    #[error("the agent's answer has no end")]
    TooLong,
}

impl From<QuestionError> for io::Error {
    fn from(error: QuestionError) -> Self {
        match error {
            QuestionError::Io(error) => error,
            QuestionError::HungUp => io::ErrorKind::UnexpectedEof.into(),
            QuestionError::Unexpected(_) | QuestionError::TooLong => Self::other(error),
        }
    }
}

impl<D: Duplex> GpgQuestions<D> {
    /// Begins with the greeting.
    pub async fn greeted(agent: D) -> Result<Self, QuestionError> {
        let mut questions = Self { agent, lines: LineBuffer::default(), unread: Vec::new() };
        questions.answer().await?.map_err(QuestionError::Unexpected)?;
        Ok(questions)
    }

    /// Sends a command, which asks for nothing in return.
    pub async fn ask(&mut self, command: &str) -> Result<GpgAnswer, QuestionError> {
        self.agent.send_all(format!("{command}\n").as_bytes()).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<GpgAnswer, QuestionError> {
        let (mut found, mut size) = (Vec::new(), 0);
        let mut buffer = [0; 1024];
        loop {
            while !self.unread.is_empty() {
                let cut = self.lines.cut(&self.unread).map_err(|_| QuestionError::TooLong)?;
                let read = |line| (ResponseLine::parse(line), text(line));
                let (taken, line) = (cut.taken, cut.line.map(read));
                self.unread.drain(..taken);
                let Some((kind, line)) = line else { continue };
                match kind {
                    Ok(ResponseLine::Ok) => return Ok(Ok(found)),
                    Ok(ResponseLine::Err(_)) => return Ok(Err(line)),
                    Ok(ResponseLine::Status | ResponseLine::Data) => found.push(line),
                    Ok(ResponseLine::End | ResponseLine::Comment | ResponseLine::Blank) => {}
                    Ok(ResponseLine::Inquire) | Err(_) => {
                        return Err(QuestionError::Unexpected(line));
                    }
                }
            }
            let count = self.agent.receive(&mut buffer).await?;
            size += count;
            match count {
                0 => return Err(QuestionError::HungUp),
                _ if size > ANSWER_LIMIT => return Err(QuestionError::TooLong),
                count => self.unread.extend_from_slice(buffer.get(..count).unwrap_or_default()),
            }
        }
    }
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(content(line)).into_owned()
}

/// Sends a request to an ssh-agent, and reads the frame that answers it.
pub async fn ask_ssh_agent(
    agent: &mut impl Duplex,
    request: &[u8],
) -> Result<Vec<u8>, QuestionError> {
    let ended = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => QuestionError::HungUp,
        _ => error.into(),
    };
    agent.send_all(request).await?;
    let mut answer = agent.receive_exact(4).await.map_err(ended)?;
    // Checks the length before anything is awaited or allocated for it.
    Frame::parse(&answer).map_err(|error| QuestionError::Unexpected(error.to_string()))?;
    let size = answer.first_chunk().map_or(0, |size| u32::from_be_bytes(*size));
    let body = agent.receive_exact(usize::try_from(size).unwrap_or_default()).await;
    answer.extend(body.map_err(ended)?);
    Ok(answer)
}
