//! Which secret keys a target may use, and what for.

use std::collections::HashMap;

use keybridge_proto::gate::{KeyGrip, LentKeys, Rights, Use};
use serde::{Deserialize, Serialize};

use super::listing::{Capabilities, Protocol, SecretKey};
use crate::{Error, ErrorKind, Result};
use keybridge_proto::printable;

/// What the user lends, as far as it is set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lending {
    /// The secret keys that may be used: the setting `lend`.
    pub lend: Option<String>,
    /// The public keys that are sent: the setting `keys`. Without `lend` it counts for both.
    pub keys: Option<String>,
    /// What the secret keys may be used for.
    pub uses: Option<Uses>,
}

impl Lending {
    /// These settings, and others where one isn't set: what was narrowed once stays so.
    #[must_use]
    pub fn or(self, others: &Self) -> Self {
        Self {
            lend: self.lend.or_else(|| others.lend.clone()),
            keys: self.keys.or_else(|| others.keys.clone()),
            uses: self.uses.or(others.uses),
        }
    }

    /// The words that choose secret keys.
    pub(super) fn words(&self) -> &str {
        self.lend.as_deref().or(self.keys.as_deref()).unwrap_or("pairs")
    }
}

/// What lent keys may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uses {
    /// Signatures of files, mails, commits.
    pub sign: bool,
    /// Decryption.
    pub decrypt: bool,
    /// Signatures of keys and of user ids, one's own among them.
    pub certify: bool,
}

impl Default for Uses {
    fn default() -> Self {
        Self { sign: true, decrypt: true, certify: false }
    }
}

impl Uses {
    /// Reads the words of the setting.
    pub(crate) fn parse(words: &[String]) -> Result<Self> {
        let mut uses = Self { sign: false, decrypt: false, certify: false };
        for word in words {
            match word.trim() {
                "sign" => uses.sign = true,
                "decrypt" => uses.decrypt = true,
                "certify" => uses.certify = true,
                "authenticate" => {
                    let message = "uses: logins go over the ssh lane, never over the gpg lane";
                    return Err(Error::new(ErrorKind::Usage, message)
                        .hint("--ssh-keys chooses the keys for logins"));
                }
                other => {
                    let message = format!(
                        "uses: {} is unknown; expected sign, decrypt or certify",
                        printable(other)
                    );
                    return Err(Error::new(ErrorKind::Usage, message));
                }
            }
        }
        Ok(uses)
    }
}

/// The rights that follow for these keys, of all that the host has.
pub(super) fn rights<'a>(
    all: &[SecretKey],
    lent: impl IntoIterator<Item = &'a SecretKey>,
    uses: Uses,
) -> LentKeys {
    let mut rights: HashMap<KeyGrip, Rights> = HashMap::new();
    for key in lent {
        let how = match key.protocol {
            Protocol::OpenPgp => Use::OpenPgp,
            Protocol::X509 => Use::X509,
        };
        let is_for = |one| key.capabilities.has(one);
        let signs = key.is_valid
            && (uses.sign && is_for(Capabilities::SIGN)
                || uses.certify && is_for(Capabilities::CERTIFY));
        let decrypts = uses.decrypt && is_for(Capabilities::DECRYPT);
        for keygrip in &key.keygrips {
            let known = rights.entry(*keygrip).or_default();
            known.sign = known.sign.max(if signs { how } else { Use::Denied });
            known.decrypt = known.decrypt.max(if decrypts { how } else { Use::Denied });
        }
    }
    for (keygrip, rights) in &mut rights {
        if rights.sign == Use::Denied && decrypting_signs(all, *keygrip) {
            rights.decrypt = Use::Denied;
        }
    }
    rights.into_iter().collect()
}

/// Whether a decryption with this key can be used as a signature that somebody would believe: with
/// RSA both are the same operation. The key counts with all of its uses, lent or not.
fn decrypting_signs(all: &[SecretKey], keygrip: KeyGrip) -> bool {
    let mut same = all.iter().filter(|key| key.keygrips.contains(&keygrip));
    same.any(|key| key.is_rsa && key.capabilities.makes_signatures())
}

#[cfg(test)]
mod tests {
    use super::super::listing::parse;
    use super::*;

    const GRIPS: [&str; 3] = [
        "1111111111111111111111111111111111111111",
        "2222222222222222222222222222222222222222",
        "3333333333333333333333333333333333333333",
    ];

    /// Keys of an algorithm's number, validity and capabilities, each with the next keygrip.
    fn keys(protocol: Protocol, keys: &[(&str, &str, &str)]) -> Vec<SecretKey> {
        let listing: String = keys
            .iter()
            .zip(GRIPS)
            .map(|((algorithm, validity, letters), grip)| {
                format!(
                    "sec:{validity}:255:{algorithm}:0:0:::u:::{letters}:::+:\nfpr:::::::::AB:\n\
                     grp:::::::::{grip}:\n"
                )
            })
            .collect();
        parse(listing.as_bytes(), protocol)
    }

    fn uses(words: &str) -> Uses {
        let words: Vec<String> = words.split(',').map(str::to_owned).collect();
        Uses::parse(&words).unwrap()
    }

    /// What may be done with a single key.
    fn may(algorithm: &str, validity: &str, letters: &str, words: &str) -> (bool, bool) {
        let all = keys(Protocol::OpenPgp, &[(algorithm, validity, letters)]);
        let lent = rights(&all, &all, uses(words));
        let rights = lent.find(KeyGrip::parse(GRIPS[0].as_bytes()).unwrap()).unwrap_or_default();
        (rights.sign != Use::Denied, rights.decrypt != Use::Denied)
    }

    const RSA: &str = "1";
    const ECC: &str = "22";

    #[test]
    fn a_key_is_used_for_what_it_is_for_and_what_is_lent() {
        for (algorithm, validity, letters, words, sign, decrypt) in [
            (ECC, "u", "s", "sign,decrypt", true, false),
            (ECC, "u", "e", "sign,decrypt", false, true),
            (ECC, "u", "c", "sign,decrypt", false, false),
            (ECC, "u", "c", "certify", true, false),
            (ECC, "u", "sc", "sign,decrypt", true, false),
            (ECC, "u", "a", "sign,decrypt,certify", false, false),
            (ECC, "u", "sa", "sign", true, false),
            (ECC, "u", "s", "decrypt", false, false),
            (ECC, "u", "e", "sign", false, false),
            // Those that no longer sign still decrypt.
            (ECC, "e", "s", "sign,decrypt", false, false),
            (ECC, "r", "s", "sign,decrypt", false, false),
            (ECC, "u", "sD", "sign,decrypt", false, false),
            (ECC, "e", "e", "sign,decrypt", false, true),
            (ECC, "r", "e", "sign,decrypt", false, true),
            (ECC, "e", "se", "sign,decrypt", false, true),
            // Decryption with RSA is a signature too.
            (RSA, "u", "e", "decrypt", false, true),
            (RSA, "e", "e", "decrypt", false, true),
            (RSA, "u", "se", "sign,decrypt", true, true),
            (RSA, "u", "se", "decrypt", false, false),
            (RSA, "u", "ce", "sign,decrypt", false, false),
            (RSA, "u", "ce", "decrypt,certify", true, true),
            (RSA, "u", "ea", "sign,decrypt", false, false),
            (RSA, "e", "se", "sign,decrypt", false, false),
        ] {
            let rights = may(algorithm, validity, letters, words);
            assert_eq!(rights, (sign, decrypt), "{algorithm} {validity} {letters} {words}");
        }
    }

    #[test]
    fn one_key_pair_under_two_names_counts_with_both() {
        let grip = KeyGrip::parse(GRIPS[0].as_bytes()).unwrap();
        let mut all = keys(Protocol::OpenPgp, &[(RSA, "u", "e")]);
        let found = |all: &[SecretKey]| rights(all, &all[..1], Uses::default()).find(grip);
        assert!(found(&all).is_some());
        // The second one isn't lent, and its signatures could be made by decrypting with the first.
        all.extend(keys(Protocol::X509, &[(RSA, "u", "s")]));
        assert_eq!(found(&all), None);
        let both = rights(&all, &all, Uses::default()).find(grip);
        assert_eq!(both, Some(Rights { sign: Use::X509, decrypt: Use::OpenPgp }));
    }

    #[test]
    fn uses_are_words_and_authenticate_is_not_one() {
        assert_eq!(uses("sign, decrypt"), Uses::default());
        for (word, part) in [("authenticate", "ssh lane"), ("sing", "sing is unknown"), ("", " is")]
        {
            let error = Uses::parse(&[word.to_owned()]).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Usage);
            assert!(error.message.contains(part), "{error}");
        }
    }
}
