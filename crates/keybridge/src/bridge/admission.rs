//! Takes the streams that the helper opens, within bounds of number and of rate.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use keybridge_link::Stream;
use keybridge_proto::Lane;
use keybridge_proto::assuan::Reply;
use keybridge_proto::session::AgentSession;
use keybridge_proto::ssh;
use tracing::Instrument;

use super::Settings;
use super::session;
use super::stats::{LaneCounter, Stats};
use super::waiting::Waiting;
use crate::agent::AgentDialer;

/// How many clients past the cap are told so at once. Further ones are closed without a word.
pub(super) const SPARE_STREAMS: usize = 64;

/// How many streams may be opened without a pause between them.
const BURST: u32 = 512;

/// A target that opens streams without end dials the agent a thousand times a second at most.
const INTERVAL: Duration = Duration::from_millis(1);

/// Starts a session for each stream. Owned by the task of the link.
#[derive(Debug)]
pub(super) struct Admission {
    settings: Settings,
    /// Dials the agent of the gpg lane, if that is served.
    dialer: Option<AgentDialer>,
    gpg: Rc<LaneCounter>,
    ssh: Rc<LaneCounter>,
    /// What the agent of the ssh lane is waiting for.
    waiting: Rc<Waiting>,
    /// How many clients past the cap are being told so.
    refusing: Rc<Cell<usize>>,
    /// When the next session would begin, if streams had come at the bounded rate.
    next: Cell<Instant>,
}

impl Admission {
    pub(super) fn new(settings: Settings, dialer: Option<AgentDialer>) -> Self {
        Self {
            settings,
            dialer,
            gpg: Rc::default(),
            ssh: Rc::default(),
            waiting: Rc::default(),
            refusing: Rc::default(),
            next: Cell::new(Instant::now()),
        }
    }

    pub(super) fn stats(&self) -> Stats {
        Stats { gpg: self.gpg.stats(), ssh: self.ssh.stats() }
    }

    /// `SSH_AUTH_SOCK` of this machine's user has this value now.
    pub(super) fn set_auth_sock(&self, path: &Path) {
        if self.settings.ssh.as_ref().is_some_and(|ssh| ssh.set_auth_sock(Some(path.to_owned()))) {
            self.waiting.forget_list();
        }
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// A stream was opened. Dropping it closes it.
    pub(super) fn opened(&self, stream: Stream, lane: Lane) {
        let stats = self.stats();
        if stats.gpg.open + stats.ssh.open >= self.settings.max_sessions {
            self.refuse(stream, lane);
            return;
        }
        let counter = match lane {
            Lane::Gpg => &self.gpg,
            Lane::Ssh => &self.ssh,
        };
        let connected = counter.connect();
        let Settings { target, policy, limits, ssh, .. } = &self.settings;
        let (target, policy, limits) = (target.clone(), policy.clone(), *limits);
        let (dialer, ssh_dialer) = (self.dialer.clone(), ssh.clone());
        let waiting = Rc::clone(&self.waiting);
        let begin = self.slot(Instant::now());
        let span = tracing::debug_span!("stream", id = stream.id().get(), %lane);
        let task = async move {
            if let Some(begin) = begin {
                tokio::time::sleep_until(begin.into()).await;
            }
            match lane {
                Lane::Gpg => {
                    let Some(dialer) = dialer else { return };
                    let session = AgentSession::new(target, policy, limits);
                    session::serve(stream, session, &dialer, &connected).await;
                }
                Lane::Ssh => {
                    let session = ssh::Session::new(target, policy, limits);
                    session::serve_ssh(stream, session, ssh_dialer.as_ref(), &waiting, &connected)
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

    /// When a session that came now may begin, if that is later.
    fn slot(&self, now: Instant) -> Option<Instant> {
        let slot = self.next.get().max(now.checked_sub(INTERVAL * BURST).unwrap_or(now));
        self.next.set(slot + INTERVAL);
        Some(slot).filter(|&slot| slot > now)
    }
}
