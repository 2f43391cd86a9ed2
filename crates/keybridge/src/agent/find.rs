//! Finds the socket of the host's gpg-agent.

use keybridge_proto::gate::AgentSocket;

use super::AgentDialer;
use crate::gnupg::Gnupg;
use crate::{Error, ErrorKind, Result};

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
        match dialer.dial().await {
            Ok(_) => Ok(dialer),
            Err(error) if dirs.home.is_dir() => Err(error.into()),
            // GnuPG says nothing of use then.
            Err(_) => {
                let home = dirs.home.display();
                Err(Error::new(ErrorKind::NoAgent, format!("the GnuPG home {home} doesn't exist"))
                    .hint("see what GNUPGHOME names, or make a key with `gpg --quick-gen-key`"))
            }
        }
    }
}
