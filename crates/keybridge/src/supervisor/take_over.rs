//! What another `up` changes on a bridge that is up.
//!
//! Only the settings that its command line and environment name are changed; the file isn't read again.
//! The choice of keys, what narrows it and `SSH_AUTH_SOCK` change on the link. Any other difference means a new link,
//! once the host is known to have what it needs, so that a new setting isn't listed here.

use std::rc::Rc;
use std::time::Duration;

use keybridge_proto::{Lane, printable};
use tokio::time::timeout;

use super::BridgeState;
use super::control::TakenOver;
use super::lifecycle::attempt_time;
use super::managed_bridge::ManagedBridge;
use crate::config::{Invocation, LaneScope, Options, Settings};
use crate::gnupg::Gnupg;
use crate::keyring::{Ceiling, Keyring, Lending, SharedCeiling};
use crate::known_hosts::KnownLogins;
use crate::platform::raise_descriptor_limit;
use crate::setup::LinkSetup;
use crate::setup::agents::ssh_dialer;
use crate::target::Questions;
use crate::{Error, Result};

/// How long an engine may take to report what has happened to a target.
const NEWS_TIME: Duration = Duration::from_secs(2);

impl ManagedBridge {
    /// Applies the settings that a caller of `up` names. A bridge that waits tries again at once, and the
    /// result is returned. After an error in the settings none of them has changed.
    pub(super) async fn up(&self, invocation: &Invocation) -> Result<TakenOver> {
        // One caller at a time: each builds on what the one before has set.
        let turn = self.take_over.lock().await;
        let (before, shown) = (self.settings(), self.ceiling().get());
        let mut after = before.with(invocation)?;
        self.check_changes(&before, &invocation.options)?;
        let mut changed = after.options.differing(&before.options);
        let mut warnings = Vec::new();
        if after.gnupg_home != before.gnupg_home && invocation.options.gnupg_home.is_none() {
            changed.push("gnupg-home".to_owned());
        }
        if after.ssh_auth_sock != before.ssh_auth_sock {
            if self.has_ssh_agent(&after).await {
                changed.push("ssh-agent".to_owned());
            } else {
                warnings.extend(keep_ssh_agent(&before, &mut after, self.target().lane_scope()));
            }
        }
        // Only for a person: the agent may be another one by now.
        let lost =
            if invocation.raises { self.lost_lanes(&before, &after).await } else { Vec::new() };
        changed.extend(lost.iter().map(|lane| format!("the {lane} lane is back")));
        let mut attempts = self.attempts.subscribe();
        let attempted = *attempts.borrow_and_update();
        if lost.is_empty() && before.can_share_link(&after, self.target().lane_scope()) {
            warnings.extend(self.change_keys(after, invocation).await?);
        } else {
            Box::pin(self.change_link(after, invocation.raises)).await?;
        }
        changed.extend(self.ceiling().get().beyond(&shown));
        self.keep_settings()?;
        // Callers can wait for the link together.
        drop(turn);
        if self.link().is_none() {
            let questions = invocation.questions();
            let time = attempt_time(&questions);
            self.set_questions(questions);
            self.retry_now();
            // A target that is away can take any time.
            let tried = attempts.wait_for(|attempts| *attempts > attempted);
            let _ = timeout(time, tried).await;
            self.set_questions(Questions::NotAsked);
            warnings.extend(self.attempt_warnings());
        }
        // Somebody may just have unpaused it.
        let _ = timeout(NEWS_TIME, self.until_running()).await;
        let status = self.status();
        if status.state != BridgeState::Ready {
            return Err(status.error());
        }
        Ok(TakenOver { status, options: self.settings().options, changed, warnings })
    }

    /// Whether an agent answers at `SSH_AUTH_SOCK` of these settings.
    async fn has_ssh_agent(&self, settings: &Settings) -> bool {
        let path = &settings.ssh_auth_sock;
        let known = match self.link() {
            Some(link) => link.has_ssh_agent_at(path).await,
            None => None,
        };
        match known {
            Some(answers) => answers,
            None => has_ssh_agent(settings).await,
        }
    }

    /// The lanes that the link is without, and whose agents are there again.
    async fn lost_lanes(&self, before: &Settings, after: &Settings) -> Vec<Lane> {
        let Some(link) = self.link() else { return Vec::new() };
        let scope = self.target().lane_scope();
        let wanted = before.lanes_for(scope);
        let mut lost = after.lanes_for(scope);
        lost.retain(|lane| wanted.contains(lane) && !link.lends(*lane));
        if !lost.is_empty() {
            let there = LinkSetup::new(self.target(), after).lanes_there().await;
            lost.retain(|lane| there.contains(lane));
        }
        lost
    }

    /// Refuses what can't be changed while the bridge is up.
    fn check_changes(&self, before: &Settings, named: &Options) -> Result<()> {
        let address = self.address();
        if let Some(user) = &named.user
            && !self.is_for_user(user)
        {
            let now = self.user().map(|user| user.to_string());
            let now = now.or_else(|| before.options.user.clone());
            let now = now.unwrap_or_else(|| "its default user".to_owned());
            let user = printable(user);
            return Err(Error::failed(format!("{address} is bridged for {}", printable(&now)))
                .hint(format!(
                    "keybridge down {address}, then keybridge up --user {user} {address}"
                )));
        }
        if named.helper.is_some() && named.helper != before.options.helper {
            let message = format!("{address} is bridged with another helper than --helper names");
            return Err(Error::failed(message)
                .hint(format!("keybridge down {address}, then keybridge up with --helper again")));
        }
        Ok(())
    }

    /// Changes which keys are lent, on the link if there is one. If a part is wrong, nothing changes: what
    /// can fail comes first. Returns warnings for the caller.
    async fn change_keys(&self, after: Settings, invocation: &Invocation) -> Result<Vec<String>> {
        let (named, raises) = (&invocation.options, invocation.raises);
        let link = self.link();
        let ssh_keys = match (&link, &named.ssh_keys) {
            (Some(link), Some(_)) => Some(link.find_ssh_keys(&after.policy.ssh_keys).await?),
            (None, _) | (_, None) => None,
        };
        let names_lending = named.lend.is_some() || named.keys.is_some() || named.uses.is_some();
        let warnings = if names_lending || raises {
            match self.lend(after.gnupg(), after.lending.clone(), raises).await {
                // Nothing was asked for that isn't there.
                Err(error) if !names_lending => vec![format!("no new key is lent: {error}")],
                lent => lent?,
            }
        } else {
            Vec::new()
        };
        let auth_sock = after.ssh_auth_sock.clone();
        let logins = KnownLogins::find(after.narrowing.logins.as_deref()).await;
        self.set_settings(after, logins);
        if let Some(link) = &link {
            if let Some(keys) = ssh_keys {
                link.set_ssh_keys(keys);
            }
            link.set_auth_sock(&auth_sock);
        }
        let is_same = self.link().as_ref().map(Rc::as_ptr) == link.as_ref().map(Rc::as_ptr);
        if !is_same {
            // It was made meanwhile, with the settings of before.
            self.request_link();
        }
        Ok(warnings)
    }

    async fn lend(&self, gnupg: Gnupg, lending: Lending, raises: bool) -> Result<Vec<String>> {
        if let Some(link) = self.link() {
            return link.lend(lending, raises).await;
        }
        let ceiling = SharedCeiling::default();
        let (_, choice) = Keyring::open(gnupg, lending, &ceiling).await?;
        if raises {
            self.ceiling().set(Ceiling::clone(&ceiling.get()))?;
        }
        Ok(choice.warnings())
    }

    /// Makes a new link with other settings, if the host has what they need.
    async fn change_link(&self, after: Settings, raises: bool) -> Result<()> {
        let ceiling = SharedCeiling::default();
        LinkSetup::new(self.target(), &after).with_ceiling(&ceiling).check_host().await?;
        if raises {
            self.ceiling().set(Ceiling::clone(&ceiling.get()))?;
        }
        raise_descriptor_limit(after.max_sessions);
        let logins = KnownLogins::find(after.narrowing.logins.as_deref()).await;
        self.set_settings(after, logins);
        if self.link().is_some() {
            self.set_waiting("its settings have changed");
            self.request_link();
        }
        Ok(())
    }
}

/// Whether an agent answers at `SSH_AUTH_SOCK` of these settings.
pub(super) async fn has_ssh_agent(settings: &Settings) -> bool {
    ssh_dialer(settings, &settings.gnupg()).answers_at(&settings.ssh_auth_sock).await
}

/// Keeps the `SSH_AUTH_SOCK` of before in place of one at which no agent answers. Gives back a warning of it
/// if the ssh lane is lent.
pub(super) fn keep_ssh_agent(
    before: &Settings,
    after: &mut Settings,
    scope: LaneScope,
) -> Option<String> {
    let stale = std::mem::replace(&mut after.ssh_auth_sock, before.ssh_auth_sock.clone());
    let lanes = after.lanes_for(scope);
    let for_git = lanes.contains(&Lane::Git) && after.agents_for_git().contains(&Lane::Ssh);
    (for_git || lanes.contains(&Lane::Ssh)).then(|| {
        format!(
            "no ssh-agent answers at {} (SSH_AUTH_SOCK): the bridge keeps the one that it has",
            stale.display()
        )
    })
}
