//! The agent side in the process of a test, with a real gpg-agent.

use std::process::Output;

use keybridge::agent::{AgentDialer, GpgAgent};
use keybridge::gnupg::Gnupg;
use keybridge::keyring::{Keyring, Lending, SharedCeiling};
use keybridge::ssh_agent::{SshDialer, SshPlaces};
use keybridge_proto::gate::{AgentSocket, LentKeys};

pub use keybridge_lab::{Home, SshHome, on_this_thread as local};

/// The GnuPG that works on a home.
pub fn gnupg(home: &Home) -> Gnupg {
    Gnupg::new(Some(home.path().to_owned()))
}

/// The agent of a home, with all of its keys to lend.
pub async fn agent(home: &Home) -> GpgAgent {
    let dialer = AgentDialer::find(gnupg(home), AgentSocket::Extra).await.unwrap();
    lent_by(home, dialer).await
}

/// All keys of a home, lent by an agent that is dialled in some way of its own.
pub async fn lent_by(home: &Home, dialer: AgentDialer) -> GpgAgent {
    let (keyring, _) =
        Keyring::open(gnupg(home), Lending::default(), &SharedCeiling::default()).await.unwrap();
    GpgAgent::new(dialer, keyring)
}

/// An agent that lends no key.
pub fn without_keys(dialer: AgentDialer) -> GpgAgent {
    GpgAgent::new(dialer, Keyring::fixed(LentKeys::default()))
}

/// The ssh-agent of a home, as a bridge finds it.
pub trait FoundAgent {
    /// Places with this agent alone.
    fn places(&self) -> SshPlaces;

    fn dialer(&self) -> SshDialer {
        SshDialer::new(self.places())
    }
}

impl FoundAgent for SshHome {
    fn places(&self) -> SshPlaces {
        SshPlaces {
            setting: None,
            auth_sock: Some(self.socket()),
            ssh: "/nonexistent/ssh".into(),
            gnupg: None,
        }
    }
}

/// What a program complained about.
pub fn complaint(output: &Output) -> String {
    keybridge_lab::text(&output.stderr)
}
