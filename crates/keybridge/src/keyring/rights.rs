//! Which secret keys a target may use, and what for.

use keybridge_proto::gate::{KeyGrip, Rights, Use};
use keybridge_proto::{Operation, OperationSet};
use serde::{Deserialize, Serialize};

use super::listing::{Capabilities, Protocol, SecretKey};
use crate::keys::KeyFilter;

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
    /// What the target may have done, if that was chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uses: Option<OperationSet>,
}

impl Lending {
    /// Which public keys are sent, or may be asked for.
    pub(crate) fn public_keys(&self) -> KeyFilter {
        let Ok(filter) = self.keys.as_deref().unwrap_or("pairs").parse();
        filter
    }

    /// The words that choose secret keys.
    pub(super) fn words(&self) -> &str {
        self.lend.as_deref().or(self.keys.as_deref()).unwrap_or("pairs")
    }
}

/// A key that the user has chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chosen<'a> {
    pub(super) key: &'a SecretKey,
    /// The very key was named, not one that it belongs to.
    pub(super) exactly: bool,
}

/// A key that may be used, by what its record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lent {
    pub(super) keygrip: KeyGrip,
    pub(super) fingerprint: String,
    /// The fingerprint of the primary key, if it is an OpenPGP key.
    pub(super) primary: Option<String>,
    pub(super) rights: Rights,
    /// The host may sign commits or tags with it.
    pub(super) for_git: bool,
    /// Decryption with it makes signatures that somebody would believe.
    pub(super) signs_by_decrypting: bool,
}

/// The rights that follow for the chosen keys, of all that the host has.
///
/// Anybody can make a key or a certificate that claims the user's key pair as theirs, for uses of
/// their own, and have it land in the keyring. So only records count that are the user's own, and
/// each of them has to allow a use. A key pair that gpg-agent uses for ssh only authenticates, whatever
/// its records say.
pub(super) fn rights(all: &[SecretKey], chosen: &[Chosen<'_>], uses: OperationSet) -> Vec<Lent> {
    let mut lent = Vec::new();
    for Chosen { key, exactly } in chosen {
        for &keygrip in &key.keygrips {
            let same = || all.iter().filter(move |other| other.keygrips.contains(&keygrip));
            let has_own = same().any(SecretKey::is_own);
            let counts = |other: &&SecretKey| other.is_own() || (*exactly && !has_own);
            if !counts(key) || (key.is_for_ssh && !exactly) {
                continue;
            }
            let how = match key.protocol {
                Protocol::OpenPgp => Use::OpenPgp,
                Protocol::X509 => Use::X509,
            };
            let each = |allows: &dyn Fn(&SecretKey) -> bool| same().filter(counts).all(allows);
            let is_for_one = |operations: &[(Operation, Capabilities)]| {
                each(&|other| {
                    let is_for = |(operation, capability): &(Operation, Capabilities)| {
                        uses.has(*operation) && other.capabilities.has(*capability)
                    };
                    other.is_valid && operations.iter().any(is_for)
                })
            };
            let signs = is_for_one(&[
                (Operation::Sign, Capabilities::SIGN),
                (Operation::Certify, Capabilities::CERTIFY),
            ]);
            let for_git = key.protocol == Protocol::OpenPgp
                && is_for_one(&[
                    (Operation::Commit, Capabilities::SIGN),
                    (Operation::Tag, Capabilities::SIGN),
                ]);
            // With RSA a decryption is a signature too, if somebody would believe it.
            let signs_by_decrypting =
                !each(&|other| !(other.is_rsa && other.capabilities.makes_signatures()));
            let decrypts = uses.has(Operation::Decrypt)
                && each(&|other| other.capabilities.has(Capabilities::DECRYPT))
                && (signs || !signs_by_decrypting);
            let sign = if signs { how } else { Use::Denied };
            let decrypt = if decrypts { how } else { Use::Denied };
            let rights = Rights { sign, decrypt };
            if rights.is_any() || for_git {
                let primary = (key.protocol == Protocol::OpenPgp).then(|| key.primary.clone());
                let fingerprint = key.fingerprint.clone();
                lent.push(Lent {
                    keygrip,
                    fingerprint,
                    primary,
                    rights,
                    for_git,
                    signs_by_decrypting,
                });
            }
        }
    }
    lent
}

#[cfg(test)]
mod tests {
    use super::super::listing::{Owner, parse};
    use super::*;
    use keybridge_proto::gate::LentKeys;

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

    fn uses(words: &str) -> OperationSet {
        words.split(',').map(|word| word.parse::<Operation>().unwrap()).collect()
    }

    /// What may be done with the key pair if the first `chosen` records are.
    fn may(all: &[SecretKey], chosen: usize, exactly: bool, words: &str) -> (Use, Use) {
        let chosen: Vec<Chosen<'_>> =
            all[..chosen].iter().map(|key| Chosen { key, exactly }).collect();
        let lent = rights(all, &chosen, uses(words));
        let lent: LentKeys = lent.into_iter().map(|lent| (lent.keygrip, lent.rights)).collect();
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
        let foreign = |letters| SecretKey { owner: Owner::Unknown, ..own(RSA, "u", letters) };
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
    fn a_key_pair_for_ssh_never_signs_or_decrypts_unless_it_is_named() {
        let key = SecretKey { is_for_ssh: true, ..own(RSA, "u", "se") };
        let words = "sign,decrypt,certify";
        assert_eq!(may(std::slice::from_ref(&key), 1, false, words), NOTHING);
        assert_eq!(may(&[key], 1, true, words), (Use::OpenPgp, Use::OpenPgp));
    }

    #[test]
    fn commits_are_signed_by_keys_for_signing_alone() {
        for (validity, letters, words, for_git, signs) in [
            ("u", "s", "commit", true, false),
            ("u", "sc", "tag,sign", true, true),
            ("u", "s", "sign,decrypt,certify", false, true),
            ("u", "c", "commit,certify", false, true),
            ("e", "s", "commit", false, false),
            ("u", "e", "commit", false, false),
        ] {
            let key = own(ECC, validity, letters);
            let chosen = [Chosen { key: &key, exactly: false }];
            let lent = rights(std::slice::from_ref(&key), &chosen, uses(words));
            let (is_for_git, rights) = match &*lent {
                [] => (false, Rights::default()),
                [lent, ..] => (lent.for_git, lent.rights),
            };
            let has = (is_for_git, rights.sign != Use::Denied);
            assert_eq!(has, (for_git, signs), "{validity} {letters} {words}");
        }
    }
}
