//! Writing an [`Inspection`].

use std::fmt::Display;

use super::{
    GitFacts, GnupgFacts, Inspection, KeyFacts, KeyStatus, LaneFacts, Listener, PublicKey,
    SignatureOutcome, TEXT,
};
use crate::report;

impl Inspection {
    /// The text, from the line that begins it to the line that ends it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = Vec::new();
        put(&mut text, "inspection", &self.helper);
        put(&mut text, "processor", &self.processor);
        put(&mut text, "user", &self.user);
        put_some(&mut text, "uid", self.uid);
        put_some(&mut text, "home", self.home.as_ref());
        if let Some(gnupg) = &self.gnupg {
            gnupg.put(&mut text);
        }
        for (lane, facts) in self.lanes.iter() {
            facts.put(&mut text, &lane.to_string());
        }
        for key in &self.keys {
            key.put(&mut text);
        }
        if let Some(git) = &self.git {
            git.put(&mut text);
        }
        if let Some(SignatureOutcome { fingerprint, result }) = &self.signature {
            put(&mut text, "signature", fingerprint);
            match result {
                Ok(time) => put(&mut text, "signature-ms", &time.as_millis().to_string()),
                Err(reason) => put(&mut text, "signature-failure", reason),
            }
        }
        put(&mut text, "end", "");
        text
    }
}

impl GnupgFacts {
    fn put(&self, text: &mut Vec<u8>) {
        put(text, "gnupg", &self.program);
        put_version(text, "gnupg", &self.version);
        put_some(text, "gnupg-home", self.home.as_ref());
        put(text, "gnupg-has-home", yes_or_no(self.has_home));
        if let Some(problem) = &self.home_problem {
            let (kind, message) = (problem.kind.word(), &problem.message);
            put(text, "gnupg-home-problem", &format!("{kind} {message}"));
            put_some(text, "gnupg-home-fix", problem.fix.as_ref());
        }
    }
}

impl LaneFacts {
    fn put(&self, text: &mut Vec<u8>, lane: &str) {
        let at = |name: &str| format!("{lane}-{name}");
        put_some(text, &at("socket"), self.socket.as_ref());
        self.listener.put(text, &at("listener"));
        put_some(text, &at("set-up"), self.is_set_up.map(yes_or_no));
        for starter in &self.starters {
            put(text, &at("starter"), &format!("{} {}", starter.kind.word(), starter.name));
            put(text, &at("starter-fix"), &starter.fix);
        }
        if let Some(lock) = &self.lock {
            put(text, &at("lock"), if lock.is_held { "held" } else { "left-behind" });
            put_some(text, &at("lock-pid"), lock.pid);
            put_some(text, &at("lock-bridge"), lock.bridge.as_ref());
        }
        put_some(text, &at("problem"), self.problem.as_ref());
    }
}

impl Listener {
    fn put(&self, text: &mut Vec<u8>, name: &str) {
        let at = |end: &str| format!("{name}-{end}");
        match self {
            Self::Nobody => put(text, name, "nobody"),
            Self::Stale => put(text, name, "stale"),
            Self::Helper { pid, version, is_link_up, bridge } => {
                put(text, name, "helper");
                put_some(text, &at("pid"), *pid);
                put_some(text, &at("version"), version.as_ref());
                put_some(text, &at("link-up"), is_link_up.map(yes_or_no));
                put_some(text, &at("bridge"), bridge.as_ref());
            }
            Self::Agent { pid, program, has_secret_keys } => {
                put(text, name, "agent");
                put_some(text, &at("pid"), *pid);
                put_some(text, &at("program"), program.as_ref());
                put_some(text, &at("secret-keys"), has_secret_keys.map(yes_or_no));
            }
            Self::Unknown(what) => put(text, name, &format!("unknown {what}")),
        }
    }
}

impl KeyFacts {
    fn put(&self, text: &mut Vec<u8>) {
        put(text, "key", &self.fingerprint);
        match &self.status {
            KeyStatus::Missing => put(text, "key-status", "missing"),
            KeyStatus::Unknown(why) => put(text, "key-status", &format!("unknown {why}")),
            KeyStatus::Present(key) => key.put(text),
        }
    }
}

impl PublicKey {
    fn put(&self, text: &mut Vec<u8>) {
        put(text, "key-status", &format!("present {}", self.validity));
        put_some(text, "key-ownertrust", self.ownertrust);
        put_some(text, "key-expires", self.expires);
        put(text, "key-revoked", yes_or_no(self.is_revoked));
        for subkey in &self.subkeys {
            let expires = subkey.expires.map_or_else(String::new, |expires| format!(" {expires}"));
            let value = format!("{} {}{expires}", subkey.validity, subkey.fingerprint);
            put(text, "key-subkey", &value);
        }
        for user_id in &self.user_ids {
            put(text, "key-user-id", &format!("{} {}", user_id.validity, user_id.hash));
        }
    }
}

impl GitFacts {
    fn put(&self, text: &mut Vec<u8>) {
        put_version(text, "git", &self.version);
        put_some(text, "git-problem", self.problem.as_ref());
        for (name, setting) in self.settings() {
            if let Some(setting) = setting {
                put(text, "git-setting", &format!("{name} {}", setting.value));
                put(text, "git-file", &format!("{name} {}", setting.file));
            }
        }
    }
}

/// Adds a fact, as much of it as a reader keeps: a long one must not push others beyond the longest output.
fn put(text: &mut Vec<u8>, name: &str, value: &str) {
    let kept = value.get(..value.floor_char_boundary(TEXT)).unwrap_or_default();
    report::put(text, name, kept);
}

fn put_some(text: &mut Vec<u8>, name: &str, value: Option<impl Display>) {
    if let Some(value) = value {
        put(text, name, &value.to_string());
    }
}

fn put_version(text: &mut Vec<u8>, program: &str, version: &Result<String, String>) {
    match version {
        Ok(version) => put(text, &format!("{program}-version"), version),
        Err(reason) => put(text, &format!("{program}-failure"), reason),
    }
}

const fn yes_or_no(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}
