//! What the checks judge. Everything is gathered once, side by side, each piece within its time, by the
//! functions that `up` uses: the two can't disagree. No agent is started, and no change stays.

mod host;
mod inspection;
mod target;

use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use keybridge_proto::Lane;
use keybridge_proto::inspection::Inspection;

use crate::config::{self, ConfigFile, LaneScope, Options, Settings};
use crate::doctor::Fix;
use crate::shell_quote;
use crate::supervisor::{BridgeState, BridgeStatus};
use crate::target::{RunAs, TargetAddress, mark_if_words};
use crate::{Error, ErrorKind, Result};
pub(crate) use host::{HostFacts, StateFacts};
pub(crate) use target::{BridgeFacts, TargetFacts};

/// What is to be checked.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) address: Option<TargetAddress>,
    pub(crate) options: Options,
    pub(crate) config: ConfigFile,
}

impl Subject {
    /// What the caller has set, as flags for `up`.
    fn flags(&self) -> Result<Vec<String>> {
        let default = config::default_path();
        let file = self.config.path().filter(|path| Some(*path) != default.as_deref());
        let file = file.map(|path| format!("--config={}", path.display()));
        // The user may be that of the bridge.
        let options = Options { user: None, ..self.options.clone() };
        Ok(file.into_iter().chain(options.flags()?).collect())
    }
}

/// Everything that was gathered.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) host: HostFacts,
    /// If a target was named.
    pub(crate) target: Option<TargetFacts>,
    /// Every bridge that is up, if no target was named.
    pub(crate) bridges: Vec<BridgeStatus>,
    /// What `up` would use.
    pub(crate) settings: Settings,
    /// The flags for `up` that have it use just that: what is lent must not depend on who types it.
    pub(crate) flags: Vec<String>,
    /// The configuration file, if there is one.
    pub(crate) config_file: Option<PathBuf>,
}

impl Facts {
    /// Gathers everything about a subject. Fails only if the settings are wrong.
    pub(crate) async fn gather(subject: &Subject) -> Result<Self> {
        let Subject { address, options, config } = subject;
        let name = address.as_ref().map(ToString::to_string).unwrap_or_default();
        let settings = config.settings(&name, options)?;
        let state = StateFacts::gather(options);
        let Some(address) = address else {
            let (host, bridges) = tokio::join!(
                Box::pin(HostFacts::gather(&settings, &state, None, None)),
                bridges(&state)
            );
            let config_file = config.path().map(ToOwned::to_owned);
            let flags = subject.flags()?;
            return Ok(Self { host, target: None, bridges, settings, flags, config_file });
        };
        // Boxed: it is large.
        Box::pin(target::gather(address, subject, settings, state)).await
    }

    /// The lanes that `up` would bridge.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        let address = self.target.as_ref().map(|target| &target.address);
        let scope = address.map_or(LaneScope::Target, TargetAddress::lane_scope);
        self.settings.lanes_for(scope)
    }

    /// The lanes that `up` would bridge, and this one, as `--lanes` names them.
    pub(crate) fn lanes_and(&self, lane: Lane) -> String {
        let mut lanes = self.lanes();
        if !lanes.contains(&lane) {
            lanes.push(lane);
        }
        lanes.iter().map(Lane::to_string).collect::<Vec<_>>().join(",")
    }

    /// The command that bridges the target, with some more options.
    pub(crate) fn up(&self, options: &[&str]) -> String {
        let target = self.target_name().unwrap_or_else(|| "TARGET".to_owned());
        let user = self.settings.options.user.iter().flat_map(|user| ["--user", user]);
        let is_set = |flag: &&str| {
            let name = flag.split('=').next().unwrap_or_default();
            options.iter().any(|option| option.split('=').next() == Some(name))
        };
        let flags = self.flags.iter().map(String::as_str).filter(|flag| !is_set(flag));
        let words = ["keybridge", "up"].into_iter().chain(options.iter().copied());
        shell_quote::line(words.chain(flags).chain(user).chain([&*target]))
    }

    /// A command, and the one that bridges the target after it.
    pub(crate) fn then_up(&self, command: &str) -> String {
        match self.target {
            Some(_) => format!("{command} && {}", self.up(&[])),
            None => command.to_owned(),
        }
    }

    /// A fix that ends with `up`, which takes the settings of now only if there is no bridge that keeps
    /// its own.
    pub(crate) fn fix_by_up(&self, command: String) -> Fix {
        Fix { lends: self.status().is_none(), ..Fix::safe(command) }
    }

    /// The command that sends the public keys again.
    pub(crate) fn sync(&self) -> String {
        shell_quote::line(["keybridge", "sync", &self.target_name().unwrap_or_default()])
    }

    /// The command line that runs words in the target.
    pub(crate) fn typed(&self, words: &[&str], run_as: RunAs) -> String {
        match self.target.as_ref().map(|target| &target.found) {
            Some(Ok((target, _))) => target.typed(words, run_as),
            Some(Err(_)) | None => shell_quote::line(words),
        }
    }

    /// What the helper has found in the target.
    pub(crate) fn inspection(&self) -> Option<&Inspection> {
        self.target.as_ref()?.inspection.as_ref().ok()
    }

    /// A value that the helper has found, for a sentence of ours.
    pub(crate) fn marked(&self, value: &str) -> String {
        let mut value = value.to_owned();
        if let Some(target) = &self.target {
            mark_if_words(&target.address.name(), &mut value);
        }
        value
    }

    /// The status of the target's bridge, if its process runs.
    pub(crate) fn status(&self) -> Option<&BridgeStatus> {
        self.target.as_ref()?.bridge.status()
    }

    /// Whether the target's bridge works.
    pub(crate) fn is_ready(&self) -> bool {
        self.status().is_some_and(|status| status.state == BridgeState::Ready)
    }

    /// The address of the target.
    pub(crate) fn target_name(&self) -> Option<String> {
        self.target.as_ref().map(|target| target.address.to_string())
    }
}

async fn bridges(state: &StateFacts) -> Vec<BridgeStatus> {
    let Some(manager) = &state.manager else { return Vec::new() };
    let all = async { Ok(manager.all().await) };
    let all = within("the bridges", HOST_TIME, all).await.unwrap_or_default();
    all.into_iter().map(|(_, status)| status).collect()
}

/// How long something on the host may take, which may be busy.
const HOST_TIME: Duration = Duration::from_secs(6);

/// Sets a time limit. `who` is expected to answer.
async fn within<T>(
    who: impl Display,
    limit: Duration,
    ask: impl Future<Output = Result<T>>,
) -> Result<T> {
    // Boxed: these futures are large, and there are many of them.
    tokio::time::timeout(limit, Box::pin(ask)).await.unwrap_or_else(|_| {
        let message = format!("{who}: no answer within {} s", limit.as_secs());
        Err(Error::new(ErrorKind::NoTarget, message))
    })
}

/// The error for what was not gathered, because something before it failed.
fn not_known() -> Error {
    Error::failed("not known, because of an earlier problem")
}

#[cfg(test)]
impl Facts {
    /// Nothing was gathered.
    pub(crate) fn none() -> Self {
        let settings = ConfigFile::default().settings("x", &Options::default()).expect("defaults");
        let (host, bridges, flags) = (HostFacts::none(), Vec::new(), Vec::new());
        Self { host, target: None, bridges, settings, flags, config_file: None }
    }
}
