//! The way from nothing to a working bridge, step by step.

mod agents;
mod chain_check;
mod git;
mod helper_log;
mod live_bridge;
mod version_1;

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use keybridge_link::random;
use keybridge_proto::mux::Cookie;
use keybridge_proto::report::KeyChanges;
use keybridge_proto::{Lane, printable};
use tokio::sync::Mutex;

use crate::agent::OwnSocket;
use crate::bridge::{self, Bridge, LinkPath};
use crate::config::Settings;
use crate::gnupg::Gnupg;
use crate::helper::Helper;
use crate::keyring::Keyring;
use crate::keys::{self, Form, KeyFilter, PublicKeys};
use crate::report::Report;
use crate::target::{
    Begun, Found, Installed, Process, Target, TargetCommand, begin, direct, install,
};
use crate::{Error, Result};
use agents::Agents;
use git::SigningKey;
use helper_log::HelperLog;
pub(crate) use helper_log::Quota;
pub use live_bridge::LiveBridge;

/// Sets up a bridge to one target, as often as it takes.
pub struct BridgeSetup<'a> {
    target: &'a Target,
    settings: &'a Settings,
    /// Which bridge of which host this is. A helper that knows it outlives its link.
    token: Option<&'a str>,
    /// Where the helper is in the target, since it was put or found there.
    put: RefCell<Option<Installed>>,
    /// What the helper may say.
    quota: Rc<Quota>,
}

impl<'a> BridgeSetup<'a> {
    /// For a helper that ends with its link.
    pub fn new(target: &'a Target, settings: &'a Settings) -> Self {
        Self { target, settings, token: None, put: RefCell::default(), quota: Rc::default() }
    }

    /// For helpers that share one quota of log lines.
    #[must_use]
    pub(crate) fn sharing(self, quota: &Rc<Quota>) -> Self {
        Self { quota: Rc::clone(quota), ..self }
    }

    /// For helpers that outlive their links: the next one with the same token takes over.
    #[must_use]
    pub fn outliving(self, token: &'a str) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Makes a link, and shows each step. Ends with a question that went through the whole chain.
    pub async fn run(&self, report: &Report) -> Result<LiveBridge> {
        let live = self.make_link(true, report).await?;
        let asked = async { Ok(((), self.check_chain(&live, report).await?)) };
        if let Err(error) = report.step("a question through the chain", asked).await {
            // What was set up is of no use, and is not left behind; a helper that outlives its link
            // waits for the next one.
            if self.token.is_none() {
                let _ = live.stop().await;
            }
            return Err(error);
        }
        Ok(live)
    }

    /// Makes a link, and shows each step but the last: whoever waits for it asks itself.
    pub async fn link(&self, report: &Report) -> Result<LiveBridge> {
        self.make_link(false, report).await
    }

    /// Makes a link whose helper asks the agents through the whole chain, or doesn't.
    async fn make_link(&self, asks: bool, report: &Report) -> Result<LiveBridge> {
        let gnupg = Gnupg::new(Some(self.settings.gnupg_home.clone()));
        let agents = Agents::find(&self.lanes(), self.settings, &gnupg, asks, report).await?;
        if asks {
            agents.check_ssh_keys(self.settings, report)?;
        }
        let described = async { Ok(((), self.target.describe())) };
        report.step("the target", described).await?;
        if let Some(server) = &self.settings.helper {
            return self.run_version_1(server, &gnupg, agents, report).await;
        }
        let keys = match &agents.gpg {
            Some(agent) => {
                let keys = export(&gnupg, &agent.keyring);
                match report.step("public keys to send", keys).await {
                    // Those of an earlier link are there.
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
        let mut arguments = self.serve_arguments(&gnupg, &agents).await?;
        if self.settings.git {
            let key = SigningKey::find(&agents.lanes(), &keys).await?;
            arguments.extend(["--git".to_owned(), key.option()]);
        }
        if asks {
            arguments.push("--ask".to_owned());
        }
        let cookie =
            Cookie::new(random().map_err(|error| Error::failed(format!("random bytes: {error}")))?);
        arguments.extend(["--cookie".to_owned(), cookie.hex()]);
        let ssh = agents.ssh.clone();
        let begin = async { Ok((self.begin(arguments).await?, String::new())) };
        let (put, process) = report.step("the helper in the target", begin).await?;
        let start = async {
            let live = self.start(put, process, &cookie, agents, &keys).await?;
            let changes = match live.ready().gpg_socket {
                Some(_) => describe(live.keys().unwrap_or_default()),
                None => String::new(),
            };
            Ok((live, changes))
        };
        let live = report.step("the bridge", start).await?;
        if let (Target::Local(_), Some(ssh), Some(socket)) =
            (self.target, &ssh, &live.ready().ssh_socket)
        {
            // On this machine it could be found again as the user's own agent.
            ssh.set_own_sockets([OwnSocket::Path(socket.into())]);
        }
        for warning in &live.ready().warnings {
            report.warn(&printable(warning).to_string());
        }
        live.log.speak_up();
        Ok(live)
    }

    /// Makes a link unless it is stopped before; what was set up by then is undone. One that is stopped
    /// for a second time doesn't wait for that.
    pub async fn run_until(
        &self,
        mut stopped: impl AsyncFnMut(),
        report: &Report,
    ) -> Result<LiveBridge> {
        let mut running = Box::pin(self.run(report));
        let live = tokio::select! {
            live = &mut running => live,
            () = stopped() => {
                // Not dropped half-way: the helper could not undo what it has done by then.
                tokio::select! {
                    live = &mut running => if let Ok(live) = live { live.stop().await? },
                    () = stopped() => {}
                }
                Err(Error::failed("interrupted"))
            }
        };
        if live.is_err() {
            self.leave_nothing().await;
        }
        live
    }

    /// Undoes what helpers have left there to which there is no link.
    pub async fn undo(&self) -> Result<()> {
        if self.settings.helper.is_some() {
            // What a server of version 1 did is its own affair.
            return Ok(());
        }
        let put = self.place(None).await?;
        let mut words = vec![put.path.as_str(), "undo"];
        words.extend(self.token.iter().flat_map(|token| ["--bridge", token]));
        self.target.output(&TargetCommand::new(words), b"").await?;
        if put.is_new { remove(self.target, &put).await } else { Ok(()) }
    }

    /// Undoes an attempt that has failed, as far as it came.
    async fn leave_nothing(&self) {
        let Some(put) = self.put.borrow().clone() else { return };
        if self.token.is_some()
            && let Err(error) = self.undo().await
        {
            tracing::debug!(%error, "undoing what was begun");
        }
        if put.is_new {
            let _ = remove(self.target, &put).await;
        }
    }

    /// The lanes that are wanted. On this machine ssh has its agent already, unless it is asked for.
    fn lanes(&self) -> Vec<Lane> {
        match self.target {
            Target::Local(_) if !self.settings.lanes_are_named => vec![Lane::Gpg],
            Target::Local(_) | Target::Container(_) | Target::Editor(_) => {
                self.settings.lanes.clone()
            }
        }
    }

    fn bridge_settings(&self, agents: &Agents) -> bridge::Settings {
        bridge::Settings {
            target: self.target.address().to_string(),
            policy: self.settings.policy.clone(),
            limits: self.settings.limits,
            max_sessions: self.settings.max_sessions,
            lanes: agents.lanes(),
            ssh: agents.ssh.clone(),
        }
    }

    fn helper(&self) -> Helper {
        Helper { program: self.settings.helper_program.clone() }
    }

    async fn place(&self, found: Option<Found>) -> Result<Installed> {
        let put = install(self.target, &self.helper(), found).await?;
        self.put.replace(Some(put.clone()));
        Ok(put)
    }

    /// Starts the helper, and puts it there before if it isn't.
    async fn begin(&self, arguments: Vec<String>) -> Result<(Installed, Process)> {
        let mut arguments = TargetCommand::new(arguments);
        if self.token.is_some() {
            arguments = arguments.outliving();
        }
        match begin(self.target, &self.helper(), &arguments).await? {
            Begun::Runs(put, process) => {
                self.put.replace(Some(put.clone()));
                Ok((put, *process))
            }
            Begun::Not(found) => {
                let put = self.place(found).await?;
                let process = self.target.run(&put.command(&arguments)).await?;
                Ok((put, process))
            }
        }
    }

    /// The arguments for the helper, without its cookie.
    async fn serve_arguments(&self, gnupg: &Gnupg, agents: &Agents) -> Result<Vec<String>> {
        let settings = self.settings;
        let mut words: Vec<String> = ["serve", "--mux", "2", "--lanes"].map(str::to_owned).into();
        let lanes: Vec<String> = agents.lanes().iter().map(ToString::to_string).collect();
        let lanes = lanes.join(",");
        words.push(lanes.clone());
        let mut add = |name: &str, value: String| words.extend([name.to_owned(), value]);
        if settings.lanes_are_named {
            add("--need", lanes);
        }
        add("--max-sessions", settings.max_sessions.to_string());
        if agents.gpg.is_some()
            && let Ok(status) = rustix::fs::stat(&gnupg.dirs().await?.home)
        {
            add("--host-home", format!("{}:{}", status.st_dev, status.st_ino));
        }
        if agents.ssh.is_some()
            && let Some(home) = std::env::var_os("HOME")
            && let Ok(status) = rustix::fs::stat(Path::new(&home).join(".ssh"))
        {
            add("--host-ssh", format!("{}:{}", status.st_dev, status.st_ino));
        }
        if let Some(token) = self.token {
            add("--bridge", token.to_owned());
            add("--outlive", settings.outlive.as_secs().to_string());
        }
        add("--log", log_level().to_owned());
        if settings.replace {
            words.push("--replace".to_owned());
        }
        Ok(words)
    }

    async fn start(
        &self,
        put: Installed,
        process: Process,
        cookie: &Cookie,
        agents: Agents,
        keys: &PublicKeys,
    ) -> Result<LiveBridge> {
        let (stdout, stdin, mut helper) = process.split();
        let mut log = HelperLog::follow(helper.take_stderr(), &self.quota);
        let settings = self.bridge_settings(&agents);
        match Bridge::start(stdout, stdin, cookie, settings, agents.gpg, keys).await {
            Ok(bridge) => {
                if self.settings.path == LinkPath::Direct
                    && let Some(exec) = helper.exec()
                {
                    bridge.go_direct(async move |offer, ours| {
                        direct::connect(exec.pid().await?, offer, ours).await
                    });
                }
                Ok(LiveBridge {
                    bridge,
                    helper: Mutex::new(helper),
                    log,
                    target: self.target.clone(),
                    put: Some(put),
                })
            }
            Err(error) => {
                // The streams are closed, so it ends by itself, unless it outlives them; what it said
                // last may tell why.
                if self.token.is_none() {
                    let _ = tokio::time::timeout(bridge::STOP_TIME, helper.wait()).await;
                }
                log.finish().await;
                Err(log.explain(error))
            }
        }
    }
}

async fn remove(target: &Target, put: &Installed) -> Result<()> {
    target.output(&TargetCommand::new([&put.path, "remove"]), b"").await.map(|_| ())
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

/// The helper tells as much as we do.
fn log_level() -> &'static str {
    use tracing::level_filters::LevelFilter;
    match LevelFilter::current() {
        LevelFilter::TRACE => "trace",
        LevelFilter::DEBUG => "debug",
        LevelFilter::INFO => "info",
        _ => "warn",
    }
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
