//! Asks gpg-agent something on the host's own behalf.

use std::io;

use keybridge_proto::assuan::{ErrorCode, ResponseLine};

use super::{AgentDialer, AgentStream, DialError};
use crate::ssh_agent;

/// How much an agent may answer; a line has at most 1000 bytes.
const LIMIT: usize = 16 * 1024;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuestionError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("asking gpg-agent: {0}")]
    Io(#[from] io::Error),
}

/// The answer to one command: its lines, or the agent's error.
pub(crate) type Answer = Result<Vec<String>, Option<ErrorCode>>;

impl AgentDialer {
    /// Sends commands one after the other over a new connection. The caller sets a time limit.
    pub(crate) async fn ask(&self, commands: &[String]) -> Result<Vec<Answer>, QuestionError> {
        let (mut stream, opening) = self.dial().await?;
        ssh_agent::open(&mut stream, opening).await?;
        let mut received = Vec::new();
        // The greeting.
        answer(&mut stream, &mut received).await?.map_err(|_| invalid())?;
        let mut answers = Vec::new();
        for command in commands {
            stream.write_all(format!("{command}\n").as_bytes()).await?;
            answers.push(answer(&mut stream, &mut received).await?);
        }
        Ok(answers)
    }
}

/// Reads lines up to the one that ends an answer.
async fn answer(stream: &mut AgentStream, received: &mut Vec<u8>) -> io::Result<Answer> {
    let mut lines = Vec::new();
    loop {
        while let Some(end) = received.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = received.drain(..=end).collect();
            match ResponseLine::parse(&line).map_err(io::Error::other)? {
                ResponseLine::Ok => return Ok(Ok(lines)),
                ResponseLine::Err(code) => return Ok(Err(code)),
                ResponseLine::Status | ResponseLine::Data => {
                    lines.push(String::from_utf8_lossy(line.trim_ascii_end()).into_owned());
                }
                // Nothing that is asked needs an answer of ours.
                ResponseLine::Inquire => return Err(invalid()),
                ResponseLine::End | ResponseLine::Comment | ResponseLine::Blank => {}
            }
        }
        if received.len() > LIMIT || lines.len() > LIMIT {
            return Err(invalid());
        }
        let mut buffer = [0; 1024];
        match stream.read(&mut buffer).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => received.extend(buffer.get(..count).unwrap_or_default()),
        }
    }
}

fn invalid() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "expected an answer of gpg-agent, got something else",
    )
}
