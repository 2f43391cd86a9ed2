//! Uses a version 1 server that is already in the target instead of the helper.

use keybridge_proto::report::Ready;
use keybridge_proto::{Lane, PerLane, printable};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::agents::{Agents, step};
use super::helper_log::HelperLog;
use super::{Link, LinkSetup, export};
use crate::bridge::{Bridge, no_keys_for_version_1};
use crate::gnupg::Gnupg;
use crate::keys::PublicKeys;
use crate::output::Report;
use crate::target::{Target, TargetCommand, mark_if_words, says};
use crate::{Error, ErrorKind, Result};

/// The variable in which such a server finds its sockets.
const SOCKETS: &str = "CLAWKER_REMOTE_SOCKETS";

/// The longest path of a socket.
const LONGEST_PATH: usize = 107;

/// Where the ssh lane's socket is in the user's home, as our own helper has it.
const SSH_SOCKET: &str = ".ssh/agent.sock";

/// Asks an ssh-agent. The exit code of `ssh-add` is 1 for an agent without keys, and 2 without an agent.
const ASK_SSH_AGENT: &str = "command -v ssh-add >/dev/null || exit 0; ssh-add -l >/dev/null; \
                             test $? -le 1 && echo answers";

/// Prints those of its arguments that are there.
const LIST_WHAT_IS_THERE: &str = "for path; do ! test -e \"$path\" || echo \"$path\"; done";

impl LinkSetup<'_> {
    /// Makes a link to the server at this path in the target.
    pub(super) async fn run_version_1(
        &self,
        server: &str,
        gnupg: &Gnupg,
        mut agents: Agents,
        report: &Report,
    ) -> Result<Link> {
        let sockets = self.find_sockets(&mut agents, report).await?;
        let keys = match &agents.gpg {
            Some(agent) => {
                let export = async {
                    match export(gnupg, &agent.keyring).await? {
                        // Before the server is started.
                        (keys, _) if keys.export.is_empty() => Err(no_keys_for_version_1()),
                        exported => Ok(exported),
                    }
                };
                report.step("public keys to send", export).await?
            }
            None => PublicKeys::default(),
        };
        let start = async {
            let link = self.start_version_1(server, sockets, agents, &keys.export).await?;
            Ok((link, "version 1".to_owned()))
        };
        let link = report.step("the bridge", start).await?;
        if link.ready().sockets.ssh.is_some() {
            let word = self.target.address().as_word();
            report.warn(&format!(
                "ssh in the target finds its agent by SSH_AUTH_SOCK alone: keybridge env {word} prints it"
            ));
        }
        link.log.show_warnings();
        Ok(link)
    }

    async fn start_version_1(
        &self,
        server: &str,
        sockets: PerLane<Option<String>>,
        agents: Agents,
        export: &[u8],
    ) -> Result<Link> {
        let named = sockets.iter().filter_map(|(lane, path)| {
            Some(json!({ "path": path.as_ref()?, "type": lane.wire_name() }))
        });
        let named: Value = named.collect();
        let command = TargetCommand::new([server]).env(SOCKETS, named.to_string());
        let (stdout, stdin, mut process) = self.target.run(&command).await?.split();
        let mut log = HelperLog::follow(process.take_stderr(), self.target, &self.quota);
        let ready = Ready { sockets, ..Ready::default() };
        let settings = self.bridge_settings(&agents);
        match Bridge::start_version_1(stdout, stdin, settings, agents.gpg, export, ready).await {
            Ok(bridge) => {
                let (helper, target) = (Mutex::new(process), self.target.clone());
                Ok(Link { bridge, helper, log, target, installed: None })
            }
            Err(error) => {
                log.finish().await;
                Err(log.explain(error).context(printable(server)))
            }
        }
    }

    /// Where the clients of each lane look for their agent: the server has to be told. A lane without a socket
    /// is an error if it was named, or if there is no other.
    async fn find_sockets(
        &self,
        agents: &mut Agents,
        report: &Report,
    ) -> Result<PerLane<Option<String>>> {
        let mut sockets = PerLane::default();
        let mut first_error = None;
        for lane in agents.lanes() {
            let find = async {
                match lane {
                    Lane::Gpg => self.find_gpg_socket().await,
                    Lane::Ssh => self.find_ssh_socket().await,
                    Lane::Git => Err(Error::failed("a version 1 server has no git lane")),
                }
            };
            let doing = format!("the {lane} lane's socket in the target");
            match step(report, &doing, self.settings, find, String::clone).await {
                Ok(socket) => sockets[lane] = Some(socket),
                Err(error) if self.settings.lanes_are_named() => return Err(error),
                Err(error) => {
                    report.warn(&format!("without the {lane} lane: {error}"));
                    agents.leave_out(lane);
                    first_error.get_or_insert(error);
                }
            }
        }
        match first_error {
            Some(error) if agents.lanes().is_empty() => Err(error),
            Some(_) | None => Ok(sockets),
        }
    }

    async fn find_gpg_socket(&self) -> Result<String> {
        let command = TargetCommand::new(["gpgconf", "--list-dirs", "agent-socket"]);
        let path = self.target.output(&command).await.map_err(|error| {
            Error::new(ErrorKind::NoTarget, "can't run GnuPG in the target")
                .caused_by(error)
                .hint("install GnuPG in the target")
        })?;
        let problem = "gpgconf in the target doesn't name a usable socket";
        usable(&self.target.address().name(), problem, path.trim_end())
    }

    async fn find_ssh_socket(&self) -> Result<String> {
        let command = TargetCommand::new(["sh", "-c", "printf %s \"$HOME\""]);
        let home = self.target.output(&command).await?;
        let path = format!("{}/{SSH_SOCKET}", home.trim_end().trim_end_matches('/'));
        let name = self.target.address().name();
        let path = usable(&name, "no socket can be in the home of the target's user", &path)?;
        // A server would put its own in the place of that socket.
        if ask_ssh_agent(self.target, &path).await.unwrap_or(false) {
            let mut shown = path;
            mark_if_words(&name, &mut shown);
            let message = format!("an ssh-agent answers in the target already, at {shown}");
            return Err(Error::new(ErrorKind::InUse, message).hint("end that agent there"));
        }
        Ok(path)
    }
}

impl Link {
    /// Asks the agents with the target's own programs. Describes what they answered.
    pub(super) async fn check_version_1(&self) -> Result<String> {
        let mut answers = Vec::new();
        let sockets = &self.ready().sockets;
        if sockets.gpg.is_some() {
            let question = ["gpg-connect-agent", "--no-autostart", "GETINFO version", "/bye"];
            let answer = self.target.output(&TargetCommand::new(question)).await?;
            let version = answer.lines().find_map(|line| line.strip_prefix("D "));
            let name = self.target.address().name();
            let mut version = version.map(str::to_owned).ok_or_else(|| {
                let last = answer.lines().next_back().unwrap_or("no output");
                let last = says(&name, last);
                Error::failed(format!("the agent doesn't answer in the target: {last}"))
            })?;
            mark_if_words(&name, &mut version);
            answers.push(format!("gpg-agent {} answers", printable(&version)));
        }
        if let Some(socket) = &sockets.ssh {
            let asked = ask_ssh_agent(&self.target, socket).await;
            let answers_there =
                asked.map_err(|error| error.context("asking the ssh-agent in the target"))?;
            answers.push(if answers_there {
                "ssh-agent answers".to_owned()
            } else {
                "the ssh-agent isn't asked: no ssh-add in the target".to_owned()
            });
        }
        Ok(answers.join(", "))
    }

    /// What a version 1 server that has ended has left in the target, as far as that can be known.
    pub(crate) async fn left_by_server(&self) -> Vec<String> {
        let sockets = &self.ready().sockets;
        let paths: Vec<String> = sockets.iter().filter_map(|(_, path)| path.clone()).collect();
        let words = ["sh", "-c", LIST_WHAT_IS_THERE, "sh"].map(str::to_owned);
        let list = TargetCommand::new(words.iter().chain(&paths));
        let there = self.target.output(&list).await.unwrap_or_default();
        let keys = sockets.gpg.is_some().then(|| "the public keys that were sent".to_owned());
        // No other words of the target's are shown.
        let mut left = paths;
        left.retain(|path| there.lines().any(|line| line == path));
        let name = self.target.address().name();
        for path in &mut left {
            mark_if_words(&name, path);
        }
        keys.into_iter().chain(left).collect()
    }
}

/// Whether an ssh-agent answers at a path in the target; an error if none does. False where it can't be
/// asked, without `ssh-add`.
async fn ask_ssh_agent(target: &Target, socket: &str) -> Result<bool> {
    let question = TargetCommand::new(["sh", "-c", ASK_SSH_AGENT]);
    let said = target.output(&question.env("SSH_AUTH_SOCK", socket)).await?;
    Ok(said.trim_end() == "answers")
}

/// A path that a socket can have, as the target with this name gives it.
fn usable(name: &str, problem: &str, path: &str) -> Result<String> {
    let mut shown = printable(path).to_string();
    if path.starts_with('/') && path.len() <= LONGEST_PATH && shown == path {
        return Ok(shown);
    }
    mark_if_words(name, &mut shown);
    Err(Error::failed(format!("{problem}: {shown}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_path_never_passes_for_our_words() {
        let error = usable("web", "no socket", "run this as root").unwrap_err();
        assert_eq!(error.message, "no socket: web says: run this as root");
        assert_eq!(usable("web", "no socket", "/a b/S").unwrap(), "/a b/S");
    }
}
