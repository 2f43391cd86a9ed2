//! A path past whoever carries the link, where there is one.

use std::time::Duration;

use keybridge_link::random;
use keybridge_proto::direct::{DirectAsk, DirectOffer, Proof};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::Bridge;
use crate::{Error, Result};

/// How long the helper and the engine may take over it: the link works without it.
const SET_UP_TIME: Duration = Duration::from_secs(10);

/// Which way the bytes of a bridge take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkPath {
    /// Past the engine, by a socket of the helper.
    Direct,
    /// Through the engine, which carries the streams of the helper.
    Exec,
}

impl LinkPath {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Exec => "exec",
        }
    }
}

impl Bridge {
    /// Has the helper listen for another path, and takes that when `dial` has reached it. The link
    /// goes on meanwhile, and without it if it can't be had.
    pub fn go_direct<D>(&self, dial: D)
    where
        D: AsyncFnOnce(DirectOffer, Proof) -> Result<UnixStream> + 'static,
    {
        let Ok(ours) = random().map(Proof::new) else { return };
        let ask = DirectAsk { host: ours.clone() }.encode();
        // A link that is over needs no other path.
        let _ = self.link.with_mux(|mux| mux.direct(&ask));
        let (link, mut progress) = (self.link.clone(), self.progress.clone());
        let setting_up = async move {
            let offered = progress.wait_for(|now| now.offer.is_some() || now.end.is_some()).await;
            let offer = offered.ok().and_then(|now| now.offer.clone());
            let offer = offer.ok_or_else(|| Error::failed("the link is over"))?;
            let socket = dial(offer, ours).await?;
            link.go_direct(socket).map_err(|error| Error::failed(error.to_string()))
        };
        tokio::task::spawn_local(async move {
            let why = match timeout(SET_UP_TIME, setting_up).await {
                Ok(Ok(())) => return tracing::info!("the direct path is taken"),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("helper and engine took more than {} s", SET_UP_TIME.as_secs()),
            };
            tracing::info!("no direct path: {why}");
        });
    }

    /// Whether the bytes take such a path now.
    pub fn is_direct(&self) -> bool {
        self.link.is_direct()
    }
}
