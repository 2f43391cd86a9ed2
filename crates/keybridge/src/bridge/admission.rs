//! Accepts the clients of the helper, up to a number and a rate: the streams that it opens, and the
//! connections that it passes.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_link::{SendQueue, StopSignal, Stream};
use keybridge_proto::assuan::Reply;
use keybridge_proto::gate::{Caller, CallerSlot, Policy};
use keybridge_proto::mux::DEFAULT_MAX_STREAMS;
use keybridge_proto::session::AgentSession;
use keybridge_proto::ssh::{self, KeySelection};
use keybridge_proto::{Lane, PerLane};
use tracing::Instrument;

use super::Settings;
use super::client::Client;
use super::passed::{PassedClient, READ_SIZE};
use super::session;
use super::stats::{LaneCounter, LaneStats};
use crate::agent::GpgAgent;
use crate::caller::CallerLookup;
use crate::keyring::Keyring;
use crate::platform::{PassedSocket, send_queue};

/// How many clients past the cap get a refusal at the same time. Further ones are just closed. A helper
/// doesn't know how many clients it has passed, and can open this many streams beside them by default.
pub(super) const SPARE_STREAMS: usize = DEFAULT_MAX_STREAMS;

/// How many streams may be opened in a burst.
const BURST: u32 = 512;

/// Bounds the rate of connections to the agent to a thousand a second.
const INTERVAL: Duration = Duration::from_millis(1);

/// Starts a session for each client. Owned by the task of the link.
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
    /// Set when the bridge ends.
    ending: StopSignal,
    /// One buffer for the reads of all clients that were passed.
    scratch: Rc<RefCell<Vec<u8>>>,
    /// Where messages wait while many clients talk.
    send_queue: Option<SendQueue>,
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
            ending: StopSignal::default(),
            scratch: Rc::new(RefCell::new(vec![0; READ_SIZE])),
            send_queue: send_queue(),
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
        if self.is_full() {
            self.refuse(stream, lane);
            return;
        }
        let span = tracing::debug_span!("stream", id = stream.id().get(), %lane);
        self.begin(stream, lane, CallerSlot::default(), self.slot(Instant::now()), span);
    }

    /// Starts the session of a client whose own connection the helper has passed, and which may start now.
    /// The kernel has told its user, and nothing was read from it yet.
    pub(super) fn passed(&self, client: PassedSocket, lane: Lane, callers: Option<&CallerLookup>) {
        if !self.settings.lanes.contains(&lane) {
            return client.refuse(&[]);
        }
        if self.is_full() {
            if self.counters[lane].may_warn(Instant::now()) {
                tracing::info!(%lane, "refused a client: too many sessions");
            }
            return client.refuse(match lane {
                Lane::Gpg => Reply::LimitReached.line(),
                // ssh reads an answer only after a request, and then sees the end.
                Lane::Ssh => &[],
            });
        }
        let number = self.counters[lane].stats().total + 1;
        let span = tracing::debug_span!("passed", number, %lane);
        let begin = |lookup: &CallerLookup| span.in_scope(|| lookup.begin(&client.socket));
        let caller = callers.map(begin).unwrap_or_default();
        let scratch = Rc::clone(&self.scratch);
        match PassedClient::new(
            client,
            lane,
            scratch,
            self.send_queue.as_ref(),
            self.ending.clone(),
        ) {
            Ok(client) => self.begin(client, lane, caller, None, span),
            Err(error) => tracing::debug!(%error, "can't use a client's connection"),
        }
    }

    /// Set when the bridge ends, and its sessions with it.
    pub(super) const fn ending(&self) -> &StopSignal {
        &self.ending
    }

    fn is_full(&self) -> bool {
        let stats = self.stats();
        stats.gpg.open + stats.ssh.open >= self.settings.max_sessions
    }

    fn begin(
        &self,
        client: impl Client + 'static,
        lane: Lane,
        caller: CallerSlot,
        begin: Option<Instant>,
        span: tracing::Span,
    ) {
        let connected = self.counters[lane].connect();
        connected.asked_by(caller.clone());
        let Settings { policy, limits, ssh, .. } = &self.settings;
        let limits = *limits;
        let policy = Policy { ssh_keys: self.ssh_keys.borrow().clone(), ..policy.clone() };
        let (gpg_agent, ssh_dialer) = (self.gpg_agent.clone(), ssh.clone());
        let send_queue = self.send_queue.clone();
        let task = async move {
            if let Some(begin) = begin {
                tokio::time::sleep_until(begin.into()).await;
            }
            match lane {
                Lane::Gpg => {
                    let Some(agent) = gpg_agent else {
                        return session::refuse(client, Reply::NoAgent.line()).await;
                    };
                    let lent = agent.keyring.current().await;
                    let mut session = AgentSession::new(policy, lent, limits);
                    session.asked_by(caller);
                    session::serve(client, session, &agent.dialer, &connected, send_queue.as_ref())
                        .await;
                }
                Lane::Ssh => {
                    let mut session = ssh::SshSession::new(policy, limits);
                    session.asked_by(caller);
                    session::serve_ssh(
                        client,
                        session,
                        ssh_dialer.as_ref(),
                        &connected,
                        send_queue.as_ref(),
                    )
                    .await;
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
    pub(super) fn slot(&self, now: Instant) -> Option<Instant> {
        let slot = self.next.get().max(now.checked_sub(INTERVAL * BURST).unwrap_or(now));
        self.next.set(slot + INTERVAL);
        Some(slot).filter(|&slot| slot > now)
    }
}
