//! The binds of one connection to SSH sessions (`session-bind@openssh.com`).
//!
//! ssh binds its connection to the agent to the host that it logs in to, or forwards the agent to. The host
//! proves with its key that the session is its own. Keys that are limited to some hosts depend on that:
//! without a bind, their use looks local. So a bind that isn't proven, or that an agent refuses which has
//! accepted another one on this connection, ends all signing on it. An agent without the extension refuses
//! every bind.

use ed25519_dalek::{Signer as _, SigningKey};
use sha2::{Digest as _, Sha256};

use super::frame::head;
use super::host_key::{self, Unverified};
use super::purpose::MAX_SESSION_ID;
use super::wire::{Fields, Lack, put_string};
use super::{Fingerprint, Login, MessageType, Purpose, Request};
use crate::Operation;
use crate::gate::Verdict;
use crate::permission::{KeyName, Subject, Wanted};

/// How many binds are verified, which takes some time; OpenSSH's agent keeps as many.
const MAX_BINDS: u32 = 16;

/// Why a connection isn't bound to an SSH session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BindError {
    /// The request can't be parsed.
    #[error("invalid session-bind")]
    Malformed,
    /// The host hasn't proven that the session is its own.
    #[error(transparent)]
    Unverified(#[from] Unverified),
    /// There were too many of them.
    #[error("more than {MAX_BINDS} session-binds")]
    TooMany,
    /// All connections of the target together had too many.
    #[error("too many session-binds in a short time")]
    TooFast,
    /// The agent refused it after it had accepted another one.
    #[error("the agent refused a session-bind after it had accepted one")]
    Refused,
}

/// What the binds of a connection have come to.
#[derive(Debug, Default)]
pub(super) struct Binds {
    standing: Standing,
    /// Those that were proven.
    proven: Vec<Bound>,
    /// A bind is on its way to the agent, or its answer on its way back.
    is_under_way: bool,
    /// How many there were.
    count: u32,
}

/// A session whose host has proven that it is its own.
#[derive(Debug)]
struct Bound {
    session_id: Vec<u8>,
    host_key: Fingerprint,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Standing {
    /// The agent has accepted none.
    #[default]
    Unbound,
    /// The agent has accepted one.
    Bound,
    /// One failed: nothing is signed any more.
    Broken,
}

impl Binds {
    /// Decides on a request as far as binds go. `may_verify` says whether there is time to verify one.
    pub(super) fn judge(
        &mut self,
        request: &Request<'_>,
        may_verify: impl FnOnce() -> bool,
    ) -> Result<Verdict, BindError> {
        match request {
            Request::SessionBind { .. } | Request::SignRequest { .. }
                if self.standing == Standing::Broken =>
            {
                Ok(Verdict::Deny)
            }
            Request::SessionBind { body } => {
                self.count += 1;
                let proof = match self.count {
                    ..=MAX_BINDS if may_verify() => prove(body),
                    ..=MAX_BINDS => Err(BindError::TooFast),
                    _ => Err(BindError::TooMany),
                };
                match proof {
                    Ok(bound) => self.proven.push(bound),
                    Err(error) => self.fail(error)?,
                }
                self.is_under_way = true;
                Ok(Verdict::Allow)
            }
            _ => Ok(Verdict::Allow),
        }
    }

    /// Takes a login for another signature if this connection is bound, and not to its session.
    pub(super) fn qualify<'a>(&self, request: Request<'a>) -> Request<'a> {
        match request {
            Request::SignRequest { key, purpose: Purpose::Login(login) }
                if !self.proven.is_empty() && !self.has_session_of(&login) =>
            {
                Request::SignRequest { key, purpose: Purpose::Other }
            }
            other => other,
        }
    }

    /// Whether the host of the session that a login is for has proven it.
    fn has_session_of(&self, login: &Login<'_>) -> bool {
        self.host_of(login).is_some()
    }

    /// The host of the session that a login is for, if it has proven that.
    fn host_of(&self, login: &Login<'_>) -> Option<Fingerprint> {
        let has_its_key = |bound: &&Bound| {
            login.host_key.is_none_or(|key| Fingerprint::of(key) == Some(bound.host_key))
        };
        let is_its_session = |bound: &&Bound| bound.session_id == login.session_id;
        self.proven.iter().filter(is_its_session).find(has_its_key).map(|bound| bound.host_key)
    }

    /// The signature that a request asks for, as far as it is known what for.
    pub(super) fn wanted(&self, request: &Request<'_>) -> Option<Wanted> {
        let Request::SignRequest { key, purpose } = request else { return None };
        let (operations, subject): (&[Operation], _) = match purpose {
            Purpose::Login(login) => {
                (&[Operation::Login], Subject::login(login.user, self.host_of(login)))
            }
            Purpose::Message { namespace } => (&[Operation::Sshsig], Subject::message(namespace)),
            Purpose::Other => (&[Operation::Login, Operation::Sshsig], Subject::Data),
        };
        let operations = operations.iter().copied().collect();
        Some(Wanted { operations, key: KeyName::Print(Fingerprint::of(key)?), subject })
    }

    /// A request can't be parsed, or is too long. `here` is the beginning of its body.
    pub(super) fn unreadable(&mut self, kind: MessageType, here: &[u8]) -> Result<(), BindError> {
        let name = here.get(4..).unwrap_or_default();
        if kind == MessageType::EXTENSION && name.starts_with(Request::SESSION_BIND) {
            return self.fail(BindError::Malformed);
        }
        Ok(())
    }

    /// The agent answers the request that was forwarded last.
    pub(super) fn answered(&mut self, kind: MessageType) -> Result<(), BindError> {
        match (std::mem::take(&mut self.is_under_way), self.standing) {
            (true, _) if kind == MessageType::SUCCESS => self.standing = Standing::Bound,
            (true, Standing::Bound) => return self.fail(BindError::Refused),
            (true, Standing::Unbound | Standing::Broken) | (false, _) => {}
        }
        Ok(())
    }

    const fn fail(&mut self, error: BindError) -> Result<(), BindError> {
        self.standing = Standing::Broken;
        Err(error)
    }
}

/// A bind to a session with a host that has this secret key, for questions of the host's own.
pub fn bind_to_host(secret: &[u8; 32]) -> Vec<u8> {
    const KIND: &[u8] = b"ssh-ed25519";
    let key = SigningKey::from_bytes(secret);
    let session_id = Sha256::digest(key.verifying_key().as_bytes());
    let signature = key.sign(&session_id).to_bytes();
    let (mut blob, mut proof, mut body) = (Vec::new(), Vec::new(), Vec::new());
    for (part, bytes) in
        [(&mut blob, &key.verifying_key().to_bytes()[..]), (&mut proof, &signature)]
    {
        put_string(part, KIND);
        put_string(part, bytes);
    }
    for field in [Request::SESSION_BIND, &blob, &session_id, &proof] {
        put_string(&mut body, field);
    }
    body.push(0);
    [&head(MessageType::EXTENSION, body.len())[..], &body].concat()
}

/// The session, if its host has signed its id.
fn prove(body: &[u8]) -> Result<Bound, BindError> {
    let Bind { host_key, session_id, signature } =
        Bind::parse(body).map_err(|_| BindError::Malformed)?;
    host_key::verify(host_key, session_id, signature)?;
    let host_key = Fingerprint::of(host_key).ok_or(BindError::Malformed)?;
    Ok(Bound { session_id: session_id.to_vec(), host_key })
}

/// What a client says of a session.
struct Bind<'a> {
    host_key: &'a [u8],
    session_id: &'a [u8],
    signature: &'a [u8],
}

impl<'a> Bind<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, Lack> {
        let mut fields = Fields::new(body, body.len());
        let [host_key, session_id, signature] =
            [fields.string()?, fields.string()?, fields.string()?];
        // Whether the agent is forwarded there.
        if fields.u8()? > 1 || session_id.len() > MAX_SESSION_ID {
            return Err(Lack::Malformed);
        }
        fields.end()?;
        Ok(Self { host_key, session_id, signature })
    }
}
