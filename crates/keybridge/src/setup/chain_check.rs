//! Checks the whole chain: the helper asks the agents through the sockets in the target.

use keybridge_proto::report::ProbeResult;
use keybridge_proto::{Lane, printable};

use super::{BridgeSetup, LiveBridge};
use crate::output::Report;
use crate::{Error, Result};

impl BridgeSetup<'_> {
    /// Describes what the agents answered.
    pub(super) async fn check_chain(&self, live: &LiveBridge, report: &Report) -> Result<String> {
        if live.installed.is_none() {
            return self.check_version_1().await;
        }
        let asked = live.ready().sockets.iter().filter(|(_, socket)| socket.is_some()).count();
        let (mut answers, mut heard) = (Vec::new(), 0);
        for ProbeResult { lane, outcome } in live.bridge.answers().await? {
            heard += 1;
            match (lane, outcome.map_err(|why| printable(&why).to_string())) {
                (Lane::Gpg, Ok(version)) => {
                    answers.push(format!("gpg-agent {} answers", printable(&version)));
                }
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
                (Lane::Gpg | Lane::Ssh, Err(why)) => return Err(Error::failed(why)),
            }
        }
        if heard < asked {
            return Err(Error::failed("the helper didn't report whether the agents answer"));
        }
        Ok(answers.join(", "))
    }
}
