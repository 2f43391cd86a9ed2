//! Checks the whole chain: the helper asks the agents through the sockets in the target. So `up` reports
//! success only after an agent has answered.

use keybridge_proto::report::ProbeResult;
use keybridge_proto::{Lane, printable};

use super::{BridgeSetup, LiveBridge};
use crate::output::Report;
use crate::{Error, Result};

impl BridgeSetup<'_> {
    /// Describes what the agents answered.
    pub(super) async fn check_chain(&self, live: &LiveBridge, report: &Report) -> Result<String> {
        if live.is_version_1() {
            return self.check_version_1(live).await;
        }
        let asked = {
            let sockets = &live.ready().sockets;
            Lane::AGENTS.iter().filter(|lane| sockets[**lane].is_some()).count()
        };
        let (mut answers, mut heard) = (Vec::new(), 0);
        for ProbeResult { lane, outcome } in live.bridge.answers().await? {
            heard += 1;
            match (lane, outcome) {
                (Lane::Gpg, Ok(version)) => {
                    answers.push(format!("gpg-agent {} answers", printable(&version)));
                }
                // Nothing is signed only to see whether that works.
                (Lane::Git, Ok(_)) => {}
                (Lane::Ssh, Ok(keys)) => answers.push(match keys.as_str() {
                    "0" => "ssh-agent without keys answers".to_owned(),
                    "1" => "ssh-agent with 1 key answers".to_owned(),
                    keys => format!("ssh-agent with {} keys answers", printable(keys)),
                }),
                (Lane::Ssh, Err(why))
                    if !self.settings.lanes_are_named() && !answers.is_empty() =>
                {
                    report.warn(&format!("the ssh lane: {why}"));
                }
                (Lane::Gpg | Lane::Ssh | Lane::Git, Err(why)) => return Err(Error::failed(why)),
            }
        }
        if heard < asked {
            return Err(Error::failed("the helper didn't report whether the agents answer"));
        }
        Ok(answers.join(", "))
    }
}
