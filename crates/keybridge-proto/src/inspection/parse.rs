//! Parsing an [`Inspection`], which is untrusted.

use std::time::Duration;

use super::{
    AgentStarter, GitFacts, GitSetting, GnupgFacts, HomeProblem, HomeProblemKind, Inspection,
    KeyFacts, KeyStatus, LaneFacts, Listener, LockFacts, PublicKey, SignatureOutcome, StarterKind,
    Subkey, TEXT, UserId,
};
use crate::report::facts;

impl Inspection {
    /// Parses the output of a helper. What a login shell prints before it is ignored, and so are unknown
    /// names and invalid values. `None` if the text isn't there as a whole.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = text.get(..Self::MAX_SIZE).unwrap_or(text);
        let mut facts = facts(text, TEXT).skip_while(|(name, _)| *name != b"inspection");
        let mut found = Self { helper: facts.next()?.1, ..Self::default() };
        for (name, value) in facts {
            if name == b"end" {
                return Some(found);
            }
            // A fact that can't be read is passed over.
            let _ = found.add(std::str::from_utf8(name).unwrap_or_default(), value);
        }
        None
    }

    /// `None` if it can't be read.
    fn add(&mut self, name: &str, value: String) -> Option<()> {
        match name {
            "processor" => self.processor = value,
            "user" => self.user = value,
            "uid" => self.uid = value.parse().ok(),
            "home" => self.home = Some(value),
            "gnupg" => self.gnupg = Some(GnupgFacts::at(value)),
            "key" if self.keys.len() < Self::MOST_KEYS => {
                let status = KeyStatus::Unknown(String::new());
                self.keys.push(KeyFacts { fingerprint: value, status });
            }
            "git-version" => self.git = Some(GitFacts::new(Ok(value))),
            "git-failure" => self.git = Some(GitFacts::new(Err(value))),
            "signature" => {
                let result = Err(String::new());
                self.signature = Some(SignatureOutcome { fingerprint: value, result });
            }
            "signature-ms" => {
                self.signature.as_mut()?.result = Ok(Duration::from_millis(value.parse().ok()?));
            }
            "signature-failure" => self.signature.as_mut()?.result = Err(value),
            _ => match name.split_once('-')? {
                ("gnupg", name) => self.gnupg.as_mut()?.add(name, value)?,
                ("key", name) => self.keys.last_mut()?.status.add(name, &value)?,
                ("git", name) => self.git.as_mut()?.add(name, value)?,
                (lane, name) => {
                    let lane = lane.parse().ok()?;
                    self.lanes[lane].add(name, value)?;
                }
            },
        }
        Some(())
    }
}

impl GnupgFacts {
    fn at(program: String) -> Self {
        let version = Err(String::new());
        Self { program, version, home: None, has_home: false, home_problem: None }
    }

    fn add(&mut self, name: &str, value: String) -> Option<()> {
        match name {
            "version" => self.version = Ok(value),
            "failure" => self.version = Err(value),
            "home" => self.home = Some(value),
            "has-home" => self.has_home = is_yes(&value)?,
            "home-problem" => {
                let (word, message) = value.split_once(' ')?;
                let kind = HomeProblemKind::ALL.into_iter().find(|kind| kind.word() == word);
                let kind = kind.unwrap_or(HomeProblemKind::Other);
                let message = message.to_owned();
                self.home_problem = Some(HomeProblem { kind, message, fix: None });
            }
            "home-fix" => self.home_problem.as_mut()?.fix = Some(value),
            _ => {}
        }
        Some(())
    }
}

impl LaneFacts {
    fn add(&mut self, name: &str, value: String) -> Option<()> {
        match name {
            "socket" => self.socket = Some(value),
            "listener" => self.listener = Listener::parse(&value)?,
            "set-up" => self.is_set_up = is_yes(&value),
            "starter" if self.starters.len() < Inspection::MOST_STARTERS => {
                let (word, name) = value.split_once(' ')?;
                let kind = StarterKind::ALL.into_iter().find(|kind| kind.word() == word)?;
                self.starters.push(AgentStarter {
                    kind,
                    name: name.to_owned(),
                    fix: String::new(),
                });
            }
            "starter-fix" => {
                // That of a starter which wasn't kept comes second.
                self.starters.last_mut().filter(|starter| starter.fix.is_empty())?.fix = value;
            }
            "lock" => {
                let is_held = value == "held";
                self.lock = Some(LockFacts { is_held, pid: None, bridge: None });
            }
            "lock-pid" => self.lock.as_mut()?.pid = value.parse().ok(),
            "lock-bridge" => self.lock.as_mut()?.bridge = Some(value),
            "problem" => self.problem = Some(value),
            _ => self.listener.add(name.strip_prefix("listener-")?, value),
        }
        Some(())
    }
}

impl Listener {
    fn parse(value: &str) -> Option<Self> {
        Some(match value.split_once(' ').unwrap_or((value, "")) {
            ("nobody", _) => Self::Nobody,
            ("stale", _) => Self::Stale,
            ("helper", _) => {
                Self::Helper { pid: None, version: None, is_link_up: None, bridge: None }
            }
            ("agent", _) => Self::Agent { pid: None, program: None, has_secret_keys: None },
            ("unknown", what) => Self::Unknown(what.to_owned()),
            _ => return None,
        })
    }

    fn add(&mut self, name: &str, value: String) {
        match self {
            Self::Helper { pid, version, is_link_up, bridge } => match name {
                "pid" => *pid = value.parse().ok(),
                "version" => *version = Some(value),
                "link-up" => *is_link_up = is_yes(&value),
                "bridge" => *bridge = Some(value),
                _ => {}
            },
            Self::Agent { pid, program, has_secret_keys } => match name {
                "pid" => *pid = value.parse().ok(),
                "program" => *program = Some(value),
                "secret-keys" => *has_secret_keys = is_yes(&value),
                _ => {}
            },
            Self::Nobody | Self::Stale | Self::Unknown(_) => {}
        }
    }
}

impl KeyStatus {
    fn add(&mut self, name: &str, value: &str) -> Option<()> {
        if name == "status" {
            *self = match value.split_once(' ').unwrap_or((value, "")) {
                ("missing", _) => Self::Missing,
                ("unknown", why) => Self::Unknown(why.to_owned()),
                ("present", validity) => Self::Present(PublicKey {
                    validity: validity.chars().next()?,
                    ownertrust: None,
                    expires: None,
                    is_revoked: false,
                    subkeys: Vec::new(),
                    user_ids: Vec::new(),
                }),
                _ => return None,
            };
            return Some(());
        }
        let Self::Present(key) = self else { return None };
        match name {
            "ownertrust" => key.ownertrust = value.parse().ok(),
            "expires" => key.expires = value.parse().ok(),
            "revoked" => key.is_revoked = is_yes(value)?,
            "subkey" if key.subkeys.len() < Inspection::MOST_PARTS => {
                let mut words = value.split(' ');
                let validity = words.next()?.chars().next()?;
                let fingerprint = words.next()?.to_owned();
                let expires = words.next().and_then(|expires| expires.parse().ok());
                key.subkeys.push(Subkey { fingerprint, validity, expires });
            }
            "user-id" if key.user_ids.len() < Inspection::MOST_PARTS => {
                let (validity, hash) = value.split_once(' ')?;
                let validity = validity.chars().next()?;
                key.user_ids.push(UserId { hash: hash.to_owned(), validity });
            }
            _ => {}
        }
        Some(())
    }
}

impl GitFacts {
    fn add(&mut self, name: &str, value: String) -> Option<()> {
        match name {
            "problem" => self.problem = Some(value),
            "setting" => {
                let (name, value) = value.split_once(' ')?;
                let setting = GitSetting { value: value.to_owned(), file: String::new() };
                *self.setting_mut(name)? = Some(setting);
            }
            "file" => {
                let (name, file) = value.split_once(' ')?;
                self.setting_mut(name)?.as_mut()?.file = file.to_owned();
            }
            _ => {}
        }
        Some(())
    }
}

fn is_yes(value: &str) -> Option<bool> {
    match value {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}
