//! The keys: secret ones that can be lent, and the public ones in the target with their ownertrust.

use std::time::{SystemTime, UNIX_EPOCH};

use keybridge_proto::inspection::{KeyStatus, PublicKey};
use keybridge_proto::printable;

use crate::checks::{Outcome, Problem};
use crate::doctor::{Fix, fix};
use crate::facts::Facts;
use crate::keyring::{Overview, OwnKey, SentKey};

/// There are secret keys that can be lent, and they are valid.
pub(crate) fn secret_keys(facts: &Facts) -> Option<Outcome> {
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

/// The public keys that are sent are in the target, and not older there.
pub(crate) fn public_keys(facts: &Facts) -> Option<Outcome> {
    let (inspection, keys) = (facts.inspection()?, facts.host.keys.as_ref().ok()?);
    inspection.gnupg.as_ref()?;
    let broken = |cause: String| Outcome::Broken(Problem::new(cause).fix(Fix::safe(facts.sync())));
    for sent in &keys.sent {
        let name = &sent.fingerprint;
        let found = inspection.keys.iter().find(|found| found.fingerprint == *name);
        match found.map(|found| &found.status) {
            Some(KeyStatus::Missing) => {
                return Some(broken(format!("the target lacks the public key {name}")));
            }
            Some(KeyStatus::Present(there)) => {
                if let Some(what) = differs(sent, there) {
                    return Some(broken(format!("the target has an older {name}: {what}")));
                }
            }
            Some(KeyStatus::Unknown(why)) => {
                let cause = format!("the public key {name} can't be looked up: {why}");
                return Some(Outcome::Warning(Problem::new(cause)));
            }
            None => {}
        }
    }
    Some(Outcome::Fine(match keys.sent.len() {
        0 => "none are sent".to_owned(),
        1 => "1, as on the host".to_owned(),
        count => format!("{count}, as on the host"),
    }))
}

/// What the target doesn't know yet.
fn differs(sent: &SentKey, there: &PublicKey) -> Option<&'static str> {
    let expiry = |fingerprint: &str| {
        if fingerprint == sent.fingerprint {
            return Some(there.expires);
        }
        let subkey = there.subkeys.iter().find(|subkey| subkey.fingerprint == fingerprint);
        subkey.map(|subkey| subkey.expires)
    };
    for (fingerprint, expires) in &sent.expiries {
        match expiry(fingerprint) {
            Some(known) if known == *expires => {}
            Some(_) => return Some("it expires at another time"),
            None => return Some("a subkey is new"),
        }
    }
    let knows = |hash: &str| there.user_ids.iter().any(|known| known == hash);
    let is_new = sent.user_ids.iter().any(|(hash, _)| !knows(hash));
    is_new.then_some("a user id is new")
}

/// The ownertrust in the target is that of the host.
pub(crate) fn ownertrust(facts: &Facts) -> Option<Outcome> {
    let (inspection, keys) = (facts.inspection()?, facts.host.keys.as_ref().ok()?);
    inspection.gnupg.as_ref()?;
    let there = |fingerprint: &str| {
        let found = inspection.keys.iter().find(|found| found.fingerprint == fingerprint)?;
        match &found.status {
            KeyStatus::Present(key) => Some(key.ownertrust),
            KeyStatus::Missing | KeyStatus::Unknown(_) => None,
        }
    };
    let is_other =
        |fingerprint: &str, trust: u8| there(fingerprint).is_some_and(|there| there != Some(trust));
    let untrusted = keys
        .sent
        .iter()
        .find(|sent| sent.ownertrust.is_some_and(|trust| is_other(&sent.fingerprint, trust)));
    Some(match untrusted {
        Some(sent) => Outcome::Warning(
            Problem::new(format!(
                "gpg in the target doesn't trust {} as the host does",
                sent.fingerprint
            ))
            .fix(Fix::safe(facts.sync())),
        ),
        None => Outcome::Fine("as on the host".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use keybridge_proto::inspection::Subkey;

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

    #[test]
    fn a_key_is_current_if_its_dates_subkeys_and_user_ids_are() {
        let sent = SentKey {
            fingerprint: "A".to_owned(),
            expiries: vec![("A".to_owned(), Some(7)), ("B".to_owned(), None)],
            user_ids: vec![("h".to_owned(), "Lab".to_owned())],
            ownertrust: None,
        };
        let there = PublicKey {
            ownertrust: None,
            expires: Some(7),
            subkeys: vec![Subkey { fingerprint: "B".to_owned(), expires: None }],
            user_ids: vec!["h".to_owned()],
        };
        assert_eq!(differs(&sent, &there), None);
        let expired = PublicKey { expires: Some(6), ..there.clone() };
        assert_eq!(differs(&sent, &expired), Some("it expires at another time"));
        let without_subkey = PublicKey { subkeys: Vec::new(), ..there.clone() };
        assert_eq!(differs(&sent, &without_subkey), Some("a subkey is new"));
        let without_user_id = PublicKey { user_ids: Vec::new(), ..there };
        assert_eq!(differs(&sent, &without_user_id), Some("a user id is new"));
    }
}
