//! Asks gpg-agent something on the host's own behalf.

use keybridge_link::{self as link, GpgAnswer, GpgQuestions};

use super::{AgentDialer, DialError};
use crate::ssh_agent;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum QuestionError {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error("asking gpg-agent: {0}")]
    Agent(#[from] link::QuestionError),
}

impl AgentDialer {
    /// Sends commands one after the other over a new connection. The caller sets a time limit.
    pub(crate) async fn ask(&self, commands: &[String]) -> Result<Vec<GpgAnswer>, QuestionError> {
        let (mut stream, opening) = self.dial().await?;
        ssh_agent::open(&mut stream, opening).await.map_err(link::QuestionError::Io)?;
        let mut agent = GpgQuestions::greeted(stream).await?;
        let mut answers = Vec::new();
        for command in commands {
            answers.push(agent.ask(command).await?);
        }
        Ok(answers)
    }
}
