//! What another `up` changes on a bridge that is up.
//!
//! Only the settings that its command line and environment name are changed: on the link if possible,
//! otherwise with a new link.

use std::time::Duration;

use keybridge_proto::printable;
use tokio::time::timeout;

use super::BridgeState;
use super::control::TakenOver;
use super::lifecycle::attempt_time;
use super::managed_bridge::ManagedBridge;
use crate::config::{Invocation, Options, Settings};
use crate::gnupg::Gnupg;
use crate::keyring::{Keyring, Lending};
use crate::platform::raise_descriptor_limit;
use crate::setup::BridgeSetup;
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
        let before = self.settings();
        let after = before.with(invocation)?;
        self.check_changes(&before, &invocation.options)?;
        let changed = after.options.differing(&before.options);
        let mut attempts = self.attempts.subscribe();
        let attempted = *attempts.borrow_and_update();
        let mut warnings = Vec::new();
        if before.can_share_link(&after) {
            warnings = self.change_keys(&before, after, &invocation.options).await?;
        } else {
            Box::pin(self.change_link(after)).await?;
        }
        // Callers can wait for the link together.
        drop(turn);
        if self.live().is_none() {
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
        let _ = timeout(NEWS_TIME, self.not_paused()).await;
        let status = self.status();
        if status.state != BridgeState::Ready {
            return Err(status.error());
        }
        Ok(TakenOver { status, options: self.settings().options, changed, warnings })
    }

    /// Refuses what can't be changed while the bridge is up.
    fn check_changes(&self, before: &Settings, named: &Options) -> Result<()> {
        let address = self.address();
        if let Some(user) = &named.user
            && !self.is_for_user(user)
        {
            let now = self.user().or_else(|| before.options.user.clone());
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

    /// Changes which keys are lent, on the link if there is one. If a part is wrong, nothing changes. Returns
    /// warnings for the caller.
    async fn change_keys(
        &self,
        before: &Settings,
        after: Settings,
        named: &Options,
    ) -> Result<Vec<String>> {
        // Set first, so that a link that is made meanwhile has them.
        self.set_settings(after.clone());
        let changed = self.apply_keys(after, named).await;
        if changed.is_err() {
            self.set_settings(before.clone());
            if let Some(live) = self.live() {
                live.lend_again(before.lending.clone(), before.policy.ssh_keys.clone()).await;
            }
        }
        if let Some(live) = self.live() {
            live.set_auth_sock(&self.settings().ssh_auth_sock);
        }
        changed
    }

    async fn apply_keys(&self, after: Settings, named: &Options) -> Result<Vec<String>> {
        let names_lending = named.lend.is_some() || named.keys.is_some() || named.uses.is_some();
        let warnings =
            if names_lending { self.lend(after.gnupg(), after.lending).await? } else { Vec::new() };
        if let (Some(live), Some(_)) = (self.live(), &named.ssh_keys) {
            live.set_ssh_keys(after.policy.ssh_keys).await?;
        }
        Ok(warnings)
    }

    async fn lend(&self, gnupg: Gnupg, lending: Lending) -> Result<Vec<String>> {
        if let Some(live) = self.live() {
            return live.lend(lending).await;
        }
        let (_, choice) = Keyring::open(gnupg, lending).await?;
        Ok(choice.warnings.clone())
    }

    /// Makes a new link with other settings, if this machine has what they need.
    async fn change_link(&self, after: Settings) -> Result<()> {
        BridgeSetup::new(self.target(), &after).check_host().await?;
        raise_descriptor_limit(after.max_sessions);
        self.set_settings(after);
        if self.live().is_some() {
            self.waits("its settings have changed");
            self.request_link();
        }
        Ok(())
    }
}
