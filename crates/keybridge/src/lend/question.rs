//! The question that goes through the whole chain: asked in the target, answered by the agents at home.

use keybridge_proto::report::Ready;
use keybridge_proto::{Lane, printable};

use super::{Lender, Lent};
use crate::report::Report;
use crate::target::TargetCommand;
use crate::{Error, Result};

impl Lender<'_> {
    /// Asks the agents through the sockets in the target.
    pub(super) async fn ask(&self, lent: &Lent, report: &Report) -> Result<String> {
        let Some(put) = &lent.put else { return self.ask_version_1().await };
        let Ready { gpg_socket, ssh_socket, .. } = lent.ready();
        let sockets = [(Lane::Gpg, gpg_socket), (Lane::Ssh, ssh_socket)];
        let sockets =
            sockets.into_iter().filter_map(|(lane, socket)| Some((lane, socket.as_ref()?)));
        let mut words = vec![put.path.clone(), "probe".to_owned()];
        words.extend(sockets.map(|(lane, socket)| format!("{lane}={socket}")));
        let asked = words.len() - 2;
        let said = self.target.output(&TargetCommand::new(words), b"").await?;
        let (mut answers, mut heard) = (Vec::new(), 0);
        for (lane, answer) in said.lines().filter_map(read_answer) {
            heard += 1;
            match (lane, answer) {
                (Lane::Gpg, Ok(version)) => answers.push(format!("gpg-agent {version} answers")),
                (Lane::Ssh, Ok(keys)) => answers.push(match keys.as_str() {
                    "0" => "ssh-agent without keys answers".to_owned(),
                    "1" => "ssh-agent with 1 key answers".to_owned(),
                    keys => format!("ssh-agent with {keys} keys answers"),
                }),
                (Lane::Ssh, Err(why)) if !self.settings.lanes_are_named && !answers.is_empty() => {
                    report.warn(&format!("the ssh lane: {why}"));
                }
                (Lane::Gpg | Lane::Ssh, Err(why)) => return Err(Error::failed(why)),
            }
        }
        if heard < asked {
            return Err(Error::failed("the helper didn't say what the agents answer"));
        }
        Ok(answers.join(", "))
    }
}

/// Reads a line of what the helper's probe prints; what it means, as far as it can be shown.
fn read_answer(said: &str) -> Option<(Lane, Result<String, String>)> {
    let (lane, rest) = said.split_once(' ')?;
    let (outcome, text) = rest.split_once(' ')?;
    let text = printable(text).to_string();
    let answer = match outcome {
        "answers" => Ok(text),
        "fails" => Err(text),
        _ => return None,
    };
    Some((lane.parse().ok()?, answer))
}
