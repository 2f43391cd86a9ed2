//! Uses a version 1 server that is already in the target instead of the helper.

use keybridge_proto::report::Ready;
use keybridge_proto::{PerLane, printable};
use serde_json::json;
use tokio::sync::Mutex;

use super::agents::Agents;
use super::helper_log::HelperLog;
use super::{BridgeSetup, LiveBridge, export};
use crate::bridge::Bridge;
use crate::gnupg::Gnupg;
use crate::keys::PublicKeys;
use crate::output::Report;
use crate::target::TargetCommand;
use crate::{Error, ErrorKind, Result};

/// The variable in which such a server finds its sockets.
const SOCKETS: &str = "CLAWKER_REMOTE_SOCKETS";

impl BridgeSetup<'_> {
    /// Makes a link to the server at this path in the target.
    pub(super) async fn run_version_1(
        &self,
        server: &str,
        gnupg: &Gnupg,
        agents: Agents,
        report: &Report,
    ) -> Result<LiveBridge> {
        let find = async {
            let socket = self.find_socket().await?;
            let shown = printable(&socket).to_string();
            Ok((socket, shown))
        };
        let socket = report.step("gpg's socket in the target", find).await?;
        let keys = match &agents.gpg {
            Some(agent) => {
                report.step("public keys to send", export(gnupg, &agent.keyring)).await?
            }
            None => PublicKeys::default(),
        };
        let start = async {
            let live = self.start_version_1(server, &socket, agents, &keys.export).await?;
            Ok((live, "version 1".to_owned()))
        };
        let live = report.step("the bridge", start).await?;
        live.log.show_warnings();
        Ok(live)
    }

    /// Asks the agent with the target's own gpg-connect-agent.
    pub(super) async fn check_version_1(&self) -> Result<String> {
        let question = ["gpg-connect-agent", "--no-autostart", "GETINFO version", "/bye"];
        let answer = self.target.output(&TargetCommand::new(question), b"").await?;
        let version = answer.lines().find_map(|line| line.strip_prefix("D "));
        let version = version.ok_or_else(|| {
            let last = answer.lines().next_back().unwrap_or("no output");
            Error::failed(format!("the agent doesn't answer in the target: {}", printable(last)))
        })?;
        Ok(format!("gpg-agent {} answers", printable(version)))
    }

    async fn start_version_1(
        &self,
        server: &str,
        socket: &str,
        agents: Agents,
        export: &[u8],
    ) -> Result<LiveBridge> {
        let sockets = json!([{ "path": socket, "type": "gpg-agent" }]);
        let command = TargetCommand::new([server]).env(SOCKETS, sockets.to_string());
        let (stdout, stdin, mut process) = self.target.run(&command).await?.split();
        let mut log = HelperLog::follow(process.take_stderr(), &self.quota);
        let ready = Ready {
            sockets: PerLane { gpg: Some(socket.to_owned()), ssh: None },
            ..Ready::default()
        };
        let settings = self.bridge_settings(&agents);
        match Bridge::start_version_1(stdout, stdin, settings, agents.gpg, export, ready).await {
            Ok(bridge) => {
                let (helper, target) = (Mutex::new(process), self.target.clone());
                Ok(LiveBridge { bridge, helper, log, target, installed: None })
            }
            Err(error) => {
                log.finish().await;
                Err(log.explain(error.context(printable(server))))
            }
        }
    }

    /// Where gpg in the target looks for its agent. The server has to be told.
    async fn find_socket(&self) -> Result<String> {
        let command = TargetCommand::new(["gpgconf", "--list-dirs", "agent-socket"]);
        let path = self.target.output(&command, b"").await.map_err(|error| {
            Error::new(ErrorKind::NoTarget, "can't run GnuPG in the target")
                .caused_by(error)
                .hint("install GnuPG in the target")
        })?;
        let path = path.trim_end();
        let is_plain = printable(path).to_string() == path;
        if path.starts_with('/') && path.len() <= 107 && is_plain {
            return Ok(path.to_owned());
        }
        Err(Error::failed(format!(
            "gpgconf in the target doesn't name a usable socket: {}",
            printable(path)
        )))
    }
}
