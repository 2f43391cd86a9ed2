//! Asking the process that listens at gpg's socket what it is.

use std::path::Path;
use std::time::Duration;

use keybridge_link::{GpgQuestions, LocalSocket, QuestionError};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::Gnupg;
use crate::socket::current_listener::{
    ANSWER_TIME, Activity, CurrentListener, PeerProcess, answers,
};

/// How long an agent may take to end.
const END_TIME: Duration = Duration::from_secs(3);

/// How often that is checked.
const END_POLL: Duration = Duration::from_millis(20);

/// Finds out what listens at the other end.
pub(crate) async fn identify(stream: UnixStream, gnupg: &Gnupg) -> CurrentListener {
    let mut who = PeerProcess::of(&stream);
    let answer = timeout(ANSWER_TIME, interrogate(stream)).await;
    let answer = answer.map(|answer| {
        answer.map(|(answer, pid)| {
            // gpg-agent listens before it goes to the background: the kernel knows the process
            // that started it.
            if pid.is_some() && !who.is_systemd() {
                who = PeerProcess::with_pid(pid);
            }
            answer
        })
    });
    let what = match answer {
        Ok(Ok(AgentKeys::NoKeys)) if who.is_systemd() => Activity::StartsAgents,
        Ok(Ok(AgentKeys::NoKeys)) if !gnupg.has_secret_keys() => {
            return CurrentListener::AgentWithoutKeys(who);
        }
        Ok(Ok(AgentKeys::NoKeys | AgentKeys::Keys)) => Activity::HasSecretKeys,
        Ok(Ok(AgentKeys::Restricted)) => Activity::IsRestricted,
        Ok(Err(_)) | Err(_) => Activity::IsNoGpgAgent,
    };
    CurrentListener::Alive(who, what, None)
}

/// What a listener says about its keys.
enum AgentKeys {
    NoKeys,
    Keys,
    Restricted,
}

/// Asks for its keys and its pid.
async fn interrogate(stream: UnixStream) -> Result<(AgentKeys, Option<i32>), QuestionError> {
    let mut agent = GpgQuestions::greeted(LocalSocket::new(stream)?).await?;
    // A restricted socket can say that there are no keys when there are.
    if agent.ask("GETINFO restricted").await?.is_ok() {
        return Ok((AgentKeys::Restricted, None));
    }
    let pid = agent.ask("GETINFO pid").await?;
    let pid = pid.ok().and_then(|lines| lines.iter().find_map(|line| parse_pid(line)));
    let keys = match agent.ask("KEYINFO --list").await? {
        Ok(lines) if lines.iter().any(|line| line.starts_with("S KEYINFO ")) => AgentKeys::Keys,
        Ok(_) => AgentKeys::NoKeys,
        Err(_) => AgentKeys::Restricted,
    };
    Ok((keys, pid))
}

/// Sends KILLAGENT; returns whether the socket is removed or has no listener any more.
pub(crate) async fn end(path: &Path) -> bool {
    let killed = async {
        let agent = LocalSocket::new(UnixStream::connect(path).await?)?;
        GpgQuestions::greeted(agent).await?.ask("KILLAGENT").await
    };
    // It can be gone before its answer is read.
    if !matches!(timeout(ANSWER_TIME, killed).await, Ok(Ok(Ok(_)))) {
        tracing::debug!("unexpected answer to KILLAGENT");
    }
    let gone = async {
        while answers(path).await {
            sleep(END_POLL).await;
        }
    };
    timeout(END_TIME, gone).await.is_ok()
}

fn parse_pid(line: &str) -> Option<i32> {
    line.strip_prefix("D ")?.trim_end().parse().ok().filter(|&pid| pid > 0)
}
