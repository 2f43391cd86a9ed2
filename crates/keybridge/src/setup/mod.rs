//! Sets up a bridge, step by step, in the same way for every kind of target:
//!
//! 1. finds the agents of the host, and starts gpg-agent if it isn't running;
//! 2. exports the public keys and their ownertrust;
//! 3. reaches the target, and starts the helper there, which is copied if it is missing;
//! 4. speaks the mux over the helper's standard input and output, and sends the keys;
//! 5. has the helper ask the agents through its own sockets, if a person waits.
//!
//! A link that is made again begins with the target, which is most likely still away.

pub(crate) mod agents;
mod git;
pub(crate) mod helper_arguments;
mod helper_log;
mod link;
mod version_1;

use std::cell::RefCell;
use std::rc::Rc;

use keybridge_proto::Lane;
use keybridge_proto::mux::Cookie;
use keybridge_proto::report::{Failure, FailureKind, KeyChanges, Purged};
use keybridge_proto::session::Operations;
use tokio::sync::Mutex;

use crate::bridge::{self, Bridge};
use crate::config::{LaneScope, Settings};
use crate::gnupg::Gnupg;
use crate::helper::Helper;
use crate::keyring::{Keyring, SharedCeiling};
use crate::keys::{self, Form, KeyFilter, PublicKeys};
use crate::output::Report;
use crate::target::{
    Contact, Installed, Process, Questions, Target, TargetCommand, random_bytes, says,
};
use crate::{Error, ErrorKind, Result};
use agents::Agents;
use git::SigningKey;
use helper_log::HelperLog;
pub(crate) use helper_log::LogQuota;
pub(crate) use link::Link;

/// Sets up links to one target.
pub(crate) struct LinkSetup<'a> {
    target: &'a Target,
    settings: &'a Settings,
    /// Identifies the bridge to its helpers. A helper that has a token outlives its link.
    token: Option<&'a str>,
    /// Whether the helper doesn't wait for a link that was lost.
    ends_with_link: bool,
    /// The helper in the target, once it was found or installed.
    installed: RefCell<Option<Installed>>,
    /// How much the helper may log.
    quota: Rc<LogQuota>,
    operations: Operations,
    ceiling: SharedCeiling,
}

impl<'a> LinkSetup<'a> {
    /// A set-up whose helper ends with its link.
    pub(crate) fn new(target: &'a Target, settings: &'a Settings) -> Self {
        let (installed, quota) = (RefCell::default(), Rc::default());
        let (operations, ceiling) = (Operations::default(), SharedCeiling::default());
        let ends_with_link = false;
        Self {
            target,
            settings,
            token: None,
            ends_with_link,
            installed,
            quota,
            operations,
            ceiling,
        }
    }

    /// Shares a quota of log lines with other set-ups of the same bridge.
    #[must_use]
    pub(crate) fn with_quota(self, quota: &Rc<LogQuota>) -> Self {
        Self { quota: Rc::clone(quota), ..self }
    }

    /// Shares the private-key operations of the same bridge, which outlive a link.
    #[must_use]
    pub(crate) fn with_operations(self, operations: &Operations) -> Self {
        Self { operations: operations.clone(), ..self }
    }

    /// Shares what the same bridge may lend at most. If that isn't set yet, a link for a person who waits
    /// sets it.
    #[must_use]
    pub(crate) fn with_ceiling(self, ceiling: &SharedCeiling) -> Self {
        Self { ceiling: ceiling.clone(), ..self }
    }

    /// Has the helper outlive its link: the next helper with the same token takes over from it.
    #[must_use]
    pub(crate) fn with_token(self, token: &'a str) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Has the helper undo everything and end when its link ends, whatever the settings say.
    #[must_use]
    pub(crate) fn ending_with_link(self) -> Self {
        Self { ends_with_link: true, ..self }
    }

    /// Makes a link for a person who waits, and checks that the agents answer through the whole chain.
    pub(crate) async fn run(&self, report: &Report) -> Result<Link> {
        let link = self.make_link(true, report).await?;
        let is_named = self.settings.lanes_are_named();
        let asked = async { Ok(((), link.check_chain(is_named, report).await?)) };
        if let Err(error) = report.step("a question through the chain", asked).await {
            // A helper that outlives its link waits for the next one; any other is of no use.
            if self.token.is_none() {
                let _ = link.stop().await;
            }
            return Err(error);
        }
        Ok(link)
    }

    /// Makes a link again, where nobody waits for it: the agents aren't asked through the chain.
    pub(crate) async fn relink(&self, report: &Report) -> Result<Link> {
        self.make_link(false, report).await
    }

    /// Checks that the host has what the settings name: agents, keys, a helper. Changes nothing.
    pub(crate) async fn check_host(&self) -> Result<()> {
        let silent = Report::silent();
        let gnupg = self.settings.gnupg();
        let agents =
            Agents::find(&self.lanes(), self.settings, &gnupg, &self.ceiling, true, &silent)
                .await?;
        agents.check_ssh_keys(self.settings, &silent)?;
        self.check_lanes()?;
        if self.settings.git() && !self.is_for_sandboxes() {
            let keys = match &agents.gpg {
                Some(agent) => export(&gnupg, &agent.keyring).await?.0,
                None => PublicKeys::default(),
            };
            SigningKey::find(&agents, &keys, &self.settings.ssh_auth_sock).await?;
        }
        self.helper().check()
    }

    /// Makes a link. If `asks` is set, a person waits: missing keys are errors, and the helper asks the
    /// agents through the whole chain.
    async fn make_link(&self, asks: bool, report: &Report) -> Result<Link> {
        let helper = self.helper();
        self.check_lanes()?;
        // A link that is made again begins with the target, which is most likely still away.
        let reached = match (&self.settings.options.helper, asks) {
            (None, false) => Some(self.reach(&helper).await?),
            (Some(_), _) | (_, true) => None,
        };
        let gnupg = self.settings.gnupg();
        let (lanes, ceiling) = (self.lanes(), &self.ceiling);
        let agents = Agents::find(&lanes, self.settings, &gnupg, ceiling, asks, report).await?;
        if asks {
            agents.check_ssh_keys(self.settings, report)?;
        }
        let described = async { Ok(((), self.target.describe())) };
        report.step("the target", described).await?;
        if let Some(server) = &self.settings.options.helper {
            return self.run_version_1(server, &gnupg, agents, report).await;
        }
        let keys = match &agents.gpg {
            Some(agent) => {
                let keys = export(&gnupg, &agent.keyring);
                match report.step("public keys to send", keys).await {
                    // The target has those of an earlier link.
                    Err(error) if !asks => {
                        tracing::warn!(%error, "no public keys are sent");
                        PublicKeys::default()
                    }
                    keys => keys?,
                }
            }
            None => PublicKeys::default(),
        };
        for warning in &keys.warnings {
            report.warn(warning);
        }
        let mut arguments = self.helper_arguments(&gnupg, &agents, &keys).await?;
        if asks {
            arguments.push("--ask".to_owned());
        }
        let cookie = Cookie::new(random_bytes()?);
        arguments.extend(["--cookie".to_owned(), cookie.hex()]);
        let ssh = agents.ssh.clone();
        let begin = async {
            let contact = match reached {
                Some(contact) => contact,
                None => self.reach(&helper).await?,
            };
            let (installed, process) = contact.start(&arguments, &[]).await?;
            self.installed.replace(Some(installed.clone()));
            Ok(((installed, process), String::new()))
        };
        let (installed, process) = report.step("the helper in the target", begin).await?;
        let start = async {
            let link = self.start(installed, process, &cookie, agents, &keys).await?;
            let changes = match link.ready().sockets.gpg {
                Some(_) => describe(link.keys().unwrap_or_default()),
                None => String::new(),
            };
            Ok((link, changes))
        };
        let link = report.step("the bridge", start).await?;
        if let (Some(ssh), Some(socket)) = (&ssh, &link.ready().sockets.ssh)
            && self.target.is_local()
        {
            // The bridge must not take its own socket for the user's agent.
            ssh.set_own_socket(socket.into());
        }
        for warning in &link.ready().warnings {
            report.warn(warning);
        }
        link.log.show_warnings();
        Ok(link)
    }

    /// Makes a link as [`Self::run`] does. If `stopped` is done first, what was set up is undone, unless
    /// it is done a second time.
    pub(crate) async fn run_until(
        &self,
        mut stopped: impl AsyncFnMut(),
        report: &Report,
    ) -> Result<Link> {
        let mut running = Box::pin(self.run(report));
        let link = tokio::select! {
            link = &mut running => link,
            () = stopped() => {
                // Not dropped: the helper could no longer undo what it has done.
                tokio::select! {
                    link = &mut running => if let Ok(link) = link { link.stop().await? },
                    () = stopped() => {}
                }
                Err(Error::failed("interrupted"))
            }
        };
        if link.is_err() {
            self.undo_attempt().await;
        }
        link
    }

    /// Undoes what helpers without a link have left in the target. Says where it hasn't, since another
    /// bridge's helper is at work there.
    pub(crate) async fn undo(&self) -> Result<Vec<String>> {
        if self.settings.options.helper.is_some() {
            // A version 1 server undoes its changes itself.
            return Ok(Vec::new());
        }
        let installed = self.install_helper().await?;
        let said = self.run_undo(&installed, &[]).await?;
        if installed.is_new {
            remove(self.target, &installed).await?;
        }
        let in_use = said.lines().map(|line| Failure::decode(line.as_bytes()));
        let in_use =
            in_use.filter(|failure| failure.kind == FailureKind::InUse).take(Lane::ALL.len());
        let name = self.target.address().name();
        Ok(in_use.map(|failure| says(&name, &failure.message)).collect())
    }

    /// Undoes what helpers have left in the target, and removes the keys that they imported, and the helper
    /// itself.
    pub(crate) async fn purge(&self) -> Result<Purged> {
        let installed = self.install_helper().await?;
        let said = self.run_undo(&installed, &["--purge"]).await?;
        let purged = Purged::find(said.as_bytes()).map_err(|error| {
            Error::failed("the helper doesn't say what it has removed").caused_by(error)
        });
        remove(self.target, &installed).await?;
        purged
    }

    async fn run_undo(&self, installed: &Installed, options: &[&str]) -> Result<String> {
        let mut words = vec![installed.path.as_str(), "undo"];
        words.extend(self.token.iter().flat_map(|token| ["--bridge", token]));
        words.extend(options);
        self.target.output(&TargetCommand::new(words)).await
    }

    /// Undoes an attempt that failed.
    async fn undo_attempt(&self) {
        let Some(installed) = self.installed.borrow().clone() else { return };
        if self.token.is_some()
            && let Err(error) = self.undo().await
        {
            tracing::debug!(%error, "undoing a failed attempt");
        }
        if installed.is_new {
            let _ = remove(self.target, &installed).await;
        }
    }

    /// Whether it serves sandboxes on the host, whose git has its own key and settings.
    fn is_for_sandboxes(&self) -> bool {
        self.target.lane_scope() == LaneScope::Sandboxes
    }

    fn check_lanes(&self) -> Result<()> {
        let others = self.settings.lanes.iter().any(|lane| *lane != Lane::Git);
        if self.is_for_sandboxes() && self.settings.lanes_are_named() && others {
            let message = "a sandbox on the host can have the git lane alone";
            return Err(Error::new(ErrorKind::Usage, message).hint("leave --lanes out"));
        }
        Ok(())
    }

    fn lanes(&self) -> Vec<Lane> {
        self.settings.lanes_for(self.target.lane_scope())
    }

    /// The lanes whose agents are there now.
    pub(crate) async fn lanes_there(&self) -> Vec<Lane> {
        let (gnupg, report) = (self.settings.gnupg(), Report::silent());
        let (lanes, ceiling) = (self.lanes(), &self.ceiling);
        let found = Agents::find(&lanes, self.settings, &gnupg, ceiling, false, &report).await;
        found.map_or_else(|_| Vec::new(), |agents| agents.lanes())
    }

    fn bridge_settings(&self, agents: &Agents) -> bridge::Settings {
        bridge::Settings {
            target: self.target.address().name(),
            policy: self.settings.policy.clone(),
            limits: self.settings.limits,
            max_sessions: self.settings.max_sessions,
            lanes: agents.lanes(),
            ssh: agents.ssh.clone(),
            git: agents.git.clone(),
            operations: self.operations.clone(),
        }
    }

    fn helper(&self) -> Helper {
        Helper { program: self.settings.options.helper_program.clone().map(Into::into) }
    }

    /// Makes sure that the helper is in the target.
    async fn install_helper(&self) -> Result<Installed> {
        let helper = self.helper();
        let installed = Contact::open(self.target, &helper, false).await?.install().await?;
        self.installed.replace(Some(installed.clone()));
        Ok(installed)
    }

    /// Reaches the target, in which the helper is to be started.
    async fn reach<'h>(&self, helper: &'h Helper) -> Result<Contact<'h>>
    where
        'a: 'h,
    {
        Contact::open(self.target, helper, self.token.is_some()).await
    }

    async fn start(
        &self,
        installed: Installed,
        process: Process,
        cookie: &Cookie,
        agents: Agents,
        keys: &PublicKeys,
    ) -> Result<Link> {
        let (stdout, stdin, mut helper) = process.split();
        let mut log = HelperLog::follow(helper.take_stderr(), self.target, &self.quota);
        let settings = self.bridge_settings(&agents);
        match Bridge::start(stdout, stdin, cookie, settings, agents.gpg, keys).await {
            Ok(bridge) => Ok(Link {
                bridge,
                helper: Mutex::new(helper),
                log,
                // A person who waits for this link is asked for it alone.
                target: self.target.clone().asking(Questions::NotAsked),
                installed: Some(installed),
            }),
            Err(error) => {
                // A helper without a token ends when its streams are closed. Its last log lines may say
                // what went wrong.
                if self.token.is_none() {
                    let _ = tokio::time::timeout(bridge::STOP_TIME, helper.wait()).await;
                }
                log.finish().await;
                Err(log.explain(error))
            }
        }
    }
}

/// Removes a helper from a target.
pub(crate) async fn remove(target: &Target, installed: &Installed) -> Result<()> {
    target.output(&TargetCommand::new([&installed.path, "remove"])).await.map(|_| ())
}

async fn export(gnupg: &Gnupg, keyring: &Keyring) -> Result<(PublicKeys, String)> {
    let filter = keyring.public_keys().await;
    let keys = keys::export(gnupg, &filter, Form::Binary).await?;
    match &filter {
        KeyFilter::List(words) if !words.is_empty() && keys.keys.is_empty() => {
            return Err(keys::nothing_matches(gnupg, &words.join(",")).await);
        }
        KeyFilter::Pairs | KeyFilter::All | KeyFilter::List(_) => {}
    }
    let count = match keys.keys.len() {
        0 => "none".to_owned(),
        count => count.to_string(),
    };
    Ok((keys, count))
}

fn describe(keys: KeyChanges) -> String {
    let KeyChanges { new, updated, unchanged, .. } = keys;
    match (new, updated, unchanged) {
        (0, 0, 0) => "no keys".to_owned(),
        (0, 0, 1) => "1 key, unchanged".to_owned(),
        (0, 0, _) => format!("{unchanged} keys, unchanged"),
        _ => format!("keys: {new} new, {updated} updated, {unchanged} unchanged"),
    }
}
