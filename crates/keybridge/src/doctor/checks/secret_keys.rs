//! There are secret keys that can be lent, and they are valid.

use keybridge_proto::{Lane, printable};

use super::{Check, Outcome, Part, Problem, gpg_agent};
use crate::doctor::{Facts, Fix, fix};
use crate::keyring::{Overview, OwnKey};

pub(crate) static CHECK: Check = Check {
    name: "secret-keys",
    title: "the secret keys that are lent",
    part: Part::Home,
    lane: Some(Lane::Gpg),
    needs: &[&gpg_agent::CHECK],
    examine,
};

fn examine(facts: &Facts) -> Option<Outcome> {
    Some(match &facts.home.keys {
        Ok(keys) => judge(facts, keys),
        Err(error) => Outcome::Broken(Problem::from(error)),
    })
}

fn judge(facts: &Facts, keys: &Overview) -> Outcome {
    let expired: Vec<&OwnKey> = keys.own.iter().filter(|key| is_missed(keys, key)).collect();
    let is_lent = keys.own.iter().any(|key| key.signs || key.decrypts);
    let has_signing = keys.own.iter().any(|key| key.signs);
    match expired.first() {
        Some(key) => {
            let cause = format!(
                "{} ({}) has expired",
                key.fingerprint,
                printable(&key.user_id)
            );
            let problem = Problem::new(cause).fix(extend(facts, key));
            // Other keys may still sign.
            if has_signing { Outcome::Warning(problem) } else { Outcome::Broken(problem) }
        }
        None if keys.own.is_empty() => {
            Outcome::Broken(
                Problem::new("there is no secret key in this GnuPG home")
                    .fix(Fix::new(fix::gnupg("gpg", &facts.home.gnupg, &["--full-generate-key"]))),
            )
        }
        None if !is_lent => {
            let cause = keys.warnings.last().map_or("no secret key is lent", String::as_str);
            let hint = "--lend chooses the keys, and --uses what they may be used for";
            Outcome::Broken(Problem::new(cause).hint(hint))
        }
        None => match keys.warnings.first() {
            Some(warning) => Outcome::Warning(Problem::new(warning)),
            None => {
                Outcome::Fine(format!("{} of {} lent: {}", lent(keys), keys.own.len(), keys.lent))
            }
        },
    }
}

fn lent(keys: &Overview) -> usize {
    keys.own.iter().filter(|key| key.signs || key.decrypts).count()
}

/// A key for signatures that isn't valid, whose primary key has no other one.
fn is_missed(keys: &Overview, key: &OwnKey) -> bool {
    let replaces =
        |other: &OwnKey| other.primary == key.primary && other.is_for_signing && other.is_valid;
    key.is_openpgp
        && key.is_for_signing
        && !key.is_valid
        && key.expires.is_some()
        && !keys.own.iter().any(replaces)
}

/// Extends a primary key and its subkeys, and sends them again.
fn extend(facts: &Facts, key: &OwnKey) -> Fix {
    let extend = |more: &[&str]| {
        let words = [&["--quick-set-expire", key.primary.as_str(), "1y"], more].concat();
        fix::gnupg("gpg", &facts.home.gnupg, &words)
    };
    let command = format!("{} && {}", extend(&[]), extend(&["*"]));
    Fix::new(match facts.target.as_ref().filter(|target| target.bridge.status().is_some()) {
        Some(target) => format!("{command} && keybridge sync {}", target.address.as_word()),
        None => command,
    })
}
