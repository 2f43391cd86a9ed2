//! Looks at the target as its user and changes nothing: no file, no folder, no agent is started. Each part
//! has its time, and one that takes longer is named in its fact.

mod git;
mod gnupg;
mod lane;
mod listener;
mod public_keys;
mod signature;

use std::time::Duration;

use keybridge_proto::PerLane;
use keybridge_proto::inspection::{GnupgFacts, Inspection, KeyFacts, LaneFacts, SignatureOutcome};
use tokio::time::timeout;

use crate::error::Error;
use crate::{DiscoveredLane, Environment, FileId, GitFolder, OpenPgpKeyId, SshFolder};

/// How long a part may take; at most two come one after the other. On a target that works each takes some
/// milliseconds, and a hundred times that on one that is busy. A listener that says nothing is given up
/// after 2 s elsewhere: here it ends before that, with the time.
const PART_TIME: Duration = Duration::from_millis(1900);

/// What to look at.
#[derive(Debug, Clone, Default)]
pub struct InspectionRequest {
    /// The public keys to look for.
    pub keys: Vec<OpenPgpKeyId>,
    /// The key to sign with, if a signature is asked for.
    pub sign: Option<OpenPgpKeyId>,
    /// Whether nothing is asked through a bridge: the host starts its agent for a question.
    pub no_questions: bool,
    /// The host's own GnuPG home and ssh folder, which are never bridged.
    pub host_folders: PerLane<Option<FileId>>,
}

/// Looks at the target.
pub async fn inspect(environment: &Environment, request: &InspectionRequest) -> Inspection {
    let (git, git_lane, ssh, gpg) = tokio::join!(
        git::inspect(environment),
        git_lane(environment, request),
        ssh_lane(environment, request),
        gpg_lane(environment, request),
    );
    Inspection {
        user: environment.user(),
        gnupg: gpg.gnupg,
        lanes: PerLane { gpg: gpg.lane, ssh, git: git_lane },
        keys: gpg.keys,
        git,
        signature: gpg.signature,
    }
}

/// What is found by means of GnuPG.
struct GpgFindings {
    gnupg: Option<GnupgFacts>,
    lane: LaneFacts,
    keys: Vec<KeyFacts>,
    signature: Option<SignatureOutcome>,
}

async fn gpg_lane(environment: &Environment, request: &InspectionRequest) -> GpgFindings {
    let found = gnupg::find(environment, request.host_folders.gpg).await;
    let gnupg = match found.usable {
        Ok(gnupg) => gnupg,
        Err(reason) => {
            let keys = public_keys::unknown(&request.keys, &reason);
            let signature = request.sign.as_ref().map(|key| signature::failed(key, &reason));
            let lane = LaneFacts { problem: Some(reason), ..lane::unusable(found.socket) };
            return GpgFindings { gnupg: found.facts, lane, keys, signature };
        }
    };
    let discovered = DiscoveredLane::Gpg(std::rc::Rc::clone(&gnupg));
    let (lane, keys) = tokio::join!(
        lane::inspect(&discovered, environment, request.no_questions),
        public_keys::find(&gnupg, &request.keys)
    );
    let signature = match &request.sign {
        Some(key) => Some(signature::make(&gnupg, key).await),
        None => None,
    };
    GpgFindings { gnupg: found.facts, lane, keys, signature }
}

async fn ssh_lane(environment: &Environment, request: &InspectionRequest) -> LaneFacts {
    let folder = SshFolder::find(environment, request.host_folders.ssh);
    lane_at(folder.map(|folder| DiscoveredLane::Ssh(folder.into())), environment, request).await
}

async fn git_lane(environment: &Environment, request: &InspectionRequest) -> LaneFacts {
    let folder = GitFolder::find(environment);
    lane_at(folder.map(|folder| DiscoveredLane::Git(folder.into())), environment, request).await
}

async fn lane_at(
    discovered: Result<DiscoveredLane, Error>,
    environment: &Environment,
    request: &InspectionRequest,
) -> LaneFacts {
    match discovered {
        Ok(discovered) => lane::inspect(&discovered, environment, request.no_questions).await,
        Err(error) => LaneFacts { problem: Some(error.to_string()), ..lane::unusable(None) },
    }
}

/// Runs a part within its time.
async fn in_time<T>(part: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let late = || Err(format!("no answer within {} ms", PART_TIME.as_millis()));
    timeout(PART_TIME, part).await.unwrap_or_else(|_| late())
}
