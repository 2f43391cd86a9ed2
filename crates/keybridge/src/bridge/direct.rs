//! The direct path: a socket of the helper that carries the link in place of the engine.

use std::rc::Rc;
use std::time::Duration;

use keybridge_link::{LocalStream, random};
use keybridge_proto::direct::{DirectAsk, DirectOffer, Proof};
use tokio::time::timeout;

use super::{Bridge, passed};
use crate::caller::CallerLookup;
use crate::platform::PassedClients;
use crate::{Error, ErrorKind, Result};

/// The time limit for setting it up; the link works without it.
const SET_UP_TIME: Duration = Duration::from_secs(10);

/// The path that the bytes of a bridge take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkPath {
    /// The helper passes the connections of its clients to the host, and everything else goes over a
    /// socket of the helper.
    Passed,
    /// Over a socket of the helper.
    Direct,
    /// Over the helper's standard input and output, and in a container through the engine.
    Exec,
}

impl LinkPath {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Direct => "direct",
            Self::Exec => "exec",
        }
    }
}

/// A socket of the helper, and the clients that it passes, if it does.
#[derive(Debug)]
pub struct DirectConnection {
    /// The socket, at which both ends have proved who they are.
    pub socket: LocalStream,
    /// The clients.
    pub clients: Option<PassedClients>,
    /// Looks up who these clients are; none where nothing can be known.
    pub callers: Option<CallerLookup>,
}

impl Bridge {
    /// Tells the helper to listen, and switches the link to the socket once `dial` has connected. If that
    /// fails, the link stays as it is.
    pub fn go_direct<D>(&self, dial: D)
    where
        D: AsyncFnOnce(DirectOffer, Proof) -> Result<DirectConnection> + 'static,
    {
        let Ok(ours) = random().map(Proof::new) else { return };
        let ask = DirectAsk { host: ours.clone() }.encode();
        // It fails only if the link is over.
        let _ = self.link.with_mux(|mux| mux.direct(&ask));
        let (link, mut helper) = (self.link.clone(), self.helper.clone());
        let (admission, is_passing) = (Rc::clone(&self.admission), Rc::clone(&self.is_passing));
        let setting_up = async move {
            let offered = helper.wait_for(|now| now.offer.is_some() || now.end.is_some()).await;
            let offer = offered.ok().and_then(|now| now.offer.clone());
            let offer = offer.ok_or_else(|| Error::failed("the link ended"))?;
            let DirectConnection { socket, clients, callers } = dial(offer, ours).await?;
            if let Some(clients) = clients {
                tokio::task::spawn_local(passed::receive(clients, callers, admission, is_passing));
            }
            link.go_direct(socket).map_err(|error| Error::from_source(ErrorKind::Failed, error))
        };
        tokio::task::spawn_local(async move {
            let why = match timeout(SET_UP_TIME, setting_up).await {
                Ok(Ok(())) => return tracing::info!("the direct path is taken"),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("it took more than {} s", SET_UP_TIME.as_secs()),
            };
            tracing::info!("no direct path: {why}");
        });
    }

    /// The path that the bytes of a new client take now.
    pub fn path(&self) -> LinkPath {
        match (self.is_passing.get(), self.link.is_direct()) {
            (true, _) => LinkPath::Passed,
            (false, true) => LinkPath::Direct,
            (false, false) => LinkPath::Exec,
        }
    }
}
