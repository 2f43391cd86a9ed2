//! What is gathered about the way to a target, and in it.

use std::time::Duration;

use keybridge_proto::Lane;
use keybridge_proto::inspection::Inspection;

use crate::candidates::Candidates;
use crate::checks::Check;
use crate::config::{ConfigFile, Invocation, Options, Settings};
use crate::engine::{Engine, EngineKind};
use crate::facts::host::StateFacts;
use crate::facts::inspection;
use crate::facts::{Facts, HOST_TIME, HostFacts, Subject, not_known, within};
use crate::helper::Helper;
use crate::join::join_all;
use crate::keyring::Ceiling;
use crate::supervisor::{BridgeState, BridgeStatus};
use crate::target::{Contact, Presence, Questions, Reached, Target, TargetAddress, transport};
use crate::{Error, ErrorKind, Result};

/// How long an engine or a container may take to answer: some times of what it takes on a machine that is
/// busy.
const CONTAINER_TIME: Duration = Duration::from_secs(10);

/// How long a target that a command reaches may take: there is a login before the answer.
const LOGIN_TIME: Duration = Duration::from_secs(12);

/// How long the copy of the helper and its answer may take over a login, whose link can be slow.
const COPY_TIME: Duration = Duration::from_secs(20);

/// A target, and the way there.
#[derive(Debug)]
pub(crate) struct TargetFacts {
    /// Its usual address, or as it was written if it wasn't found.
    pub(crate) address: TargetAddress,
    /// The engine, if it is a container.
    pub(crate) engine: Option<Result<String>>,
    /// The program that leads there, if one does.
    pub(crate) transport: Option<Result<String>>,
    pub(crate) found: Result<(Target, Presence)>,
    /// A container that runs and has a similar name, if there is none of this name.
    pub(crate) similar: Option<TargetAddress>,
    pub(crate) bridge: BridgeFacts,
    pub(crate) reached: Result<Reached>,
    /// What the helper has found.
    pub(crate) inspection: Result<Inspection>,
}

/// The bridge to a target.
#[derive(Debug)]
pub(crate) enum BridgeFacts {
    /// It can't be known.
    Unknown,
    /// There is none.
    Down {
        /// Why the last one ended, if it ended by itself.
        why: Option<String>,
    },
    /// Its process runs.
    Up {
        status: Box<BridgeStatus>,
        /// How long a question and its answer take over the link; `None` if it doesn't answer.
        round_trip: Result<Option<Duration>>,
    },
}

impl TargetFacts {
    /// The user there, for people.
    pub(crate) fn user_name(&self) -> String {
        match &self.inspection {
            Ok(Inspection { user, .. }) => user.to_string(),
            Err(_) => "the target's own default user, or the one that was named".to_owned(),
        }
    }
}

impl BridgeFacts {
    /// Whether the link doesn't answer.
    const fn is_silent(&self) -> bool {
        matches!(self, Self::Up { round_trip: Ok(None), .. })
    }

    /// The status of a bridge that is up.
    pub(crate) const fn status(&self) -> Option<&BridgeStatus> {
        match self {
            Self::Up { status, .. } => Some(status),
            Self::Unknown | Self::Down { .. } => None,
        }
    }
}

/// Gathers everything about a target, and the host.
pub(crate) async fn gather(
    address: &TargetAddress,
    subject: &Subject,
    settings: Settings,
    state: StateFacts,
) -> Result<Facts> {
    let ((engine, found), transport) = tokio::join!(find(address, &settings), transport(address));
    let (found, noted) = match found {
        Ok((target, presence)) => {
            let (target, noted) = as_bridged(target, &settings, &state)?;
            (Ok((target, presence)), noted)
        }
        Err(error) => (Err(error), None),
    };
    let address = found.as_ref().map_or_else(|_| address.clone(), |(target, _)| target.address());
    // With the full address, tables of the configuration file may be others.
    let options = Options { user: noted, ..Options::default() };
    let options = subject.options.clone().or(&options);
    let mut settings = subject.config.settings(&address.to_string(), &options)?;
    if let Some(lanes) =
        kept_lanes(&found, &state, &options).filter(|_| !settings.lanes_are_named())
    {
        settings.lanes = lanes;
    }
    let bridge = match &found {
        Ok((target, _)) => bridge(target, &state).await,
        Err(_) => BridgeFacts::Unknown,
    };
    let similar = match &found {
        Err(error) if error.kind == ErrorKind::NoTarget => Candidates::similar(&address).await,
        Ok(_) | Err(_) => None,
    };
    let lending = bridge.status().map(|status| status.lending.clone());
    let folder = match (&found, &state.manager) {
        (Ok((target, _)), Some(manager)) => Some(manager.folder_of(&target.key())),
        _ => None,
    };
    let folder = folder.filter(|_| lending.is_some());
    let ceiling = folder.and_then(|folder| Ceiling::read(&folder.ceiling()).ok().flatten());
    let helper = Helper { program: settings.options.helper_program.clone().map(Into::into) };
    let (host, contact) = tokio::join!(
        HostFacts::gather(&settings, &state, lending, ceiling),
        reach(&found, &helper)
    );
    let reached = contact.as_ref().map(Contact::reached).map_err(Clone::clone);
    let is_ready = bridge.status().is_some_and(|status| status.state == BridgeState::Ready);
    let inspection = match (contact, &found) {
        (Ok(contact), Ok((target, _))) => {
            let lanes = settings.lanes_for(target.lane_scope());
            let is_answering = is_ready && !bridge.is_silent();
            let arguments = inspection::arguments(&host, &lanes, is_answering);
            let limit = helper_limit(target, &contact.reached());
            inspection::run(contact, target, &arguments, limit).await
        }
        (Ok(_) | Err(_), _) => Err(not_known()),
    };
    let target =
        TargetFacts { address, engine, transport, found, similar, bridge, reached, inspection };
    let flags = subject.flags()?;
    let config_file = subject.config.path().map(ToOwned::to_owned);
    let (target, bridges) = (Some(target), Vec::new());
    Ok(Facts { host, target, bridges, settings, flags, config_file })
}

/// The target as a bridge reaches it: for the user that it was bridged for, if no other one was named, and
/// without a question. The user too, if that was noted.
fn as_bridged(
    target: Target,
    settings: &Settings,
    state: &StateFacts,
) -> Result<(Target, Option<String>)> {
    let target = target.with_auth_sock(&settings.ssh_auth_sock).asking(Questions::NotAsked);
    let folder = state.manager.as_ref().map(|manager| manager.folder_of(&target.key()));
    let noted = folder.and_then(|folder| folder.user());
    match noted.filter(|_| settings.options.user.is_none()) {
        Some(user) => Ok((target.for_user(Some(&user))?, Some(user))),
        None => Ok((target, None)),
    }
}

/// The lanes of a bridge that runs or was killed, which an `up` that doesn't name others keeps.
fn kept_lanes(
    found: &Result<(Target, Presence)>,
    state: &StateFacts,
    options: &Options,
) -> Option<Vec<Lane>> {
    let (target, _) = found.as_ref().ok()?;
    let folder = state.manager.as_ref()?.folder_of(&target.key());
    // An `up` that can't read them says so.
    let kept = folder.kept_settings().ok()??;
    let invocation = Invocation { options: options.clone(), ..kept.clone() };
    let settings = ConfigFile::default().settings_for(&target.address().to_string(), &kept).ok()?;
    Some(settings.with(&invocation).ok()?.lanes)
}

type Found = (Option<Result<String>>, Result<(Target, Presence)>);

/// Finds the engine of a container, and the target.
async fn find(address: &TargetAddress, settings: &Settings) -> Found {
    let user = settings.options.user.as_deref();
    let Some(name) = address.container() else {
        return (None, Target::find_any(address, user).await);
    };
    let engine = async {
        match address {
            TargetAddress::Docker(_) => Engine::of_kind(EngineKind::Docker).await,
            TargetAddress::Podman(_) => Engine::of_kind(EngineKind::Podman).await,
            _ => Engine::that_has(name).await,
        }
    };
    match tokio::time::timeout(CONTAINER_TIME, Box::pin(engine)).await {
        Ok(Ok(engine)) => {
            let found = within(address, CONTAINER_TIME, engine.find(name, user));
            let (version, found) = tokio::join!(describe(&engine), found);
            (Some(version), found)
        }
        Ok(Err(error)) => without_engine(error).await,
        Err(_) => {
            let message = format!("no engine answers within {} s", CONTAINER_TIME.as_secs());
            let error = Error::new(ErrorKind::NoTarget, message).hint(
                "see if `docker info` or `podman info` answers; restart the engine if it doesn't",
            );
            (Some(Err(error)), Err(not_known()))
        }
    }
}

/// Tells an engine that can't be used from a container that isn't there.
async fn without_engine(error: Error) -> Found {
    if error.check != Some(Check::Target) {
        return (Some(Err(error)), Err(not_known()));
    }
    let engines = Engine::all().await.unwrap_or_default();
    let described = join_all(engines.iter().map(describe)).await;
    let described: Vec<String> = described.into_iter().flatten().collect();
    (Some(Ok(described.join(", "))), Err(error))
}

async fn describe(engine: &Engine) -> Result<String> {
    let version = within(engine.kind(), HOST_TIME, engine.version()).await?;
    Ok(format!("{} {version}", engine.kind()))
}

async fn bridge(target: &Target, state: &StateFacts) -> BridgeFacts {
    // No folder: nothing was bridged ever.
    let Some(manager) = &state.manager else {
        return if state.is_missing() {
            BridgeFacts::Down { why: None }
        } else {
            BridgeFacts::Unknown
        };
    };
    let folder = manager.folder_of(&target.key());
    let ask = async {
        let Some(status) = manager.status_at(&folder).await else {
            return Ok(BridgeFacts::Down { why: folder.end_reason() });
        };
        let round_trip = match status.state {
            BridgeState::Ready => manager.round_trip(&folder).await,
            // There is no link, or nothing that answers.
            BridgeState::Starting | BridgeState::Waiting | BridgeState::Failed => Ok(None),
        };
        Ok(BridgeFacts::Up { status: Box::new(status), round_trip })
    };
    within("the bridge", CONTAINER_TIME, ask).await.unwrap_or(BridgeFacts::Unknown)
}

/// How long a target may take to answer.
const fn limit_of(target: &Target) -> Duration {
    if target.is_container() { CONTAINER_TIME } else { LOGIN_TIME }
}

/// How long the helper may take, with its copy if that is needed.
const fn helper_limit(target: &Target, reached: &Reached) -> Duration {
    if reached.has_helper || target.is_container() || target.is_local() {
        CONTAINER_TIME
    } else {
        COPY_TIME
    }
}

/// Reaches a target that runs.
async fn reach<'a>(
    found: &'a Result<(Target, Presence)>,
    helper: &'a Helper,
) -> Result<Contact<'a>> {
    let Ok((target, Presence::Running)) = found else { return Err(not_known()) };
    within(target.address(), limit_of(target), Contact::open(target, helper, false)).await
}
