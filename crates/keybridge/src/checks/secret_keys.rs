//! There are secret keys that can be lent, and they are valid.

use std::time::{SystemTime, UNIX_EPOCH};

use keybridge_proto::printable;

use crate::checks::{Outcome, Problem};
use crate::doctor::{Fix, fix};
use crate::facts::Facts;
use crate::keyring::{Overview, OwnKey};

pub(crate) fn examine(facts: &Facts) -> Option<Outcome> {
    Some(match &facts.host.keys {
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
            let cause = format!("{} ({}) has expired", key.fingerprint, printable(&key.user_id));
            let problem = Problem::new(cause).fix(extend(facts, keys, key));
            // Other keys may still sign.
            if has_signing { Outcome::Warning(problem) } else { Outcome::Broken(problem) }
        }
        None if keys.own.is_empty() => {
            Outcome::Broken(
                Problem::new("there is no secret key in this GnuPG home")
                    .fix(Fix::new(fix::gnupg("gpg", &facts.host.gnupg, &["--full-generate-key"]))),
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

/// A key for signatures that has expired, or whose primary key has, and that no other one replaces.
fn is_missed(keys: &Overview, key: &OwnKey) -> bool {
    let replaces =
        |other: &OwnKey| other.primary == key.primary && other.is_for_signing && other.is_valid;
    let sent = keys.sent.iter().flat_map(|sent| &sent.expiries);
    let of_primary = sent.filter(|(fingerprint, _)| *fingerprint == key.primary);
    let mut expiries = of_primary.filter_map(|(_, expires)| *expires).chain(key.expires);
    key.is_openpgp
        && key.is_for_signing
        && !key.is_valid
        && expiries.any(is_past)
        && !keys.own.iter().any(replaces)
}

fn is_past(seconds: u64) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.is_ok_and(|now| now.as_secs() >= seconds)
}

/// Extends a primary key and its subkeys that have expired, and sends them again.
fn extend(facts: &Facts, keys: &Overview, key: &OwnKey) -> Fix {
    let extend = |more: &[&str]| {
        let words = [&["--quick-set-expire", key.primary.as_str(), "1y"], more].concat();
        fix::gnupg("gpg", &facts.host.gnupg, &words)
    };
    // Where all subkeys are meant, by an asterisk, gpg leaves out those that have expired.
    let expired = keys.own.iter().filter(|own| {
        let is_subkey = own.primary == key.primary && own.fingerprint != key.primary;
        is_subkey && own.expires.is_some_and(is_past)
    });
    let expired: Vec<&str> = expired.map(|own| own.fingerprint.as_str()).collect();
    let command = match expired.as_slice() {
        [] => extend(&[]),
        subkeys => format!("{} && {}", extend(&[]), extend(subkeys)),
    };
    Fix::new(match facts.target.as_ref().filter(|target| target.bridge.status().is_some()) {
        // It may have expired before that bridge's `up`.
        Some(_) => facts.then_up(&command),
        None => command,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::SentKey;

    #[test]
    fn a_key_is_missed_if_it_or_its_primary_key_has_expired_and_none_replaces_it() {
        let key = |is_valid, expires| OwnKey {
            primary: "P".to_owned(),
            is_openpgp: true,
            is_for_signing: true,
            is_valid,
            expires,
            ..OwnKey::default()
        };
        let keys = |own: &[OwnKey], primary_expires| Overview {
            own: own.to_vec(),
            sent: vec![SentKey {
                fingerprint: "P".to_owned(),
                expiries: vec![("P".to_owned(), primary_expires)],
                ..SentKey::default()
            }],
            ..Overview::default()
        };
        let (expired, revoked, valid) = (key(false, Some(1)), key(false, None), key(true, None));
        assert!(is_missed(&keys(&[], None), &expired));
        assert!(is_missed(&keys(&[], Some(1)), &revoked), "its primary key has expired");
        assert!(!is_missed(&keys(&[], Some(u64::MAX)), &revoked));
        assert!(!is_missed(&keys(&[], None), &valid));
        assert!(!is_missed(&keys(&[valid], None), &expired), "another one signs");
    }
}
