//! Accepts the clients of the helper, up to a number and a rate.

use std::cell::Cell;
use std::future::pending;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use keybridge_link::Stream;
use keybridge_proto::mux::{DEFAULT_MAX_STREAMS, OpenPace};
use keybridge_proto::session::AgentSession;
use keybridge_proto::ssh::{self, KeySelection, SelectionInForce};
use keybridge_proto::{Lane, PerLane};
use tokio::sync::watch;
use tracing::Instrument;

use super::Settings;
use super::session;
use super::stats::{LaneCounter, LaneStats};
use crate::agent::GpgAgent;
use crate::git::RequestRoom;
use crate::keyring::Keyring;
use crate::ssh_agent::SshDialer;

/// How many clients past the cap get a refusal at the same time. Further ones are just closed.
pub(super) const SPARE_STREAMS: usize = DEFAULT_MAX_STREAMS;

/// Starts a session for each client. Owned by the task of the link.
#[derive(Debug)]
pub(super) struct Admission {
    settings: Settings,
    /// The agent of the gpg lane, if the bridge has one.
    gpg_agent: Option<GpgAgent>,
    counters: PerLane<Rc<LaneCounter>>,
    /// Which keys of the ssh-agent are lent now.
    ssh_keys: SelectionInForce,
    /// Room for what clients of the git lane want to be signed.
    git_room: RequestRoom,
    /// The lanes that the helper has, once it has said so.
    there: watch::Sender<Option<PerLane<bool>>>,
    /// How many clients past the cap are getting a refusal.
    refusing: Rc<Cell<usize>>,
    pace: OpenPace,
}

impl Admission {
    pub(super) fn new(settings: Settings, gpg_agent: Option<GpgAgent>) -> Self {
        Self {
            ssh_keys: SelectionInForce::new(settings.policy.ssh_keys.clone()),
            settings,
            gpg_agent,
            git_room: RequestRoom::default(),
            counters: PerLane::default(),
            there: watch::channel(None).0,
            refusing: Rc::default(),
            pace: OpenPace::new(Instant::now()),
        }
    }

    /// Serves only these lanes from now on: what isn't shown to the user isn't lent.
    pub(super) fn serve_only(&self, lanes: PerLane<bool>) {
        self.there.send_replace(Some(lanes));
    }

    pub(super) fn stats(&self) -> PerLane<LaneStats> {
        self.counters.as_ref().map(|_, counter| counter.stats())
    }

    /// Sets the user's `SSH_AUTH_SOCK` for later connections.
    pub(super) fn set_auth_sock(&self, path: &Path) {
        if let Some(ssh) = self.ssh_dialer() {
            ssh.set_auth_sock(Some(path.to_owned()));
        }
    }

    pub(super) fn has_gpg_agent(&self) -> bool {
        self.gpg_agent.is_some()
    }

    /// The keys of gpg-agent, if a lane lends them.
    pub(super) fn keyring(&self) -> Option<&Keyring> {
        let of_git = || self.settings.git.as_ref()?.openpgp.as_deref();
        self.gpg_agent.as_ref().map(|agent| &*agent.keyring).or_else(of_git)
    }

    /// Connects to the ssh-agent, if a lane lends its keys. The git lane has the dialer of the ssh lane.
    pub(super) fn ssh_dialer(&self) -> Option<&SshDialer> {
        let of_git = || self.settings.git.as_ref()?.ssh.as_ref();
        self.settings.ssh.as_ref().or_else(of_git)
    }

    /// Sets which keys of the ssh-agent clients may use.
    pub(super) fn set_ssh_keys(&self, keys: KeySelection) {
        self.ssh_keys.set(keys);
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Starts the session of a new stream. Dropping the stream closes it.
    pub(super) fn opened(&self, stream: Stream, lane: Lane) {
        if self.is_full() {
            self.refuse(stream, lane);
            return;
        }
        let span = tracing::debug_span!("stream", id = stream.id().get(), %lane);
        let begin = self.pace.slot(Instant::now());
        let connected = self.counters[lane].connect();
        let Settings { policy, limits, ssh, git, operations, .. } = &self.settings;
        let git = git.as_ref().map(|keys| keys.signer(&self.ssh_keys, operations));
        let operations = operations.clone();
        let limits = *limits;
        let (policy, ssh_keys) = (policy.clone(), self.ssh_keys.clone());
        let (gpg_agent, ssh_dialer) = (self.gpg_agent.clone(), ssh.clone());
        let git_room = self.git_room.clone();
        let mut there = self.there.subscribe();
        let task = async move {
            if let Some(begin) = begin {
                tokio::time::sleep_until(begin.into()).await;
            }
            match lane {
                Lane::Gpg => {
                    let mut session =
                        AgentSession::new(policy, Arc::default(), limits).sharing(operations);
                    if let Some(agent) = &gpg_agent {
                        agent.keyring.current().await;
                        session = session.asking(agent.keyring.clone());
                    }
                    let dialer = gpg_agent.as_ref().map(|agent| &agent.dialer);
                    session::serve(stream, session, dialer, &connected).await;
                }
                Lane::Git => {
                    session::serve_git(stream, git.as_ref(), &git_room, &connected).await;
                }
                Lane::Ssh => {
                    let session = ssh::SshSession::new(policy, limits).sharing(operations);
                    let session = session.asking(&ssh_keys);
                    session::serve_ssh(stream, session, ssh_dialer.as_ref(), &connected).await;
                }
            }
        };
        let is_missing = async move {
            let is_gone = |lanes: &Option<PerLane<bool>>| lanes.is_some_and(|lanes| !lanes[lane]);
            if there.wait_for(is_gone).await.is_err() {
                // The link is over, and so are its streams.
                pending::<()>().await;
            }
        };
        let task = async move {
            tokio::select! {
                biased;
                () = is_missing => tracing::debug!("the target doesn't have this lane"),
                () = task => {}
            }
        };
        tokio::task::spawn_local(task.instrument(span));
    }

    fn is_full(&self) -> bool {
        let stats = self.stats();
        stats.iter().map(|(_, lane)| lane.open).sum::<usize>() >= self.settings.max_sessions
    }

    fn refuse(&self, stream: Stream, lane: Lane) {
        if self.refusing.get() >= SPARE_STREAMS {
            return;
        }
        self.refusing.set(self.refusing.get() + 1);
        let refusing = Rc::clone(&self.refusing);
        tokio::task::spawn_local(async move {
            session::refuse(stream, lane).await;
            refusing.set(refusing.get() - 1);
        });
    }
}
