//! The command line of the helper: every setting that reaches it does so here.

use std::path::Path;

use tracing::level_filters::LevelFilter;

use super::BridgeSetup;
use super::agents::Agents;
use super::git::SigningKey;
use crate::Result;
use crate::gnupg::Gnupg;
use crate::keys::PublicKeys;

impl BridgeSetup<'_> {
    /// The arguments that depend on the settings and on this machine.
    pub(super) async fn helper_arguments(
        &self,
        gnupg: &Gnupg,
        agents: &Agents,
        keys: &PublicKeys,
    ) -> Result<Vec<String>> {
        let settings = self.settings;
        let mut words: Vec<String> = ["serve", "--mux", "2"].map(str::to_owned).into();
        let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
        let lanes: Vec<String> = agents.lanes().iter().map(ToString::to_string).collect();
        add("--lanes", lanes.join(","));
        if settings.lanes_are_named() {
            add("--need", lanes.join(","));
        }
        add("--max-sessions", settings.max_sessions.to_string());
        if agents.gpg.is_some()
            && let Some(id) = file_id(&gnupg.dirs().await?.home)
        {
            add("--host-home", id);
        }
        if agents.ssh.is_some()
            && let Some(home) = std::env::var_os("HOME")
            && let Some(id) = file_id(&Path::new(&home).join(".ssh"))
        {
            add("--host-ssh", id);
        }
        if let Some(token) = self.token {
            add("--bridge", token.to_owned());
            add("--outlive", settings.outlive.as_secs().to_string());
        }
        // The helper logs as much as this program does.
        add("--log", LevelFilter::current().max(LevelFilter::WARN).to_string());
        if settings.git() {
            let key = SigningKey::find(&agents.lanes(), keys).await?;
            add("--git", key.option());
        }
        if settings.options.replace == Some(true) {
            words.push("--replace".to_owned());
        }
        Ok(words)
    }
}

/// What shows a helper on this machine that a folder is the host's own: device and inode.
fn file_id(path: &Path) -> Option<String> {
    let status = rustix::fs::stat(path).ok()?;
    Some(format!("{}:{}", status.st_dev, status.st_ino))
}
