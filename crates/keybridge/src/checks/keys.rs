//! The public keys that are sent, and their ownertrust: the target has them as they are on the host.

use keybridge_proto::inspection::{KeyStatus, PublicKey};

use crate::checks::{Outcome, Problem};
use crate::doctor::Fix;
use crate::facts::Facts;
use crate::keyring::SentKey;

/// They are there, and not older.
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
        1 => "1, as on this machine".to_owned(),
        count => format!("{count}, as on this machine"),
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

/// The ownertrust in the target is that of this machine.
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
    let differs =
        |fingerprint: &str, here: u8| there(fingerprint).is_some_and(|there| there != Some(here));
    let untrusted = keys
        .sent
        .iter()
        .find(|sent| sent.ownertrust.is_some_and(|here| differs(&sent.fingerprint, here)));
    Some(match untrusted {
        Some(sent) => Outcome::Warning(
            Problem::new(format!("gpg in the target doesn't trust {} as here", sent.fingerprint))
                .fix(Fix::safe(facts.sync())),
        ),
        None => Outcome::Fine("as on this machine".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use keybridge_proto::inspection::Subkey;

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
