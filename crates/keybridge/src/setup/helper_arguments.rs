//! The command line of the helper: every setting that reaches it does so here.

use std::path::Path;
use std::time::Duration;

use tracing::level_filters::LevelFilter;

use super::LinkSetup;
use super::agents::Agents;
use super::git::SigningKey;
use crate::Result;
use crate::gnupg::Gnupg;
use crate::keys::PublicKeys;
use crate::platform::{file_id, variable};

impl LinkSetup<'_> {
    /// The arguments that depend on the settings and on the host.
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
        let home = match &agents.gpg {
            Some(_) => Some(gnupg.dirs().await?.home),
            None => None,
        };
        for (name, id) in host_folders(home.as_deref(), agents.ssh.is_some()) {
            add(name, id);
        }
        if let Some(token) = self.token {
            add("--bridge", token.to_owned());
            let outlive = if self.ends_with_link { Duration::ZERO } else { settings.outlive };
            add("--outlive", outlive.as_secs().to_string());
        }
        // The helper logs as much as this program does.
        add("--log", LevelFilter::current().max(LevelFilter::WARN).to_string());
        if self.is_for_sandboxes() {
            add("--git", "sandboxes".to_owned());
        } else if settings.git() {
            let key = SigningKey::find(agents, keys, &settings.ssh_auth_sock).await?;
            add("--git", key.option());
        }
        if let Some(pipes) = &settings.options.pipes {
            add("--pipes", pipes.clone());
        }
        if settings.options.replace == Some(true) {
            words.push("--replace".to_owned());
        }
        Ok(words)
    }
}

/// The arguments that keep a helper on the host from the host's own folders.
pub(crate) fn host_folders(
    gnupg_home: Option<&Path>,
    ssh: bool,
) -> impl Iterator<Item = (&'static str, String)> {
    let user_home = variable("HOME").filter(|_| ssh);
    let ssh_folder = user_home.map(|home| Path::new(&home).join(".ssh"));
    let gnupg = gnupg_home.and_then(shown_id).map(|id| ("--host-home", id));
    let ssh = ssh_folder.and_then(|folder| shown_id(&folder)).map(|id| ("--host-ssh", id));
    gnupg.into_iter().chain(ssh)
}

/// What shows a helper on the host that a folder is the host's own: device and inode.
fn shown_id(path: &Path) -> Option<String> {
    file_id(path).map(|(device, inode)| format!("{device}:{inode}"))
}
