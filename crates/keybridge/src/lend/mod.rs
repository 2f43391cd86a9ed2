//! The way from nothing to a working bridge, step by step.

mod agents;
mod git;
mod helper_log;
mod question;
mod version_1;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use keybridge_link::random;
use keybridge_proto::mux::Cookie;
use keybridge_proto::report::{KeyChanges, Ready};
use keybridge_proto::ssh::KeySelection;
use keybridge_proto::{Lane, printable};
use tokio::sync::Mutex;

use crate::agent::Served;
use crate::bridge::{self, Bridge, BridgeEnd, LinkPath};
use crate::config::Settings;
use crate::gnupg::Gnupg;
use crate::helper::Helper;
use crate::keyring::{self, Keyring, Lending};
use crate::keys::{self, Form, KeyFilter, PublicKeys};
use crate::report::Report;
use crate::target::{
    Begun, Found, Installed, Process, Remaining, Target, TargetCommand, begin, install, past_engine,
};
use crate::{Error, Result};
use agents::Agents;
use git::SigningKey;
use helper_log::HelperLog;
pub(crate) use helper_log::Quota;

/// An agent that is lent to a target: a bridge that works, and the helper at its far end.
pub struct Lent {
    bridge: Bridge,
    helper: Mutex<Remaining>,
    log: HelperLog,
    target: Target,
    /// The helper's program, if it is ours.
    put: Option<Installed>,
}

/// Lends the agent to one target, as often as it takes.
pub struct Lender<'a> {
    target: &'a Target,
    settings: &'a Settings,
    /// Which bridge of which host this is. A helper that knows it outlives its link.
    token: Option<&'a str>,
    /// Where the helper is in the target, since it was put or found there.
    put: RefCell<Option<Installed>>,
    /// What the helper may say.
    quota: Rc<Quota>,
}

impl<'a> Lender<'a> {
    /// Lends to a target, with a helper that ends with its link.
    pub fn new(target: &'a Target, settings: &'a Settings) -> Self {
        Self { target, settings, token: None, put: RefCell::default(), quota: Rc::default() }
    }

    /// Lends with helpers that share what they may say.
    #[must_use]
    pub(crate) fn sharing(self, quota: &Rc<Quota>) -> Self {
        Self { quota: Rc::clone(quota), ..self }
    }

    /// Lends with helpers that outlive their links: the next one with the same token takes over.
    #[must_use]
    pub fn outliving(self, token: &'a str) -> Self {
        Self { token: Some(token), ..self }
    }

    /// Makes a link, and shows each step. Ends with a question that went through the whole chain.
    pub async fn lend(&self, report: &Report) -> Result<Lent> {
        let lent = self.make_link(true, report).await?;
        let asked = async { Ok(((), self.ask(&lent, report).await?)) };
        if let Err(error) = report.step("a question through the chain", asked).await {
            // What was set up is of no use, and is not left behind; a helper that outlives its link
            // waits for the next one.
            if self.token.is_none() {
                let _ = lent.stop().await;
            }
            return Err(error);
        }
        Ok(lent)
    }

    /// Makes a link, and shows each step but the last: whoever waits for it asks itself.
    pub async fn link(&self, report: &Report) -> Result<Lent> {
        self.make_link(false, report).await
    }

    /// Makes a link whose helper asks the agents through the whole chain, or doesn't.
    async fn make_link(&self, asks: bool, report: &Report) -> Result<Lent> {
        let gnupg = Gnupg::new(Some(self.settings.gnupg_home.clone()));
        let agents = Agents::find(&self.lanes(), self.settings, &gnupg, asks, report).await?;
        if asks {
            agents.check_ssh_keys(self.settings, report)?;
        }
        let described = async { Ok(((), self.target.describe())) };
        report.step("the target", described).await?;
        if let Some(server) = &self.settings.helper {
            return self.lend_version_1(server, &gnupg, agents, report).await;
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
            let lent = self.start(put, process, &cookie, agents, &keys).await?;
            let changes = match lent.ready().gpg_socket {
                Some(_) => describe(lent.keys().unwrap_or_default()),
                None => String::new(),
            };
            Ok((lent, changes))
        };
        let lent = report.step("the bridge", start).await?;
        if let (Target::Local(_), Some(ssh), Some(socket)) =
            (self.target, &ssh, &lent.ready().ssh_socket)
        {
            // On this machine it could be found again as the user's own agent.
            ssh.set_served([Served::Path(socket.into())]);
        }
        for warning in &lent.ready().warnings {
            report.warn(&printable(warning).to_string());
        }
        lent.log.speak_up();
        Ok(lent)
    }

    /// Makes a link unless it is stopped before; what was set up by then is undone. One that is stopped
    /// for a second time doesn't wait for that.
    pub async fn lend_until(
        &self,
        mut stopped: impl AsyncFnMut(),
        report: &Report,
    ) -> Result<Lent> {
        let mut lending = Box::pin(self.lend(report));
        let lent = tokio::select! {
            lent = &mut lending => lent,
            () = stopped() => {
                // Not dropped half-way: the helper could not undo what it has done by then.
                tokio::select! {
                    lent = &mut lending => if let Ok(lent) = lent { lent.stop().await? },
                    () = stopped() => {}
                }
                Err(Error::failed("interrupted"))
            }
        };
        if lent.is_err() {
            self.leave_nothing().await;
        }
        lent
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
    ) -> Result<Lent> {
        let (stdout, stdin, mut helper) = process.split();
        let mut log = HelperLog::follow(helper.take_stderr(), &self.quota);
        let settings = self.bridge_settings(&agents);
        match Bridge::start(stdout, stdin, cookie, settings, agents.gpg, keys).await {
            Ok(bridge) => {
                if self.settings.path == LinkPath::Direct
                    && let Some(exec) = helper.exec()
                {
                    bridge.go_direct(async move |offer, ours| {
                        past_engine::connect(exec.pid().await?, offer, ours).await
                    });
                }
                Ok(Lent {
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

impl Lent {
    /// What the helper has set up.
    pub fn ready(&self) -> &Ready {
        self.bridge.ready()
    }

    /// What the keys that were sent have changed in the target.
    pub fn keys(&self) -> Option<KeyChanges> {
        self.ready().keys
    }

    /// Waits until the bridge has ended by itself, and tells why.
    pub fn ended(&self) -> impl Future<Output = BridgeEnd> + use<> {
        self.bridge.ended()
    }

    /// `SSH_AUTH_SOCK` of this machine's user has this value now.
    pub fn set_auth_sock(&self, path: &Path) {
        self.bridge.set_auth_sock(path);
    }

    /// Lends these keys of the ssh-agent from now on, if it has them.
    pub async fn set_ssh_keys(&self, keys: KeySelection) -> Result<()> {
        // An agent that is away is looked for again when somebody asks.
        if let Some(dialer) = self.bridge.ssh_dialer()
            && let Ok((_, listed)) = dialer.find().await
        {
            agents::check_ssh_keys(&keys, &listed)?;
        }
        self.bridge.set_ssh_keys(keys);
        Ok(())
    }

    /// The target sleeps, and is not asked if it lives.
    pub fn pause(&self) {
        self.bridge.pause();
    }

    /// The target goes on.
    pub fn resume(&self) {
        self.bridge.resume();
    }

    /// Which way the bytes take now; none if there is no choice.
    pub fn path(&self) -> Option<LinkPath> {
        match self.target {
            Target::Container(_) if self.bridge.is_direct() => Some(LinkPath::Direct),
            Target::Container(_) => Some(LinkPath::Exec),
            Target::Local(_) | Target::Editor(_) => None,
        }
    }

    /// Lends other keys of the gpg lane from now on.
    pub async fn lend(&self, lending: Lending) -> Result<()> {
        if let Some(keyring) = self.bridge.keyring() {
            keyring.lend(lending).await?;
        }
        Ok(())
    }

    /// What is lent of the gpg lane's keys, if there is such a lane.
    pub fn lent_keys(&self) -> Option<keyring::Summary> {
        self.bridge.keyring().map(Keyring::summary)
    }

    /// What the bridge has carried.
    pub fn stats(&self) -> bridge::Stats {
        self.bridge.stats()
    }

    /// Sends the public keys again, those of the settings or some of them; tells what they changed, and what
    /// was asked for and isn't there.
    pub async fn sync(
        &self,
        gnupg_home: PathBuf,
        named: Option<String>,
    ) -> Result<(KeyChanges, Vec<String>)> {
        let gnupg = Gnupg::new(Some(gnupg_home));
        let keys = match (named, self.bridge.keyring()) {
            (Some(named), Some(keyring)) => {
                let Ok(filter) = named.parse::<KeyFilter>();
                let allowed = keyring.public_keys().await;
                keys::export_allowed(&gnupg, &filter, &allowed, Form::Binary).await?
            }
            (None, Some(keyring)) => export(&gnupg, keyring).await?.0,
            (Some(_) | None, None) => PublicKeys::default(),
        };
        let changes = self.bridge.sync(&keys).await?;
        Ok((changes, keys.warnings))
    }

    /// Waits until the helper of a bridge that has ended has undone what it did; not for ever, since
    /// it may hang. Gives back its exit code.
    pub async fn settle(&self) -> Option<i32> {
        let mut helper = self.helper.lock().await;
        let ended = tokio::time::timeout(bridge::STOP_TIME, helper.wait()).await;
        ended.ok().and_then(Result::ok).flatten()
    }

    /// Removes the helper's program, if it was put there for this bridge.
    pub async fn remove_helper(&self) -> Result<()> {
        match &self.put {
            Some(put) if put.is_new => remove(&self.target, put).await,
            Some(_) | None => Ok(()),
        }
    }

    /// Ends the bridge, and has everything undone in the target.
    pub async fn stop(&self) -> Result<()> {
        let stopped = self.bridge.stop().await;
        let status = self.settle().await;
        stopped?;
        match status {
            // What a server of version 1 has to say at its end is its own affair.
            _ if self.put.is_none() => Ok(()),
            Some(0) => Ok(()),
            Some(_) | None => {
                Err(self.log.explain(Error::failed("the helper ended with an error")))
            }
        }
    }
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
