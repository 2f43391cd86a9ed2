//! Finds the socket of the host's gpg-agent.

use keybridge_proto::gate::AgentSocket;

use super::AgentDialer;
use crate::Result;
use crate::gnupg::Gnupg;

impl AgentDialer {
    /// Finds the socket of this kind and sees that somebody answers there, starting the agent if it
    /// isn't running. That the socket is restricted is proven later, by each session.
    pub async fn find(gnupg: Gnupg, socket: AgentSocket) -> Result<Self> {
        let dirs = gnupg.dirs().await?;
        let path = match socket {
            AgentSocket::Extra => dirs.extra_socket,
            AgentSocket::Main => dirs.agent_socket,
        };
        let dialer = Self::new(path, Some(gnupg));
        dialer.dial().await?;
        Ok(dialer)
    }
}
