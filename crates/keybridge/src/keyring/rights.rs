//! Which secret keys a target may use, and what for.

use keybridge_proto::gate::{LentKeys, Rights, Use};
use keybridge_proto::printable;
use serde::{Deserialize, Serialize};

use super::listing::{Capabilities, Protocol, SecretKey};
use crate::keys::KeyFilter;
use crate::{Error, ErrorKind, Result};

/// Which keys the user lends, as set.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lending {
    /// The secret keys that may be used: the setting `lend`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lend: Option<String>,
    /// The public keys that are sent: the setting `keys`. Without `lend` it counts for both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<String>,
    /// What the secret keys may be used for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<Uses>,
}

impl Lending {
    /// Which public keys are sent, or may be asked for.
    pub fn public_keys(&self) -> KeyFilter {
        let Ok(filter) = self.keys.as_deref().unwrap_or("pairs").parse();
        filter
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

    /// The words of the setting.
    pub(crate) fn words(self) -> Vec<String> {
        let Self { sign, decrypt, certify } = self;
        let all = [("sign", sign), ("decrypt", decrypt), ("certify", certify)];
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(word, _)| word.to_owned()).collect()
    }
}

/// A key that the user has chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen<'a> {
    pub(super) key: &'a SecretKey,
    /// The very key was named, not one that it belongs to.
    pub(super) exactly: bool,
}

/// The rights that follow for the chosen keys, of all that the host has.
///
/// Anybody can make a key or a certificate that claims the user's key pair as theirs, for uses of
/// their own, and have it land in the keyring. So only records count that are the user's own, and
/// each of them has to allow a use.
pub(super) fn rights(all: &[SecretKey], chosen: &[Chosen<'_>], uses: Uses) -> LentKeys {
    let mut rights = Vec::new();
    for Chosen { key, exactly } in chosen {
        for &keygrip in &key.keygrips {
            let same = || all.iter().filter(move |other| other.keygrips.contains(&keygrip));
            let has_own = same().any(|other| other.is_own);
            let counts = |other: &&SecretKey| other.is_own || (*exactly && !has_own);
            if !counts(key) {
                continue;
            }
            let how = match key.protocol {
                Protocol::OpenPgp => Use::OpenPgp,
                Protocol::X509 => Use::X509,
            };
            let each = |allows: &dyn Fn(&SecretKey) -> bool| same().filter(counts).all(allows);
            let signs = each(&|other| {
                let is_for = |one| other.capabilities.has(one);
                other.is_valid
                    && (uses.sign && is_for(Capabilities::SIGN)
                        || uses.certify && is_for(Capabilities::CERTIFY))
            });
            // With RSA a decryption is a signature too, if somebody would believe it.
            let signs_by_decrypting =
                !each(&|other| !(other.is_rsa && other.capabilities.makes_signatures()));
            let decrypts = uses.decrypt
                && each(&|other| other.capabilities.has(Capabilities::DECRYPT))
                && (signs || !signs_by_decrypting);
            let sign = if signs { how } else { Use::Denied };
            let decrypt = if decrypts { how } else { Use::Denied };
            rights.push((keygrip, Rights { sign, decrypt }));
        }
    }
    rights.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::listing::parse;
    use super::*;
    use keybridge_proto::gate::KeyGrip;

    const GRIP: &str = "1111111111111111111111111111111111111111";
    const RSA: &str = "1";
    const ECC: &str = "22";

    /// A key of the user's own, by its algorithm's number, validity and capabilities.
    fn own(algorithm: &str, validity: &str, letters: &str) -> SecretKey {
        record("sec", algorithm, validity, letters, Protocol::OpenPgp)
    }

    fn record(
        kind: &str,
        algorithm: &str,
        validity: &str,
        letters: &str,
        protocol: Protocol,
    ) -> SecretKey {
        let listing = format!(
            "{kind}:{validity}:255:{algorithm}:0:0:::u:::{letters}:::+:\nfpr:::::::::AB:\n\
             grp:::::::::{GRIP}:\n"
        );
        parse(listing.as_bytes(), protocol).keys.remove(0)
    }

    fn uses(words: &str) -> Uses {
        let words: Vec<String> = words.split(',').map(str::to_owned).collect();
        Uses::parse(&words).unwrap()
    }

    /// What may be done with the key pair if the first `chosen` records are.
    fn may(all: &[SecretKey], chosen: usize, exactly: bool, words: &str) -> (Use, Use) {
        let chosen: Vec<Chosen<'_>> =
            all[..chosen].iter().map(|key| Chosen { key, exactly }).collect();
        let lent = rights(all, &chosen, uses(words));
        let rights = lent.find(KeyGrip::parse(GRIP.as_bytes()).unwrap()).unwrap_or_default();
        (rights.sign, rights.decrypt)
    }

    const NOTHING: (Use, Use) = (Use::Denied, Use::Denied);

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
            let key = own(algorithm, validity, letters);
            let (signs, decrypts) = may(&[key], 1, false, words);
            let rights = (signs != Use::Denied, decrypts != Use::Denied);
            assert_eq!(rights, (sign, decrypt), "{algorithm} {validity} {letters} {words}");
        }
    }

    #[test]
    fn every_record_of_a_key_pair_has_to_allow_a_use() {
        let words = "sign,decrypt";
        let both = |first, second| may(&[first, second], 2, false, words);
        assert_eq!(both(own(ECC, "u", "s"), own(ECC, "u", "s")), (Use::OpenPgp, Use::Denied));
        assert_eq!(both(own(ECC, "u", "c"), own(ECC, "u", "s")), NOTHING);
        assert_eq!(both(own(ECC, "r", "s"), own(ECC, "u", "s")), NOTHING);
        assert_eq!(both(own(RSA, "u", "e"), own(RSA, "u", "s")), NOTHING);
        let certificate = |letters| record("crs", RSA, "f", letters, Protocol::X509);
        assert_eq!(both(own(RSA, "u", "sc"), certificate("s")), (Use::X509, Use::Denied));
        assert_eq!(both(own(RSA, "u", "c"), certificate("s")), NOTHING);
        // Not chosen, and it counts all the same.
        assert_eq!(may(&[own(RSA, "u", "e"), certificate("s")], 1, false, words), NOTHING);
    }

    #[test]
    fn what_others_say_of_a_key_pair_counts_for_nothing() {
        let words = "sign,decrypt";
        // In the block of a primary key that isn't here, and that isn't trusted as one's own.
        let foreign = |letters| SecretKey { is_own: false, ..own(RSA, "u", letters) };
        let certificate = |letters| record("crs", RSA, "n", letters, Protocol::X509);
        for other in [foreign("s"), certificate("s")] {
            assert_eq!(may(std::slice::from_ref(&other), 1, false, words), NOTHING);
            // It neither gives a right nor takes one away.
            for (letters, rights) in [
                ("c", NOTHING),
                ("a", NOTHING),
                ("s", (Use::OpenPgp, Use::Denied)),
                ("e", (Use::Denied, Use::OpenPgp)),
            ] {
                let all = [other.clone(), own(RSA, "u", letters)];
                assert_eq!(may(&all, 2, false, words), rights, "{letters}");
                assert_eq!(may(&all, 1, true, words), NOTHING, "{letters}");
            }
        }
        // A subkey whose primary key is elsewhere can be named.
        assert_eq!(may(&[foreign("s")], 1, true, words), (Use::OpenPgp, Use::Denied));
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
