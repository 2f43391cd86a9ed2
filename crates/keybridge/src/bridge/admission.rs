//! Accepts the streams that the helper opens, up to a number and a rate.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_link::Stream;
use keybridge_proto::assuan::Reply;
use keybridge_proto::gate::{Caller, Policy};
use keybridge_proto::session::AgentSession;
use keybridge_proto::ssh::{self, KeySelection};
use keybridge_proto::{Lane, PerLane};
use tracing::Instrument;

use super::Settings;
use super::session;
use super::stats::{LaneCounter, LaneStats};
use crate::agent::GpgAgent;
use crate::keyring::Keyring;

/// How many clients past the cap get a refusal at the same time. Further ones are just closed.
pub(super) const SPARE_STREAMS: usize = 64;

/// How many streams may be opened in a burst.
const BURST: u32 = 512;

/// Bounds the rate of connections to the agent to a thousand a second.
const INTERVAL: Duration = Duration::from_millis(1);

/// Starts a session for each stream. Owned by the task of the link.
#[derive(Debug)]
pub(super) struct Admission {
    settings: Settings,
    /// The agent of the gpg lane, if the bridge has one.
    gpg_agent: Option<GpgAgent>,
    counters: PerLane<Rc<LaneCounter>>,
    /// Which keys of the ssh-agent are lent to the clients to come.
    ssh_keys: RefCell<KeySelection>,
    /// How many clients past the cap are getting a refusal.
    refusing: Rc<Cell<usize>>,
    /// When the next session may start at the bounded rate; in the past if there is room for a burst.
    next: Cell<Instant>,
}

impl Admission {
    pub(super) fn new(settings: Settings, gpg_agent: Option<GpgAgent>) -> Self {
        Self {
            ssh_keys: RefCell::new(settings.policy.ssh_keys.clone()),
            settings,
            gpg_agent,
            counters: PerLane::default(),
            refusing: Rc::default(),
            next: Cell::new(Instant::now()),
        }
    }

    pub(super) fn stats(&self) -> PerLane<LaneStats> {
        self.counters.as_ref().map(|_, counter| counter.stats())
    }

    /// Who the connected clients are, the newest of each lane first, as far as they are known.
    pub(super) fn callers(&self, limit: usize) -> PerLane<Vec<Caller>> {
        self.counters.as_ref().map(|_, counter| counter.callers(limit))
    }

    /// Sets the user's `SSH_AUTH_SOCK` for later connections.
    pub(super) fn set_auth_sock(&self, path: &Path) {
        if let Some(ssh) = &self.settings.ssh {
            ssh.set_auth_sock(Some(path.to_owned()));
        }
    }

    /// The keys of the gpg lane, if the bridge has one.
    pub(super) fn keyring(&self) -> Option<&Keyring> {
        self.gpg_agent.as_ref().map(|agent| &*agent.keyring)
    }

    /// Sets which keys of the ssh-agent later clients may use.
    pub(super) fn set_ssh_keys(&self, keys: KeySelection) {
        *self.ssh_keys.borrow_mut() = keys;
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Starts the session of a new stream. Dropping the stream closes it.
    pub(super) fn opened(&self, stream: Stream, lane: Lane) {
        let stats = self.stats();
        if stats.gpg.open + stats.ssh.open >= self.settings.max_sessions {
            self.refuse(stream, lane);
            return;
        }
        let connected = self.counters[lane].connect();
        let Settings { policy, limits, ssh, .. } = &self.settings;
        let limits = *limits;
        let policy = Policy { ssh_keys: self.ssh_keys.borrow().clone(), ..policy.clone() };
        let (gpg_agent, ssh_dialer) = (self.gpg_agent.clone(), ssh.clone());
        let begin = self.slot(Instant::now());
        let span = tracing::debug_span!("stream", id = stream.id().get(), %lane);
        let task = async move {
            if let Some(begin) = begin {
                tokio::time::sleep_until(begin.into()).await;
            }
            match lane {
                Lane::Gpg => {
                    let Some(agent) = gpg_agent else { return };
                    let lent = agent.keyring.current().await;
                    let session = AgentSession::new(policy, lent, limits);
                    session::serve(stream, session, &agent.dialer, &connected).await;
                }
                Lane::Ssh => {
                    let session = ssh::SshSession::new(policy, limits);
                    session::serve_ssh(stream, session, ssh_dialer.as_ref(), &connected).await;
                }
            }
        };
        tokio::task::spawn_local(task.instrument(span));
    }

    fn refuse(&self, stream: Stream, lane: Lane) {
        if self.refusing.get() >= SPARE_STREAMS {
            return;
        }
        self.refusing.set(self.refusing.get() + 1);
        let refusing = Rc::clone(&self.refusing);
        tokio::task::spawn_local(async move {
            match lane {
                Lane::Gpg => session::refuse(stream, Reply::LimitReached.line()).await,
                Lane::Ssh => session::refuse_ssh(stream).await,
            }
            refusing.set(refusing.get() - 1);
        });
    }

    /// When a session that was opened now may start; `None` for at once.
    fn slot(&self, now: Instant) -> Option<Instant> {
        let slot = self.next.get().max(now.checked_sub(INTERVAL * BURST).unwrap_or(now));
        self.next.set(slot + INTERVAL);
        Some(slot).filter(|&slot| slot > now)
    }
}
