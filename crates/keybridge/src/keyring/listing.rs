//! The secret keys that GnuPG lists with `--with-colons`.

use std::collections::{HashMap, HashSet};

use keybridge_proto::gate::KeyGrip;
use keybridge_proto::gpg_listing::{Record, unescape};

use super::signers::address_in;

/// One secret key, primary or sub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretKey {
    pub(super) protocol: Protocol,
    /// The fingerprint of the primary key that it belongs to.
    pub(super) primary: String,
    pub(super) fingerprint: String,
    /// One, or two of a composite key.
    pub(super) keygrips: Vec<KeyGrip>,
    /// The first user id of its primary key.
    pub(super) user_id: String,
    /// The addresses in all of them.
    pub(super) addresses: Vec<String>,
    /// When it was made, in seconds since 1970.
    pub(super) created: u64,
    pub(super) capabilities: Capabilities,
    /// `PKDECRYPT` is the raw private operation.
    pub(super) is_rsa: bool,
    /// Not expired, revoked or disabled.
    pub(super) is_valid: bool,
    /// When it expires, in seconds since 1970.
    pub(super) expires: Option<u64>,
    /// gpg-agent uses the key pair for ssh.
    pub(super) is_for_ssh: bool,
    pub(super) owner: Owner,
}

/// Whose a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// The user's own: it is trusted ultimately, or the secret half of its primary key is here, which no
    /// other block has; of a certificate, its chain ends at a root that the user trusts.
    User,
    /// The secret half of its primary key is here, but another block has that key pair too. Who is lent a
    /// signing key can make such a block.
    Disputed,
    /// The secret half of its primary key is here, but whether a certificate has that key pair isn't known.
    Unchecked,
    /// Nothing shows that it is the user's.
    Unknown,
}

impl SecretKey {
    pub(super) fn is_own(&self) -> bool {
        self.owner == Owner::User
    }
}

/// What GnuPG lists.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) keys: Vec<SecretKey>,
    /// When keys expire, in seconds since 1970; those whose secret half isn't here count too, since
    /// their subkeys end with them.
    pub(super) expiries: Vec<u64>,
    /// Certificates are missing, since they can't be listed.
    pub(super) lacks_certificates: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    OpenPgp,
    X509,
}

/// What a key is for, as its owner said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Capabilities(u8);

impl Capabilities {
    pub(super) const SIGN: Self = Self(1);
    pub(super) const DECRYPT: Self = Self(2);
    pub(super) const CERTIFY: Self = Self(4);
    pub(super) const AUTHENTICATE: Self = Self(8);

    pub(super) const fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }

    /// Whether a signature by the key has a meaning of any kind.
    pub(super) const fn makes_signatures(self) -> bool {
        self.has(Self::SIGN) || self.has(Self::CERTIFY) || self.has(Self::AUTHENTICATE)
    }

    pub(super) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Lower-case letters are the key's own; upper-case ones are those of all its subkeys.
    fn parse(letters: &str) -> Self {
        letters.chars().fold(Self::default(), |all, letter| match letter {
            's' => all.and(Self::SIGN),
            'e' => all.and(Self::DECRYPT),
            'c' => all.and(Self::CERTIFY),
            'a' => all.and(Self::AUTHENTICATE),
            _ => all,
        })
    }

    /// As gpg shows it: `[SC]`.
    pub(super) fn letters(self) -> String {
        [('S', Self::SIGN), ('E', Self::DECRYPT), ('C', Self::CERTIFY), ('A', Self::AUTHENTICATE)]
            .into_iter()
            .filter_map(|(letter, one)| self.has(one).then_some(letter))
            .collect()
    }
}

/// Reads a listing: a record for each key, followed by its fingerprint and its keygrip, and user ids
/// after the primary key. Keys whose secret half isn't there are left out.
pub(super) fn parse(listing: &[u8], protocol: Protocol) -> Listing {
    let text = String::from_utf8_lossy(listing);
    let (mut keys, mut expiries): (Vec<SecretKey>, Vec<u64>) = (Vec::new(), Vec::new());
    let (mut primary_is_valid, mut owner) = (true, Owner::Unknown);
    // The agent has the key that was listed last, or knows its card.
    let mut is_there = false;
    for line in text.lines() {
        let record = Record::of(line);
        let field = |number| record.field(number);
        match field(1) {
            kind @ ("sec" | "ssb" | "crs") => {
                let is_valid =
                    !matches!(field(2), "i" | "d" | "r" | "e") && !field(12).contains('D');
                is_there = field(15) != "#";
                let (primary, user_id, addresses) = match keys.last() {
                    Some(SecretKey { primary, user_id, addresses, .. }) if kind == "ssb" => {
                        (primary.clone(), user_id.clone(), addresses.clone())
                    }
                    Some(_) | None => Default::default(),
                };
                if kind != "ssb" {
                    primary_is_valid = is_valid;
                    let is_trusted = match protocol {
                        Protocol::OpenPgp => field(9) == "u",
                        Protocol::X509 => matches!(field(2), "f" | "u"),
                    };
                    owner = if is_trusted { Owner::User } else { Owner::Unknown };
                }
                expiries.extend(parse_time(field(7)));
                keys.push(SecretKey {
                    protocol,
                    primary,
                    fingerprint: String::new(),
                    keygrips: Vec::new(),
                    user_id,
                    addresses,
                    created: parse_time(field(6)).unwrap_or_default(),
                    capabilities: Capabilities::parse(field(12)),
                    is_rsa: matches!(field(4), "1" | "2" | "3"),
                    is_valid: is_valid && primary_is_valid,
                    expires: parse_time(field(7)),
                    is_for_ssh: false,
                    owner,
                });
            }
            "fpr" => {
                if let Some(key) = keys.last_mut().filter(|key| key.fingerprint.is_empty()) {
                    key.fingerprint = field(10).to_owned();
                    if key.primary.is_empty() {
                        key.primary = key.fingerprint.clone();
                    }
                }
            }
            "grp" => {
                let key = keys.last_mut().filter(|key| is_there && key.keygrips.is_empty());
                if let Some(key) = key {
                    let parsed = field(10).split(',').map(|word| KeyGrip::parse(word.as_bytes()));
                    // All of them, or the key can't be told from another one.
                    key.keygrips = parsed.collect::<Option<_>>().unwrap_or_default();
                }
            }
            "uid" => {
                let user_id = unescape(field(10));
                if let Some(key) = keys.last_mut() {
                    if !matches!(field(2), "r" | "e") {
                        key.addresses.extend(address_in(&user_id).map(str::to_owned));
                    }
                    if key.user_id.is_empty() {
                        key.user_id = user_id;
                    }
                }
            }
            _ => {}
        }
    }
    keys.retain(|key| !key.keygrips.is_empty() && !key.fingerprint.is_empty());
    Listing { keys, expiries, lacks_certificates: false }
}

impl Listing {
    /// Finds the owners of blocks that aren't trusted ultimately, by the secret halves that are here. To be
    /// called when all keys of both protocols are listed.
    pub(super) fn find_owners(&mut self) {
        // A certificate is a block of its own.
        let mut blocks: HashMap<KeyGrip, HashSet<&str>> = HashMap::new();
        for key in &self.keys {
            for keygrip in &key.keygrips {
                blocks.entry(*keygrip).or_default().insert(&key.primary);
            }
        }
        let is_alone = |keygrip: &KeyGrip| blocks.get(keygrip).is_some_and(|all| all.len() == 1);
        let is_primary =
            |key: &&SecretKey| key.protocol == Protocol::OpenPgp && key.fingerprint == key.primary;
        let owners: HashMap<String, Owner> = self
            .keys
            .iter()
            .filter(is_primary)
            .map(|key| {
                // Who may log in with a key can have it sign a block, too.
                let owner = match !key.is_for_ssh && key.keygrips.iter().all(is_alone) {
                    true if self.lacks_certificates => Owner::Unchecked,
                    true => Owner::User,
                    false => Owner::Disputed,
                };
                (key.primary.clone(), owner)
            })
            .collect();
        let is_unknown =
            |key: &&mut SecretKey| key.protocol == Protocol::OpenPgp && key.owner == Owner::Unknown;
        for key in self.keys.iter_mut().filter(is_unknown) {
            key.owner = owners.get(&key.primary).copied().unwrap_or(Owner::Unknown);
        }
    }

    /// Marks the keys that gpg-agent uses for ssh.
    pub(super) fn mark_for_ssh(&mut self, is_for_ssh: impl Fn(KeyGrip) -> bool) {
        for key in &mut self.keys {
            key.is_for_ssh = key.keygrips.iter().any(|keygrip| is_for_ssh(*keygrip));
        }
    }
}

/// A time as gpg prints it, in seconds since 1970, or as gpgsm does, `20630405T170000`.
fn parse_time(text: &str) -> Option<u64> {
    let Some((date, time)) = text.split_once('T') else { return text.parse().ok() };
    let part = |text: &str, from, to| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (part(date, 0, 4)?, part(date, 4, 6)?, part(date, 6, 8)?);
    let (hour, minute, second) = (part(time, 0, 2)?, part(time, 2, 4)?, part(time, 4, 6)?);
    // Days since 1970, counted in years that begin in March.
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day;
    let days = days.checked_sub(719_469)?;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_with_what_they_are_for() {
        let listing = b"tru::1:1:0:3:1:5\n\
            sec:u:255:22:81411CFB911715FE:1794792925:::u:::cESCA:::#::ed25519:::0:\n\
            fpr:::::::::B0190C2E104496E6B0458B6F81411CFB911715FE:\n\
            grp:::::::::265457820B6F13477BFF7485B6BF302CC7EAA490:\n\
            uid:u::::1794792925::5430::A \\x3a <a@x>::::::::::0:\n\
            ssb:u:255:22:7856B55C7DF50AE0:1794792925::::::s:::D2760001240103040006000000000000::ed25519::\n\
            fpr:::::::::BD1A985E90C8F498DB3DB0697856B55C7DF50AE0:\n\
            grp:::::::::F1015D5EB1530EE39105132CB59369E4160F2001:\n\
            ssb:e:1024:8:BF945C32A8D08C13:1794792925:1794792926:::::e:::+::ky768_bp256::\n\
            fpr:::::::::6D1B49304573C25126F96E92BF945C32A8D08C13:\n\
            grp:::::::::5AEA262E14C5A37AB104084F0AC6D82C59605416,FE333F8F52366C32E03C14D36CFEF6D6C66014AC:\n\
            sec:u:2048:1:FE79E93D131637AD:1794792925:1794879325::u:::escESCD:::+:::23::0:\n\
            fpr:::::::::C9F0732089E6512D99E4F477FE79E93D131637AD:\n\
            grp:::::::::4AF56682B641D1F7B4E661ADD5EF64F92D9E412F:\n\
            uid:u::::1794792925::B9::B <b@x>::::::::::0:\n\
            ssb:u:255:22:D7FF3DA59C662FD6:1794792925::::::a:::+::ed25519::\n\
            fpr:::::::::CF74E11DD39FD8CF274B98D1D7FF3DA59C662FD6:\n\
            grp:::::::::FE333F8F52366C32E03C14D36CFEF6D6C66014AC:\n";
        let Listing { keys, expiries, .. } = parse(listing, Protocol::OpenPgp);
        assert_eq!(expiries, [1_794_792_926, 1_794_879_325]);
        let short: Vec<_> = keys
            .iter()
            .map(|key| {
                let SecretKey { capabilities, keygrips, user_id, .. } = key;
                let flags = (key.is_rsa, key.is_valid, key.is_own());
                (capabilities.letters(), keygrips.len(), user_id.as_str(), flags)
            })
            .collect();
        // The primary key isn't there, and a disabled one makes its subkeys invalid too.
        let expected = [
            ("S".to_owned(), 1, "A : <a@x>", (false, true, true)),
            ("E".to_owned(), 2, "A : <a@x>", (false, false, true)),
            ("SEC".to_owned(), 1, "B <b@x>", (true, false, true)),
            ("A".to_owned(), 1, "B <b@x>", (false, false, true)),
        ];
        assert_eq!(short, expected);
        assert_eq!(keys[0].primary, "B0190C2E104496E6B0458B6F81411CFB911715FE");
        assert_eq!(keys[0].fingerprint, "BD1A985E90C8F498DB3DB0697856B55C7DF50AE0");
    }

    #[test]
    fn certificates_are_read_alike() {
        let listing = b"/h/pubring.kbx\n------------------\n\
            crs:n:2048:1:D39F0917A6BCE54B:20261116T015021:20630405T170000:19::CN=X::esES::::::23:\n\
            fpr:::::::::896C267B031713C547585BF8D39F0917A6BCE54B:::896C:\n\
            fp2:::::::::946F7A7806E07548D15622A75BEB0673FC8C844EEE076EB213EB9F595E11FB78::::\n\
            grp:::::::::63D914BA426E667EB07D5C12D77A09516F257F52:\n\
            uid:n::::::::CN=Test X::\n";
        let Listing { keys, expiries, .. } = parse(listing, Protocol::X509);
        assert_eq!(expiries, [2_943_018_000]);
        assert_eq!((keys.len(), keys[0].is_own()), (1, false));
        assert_eq!((keys[0].capabilities.letters().as_str(), keys[0].is_valid), ("SE", true));
        assert_eq!(keys[0].user_id, "CN=Test X");
    }

    #[test]
    fn a_block_is_the_users_own_by_its_primary_key() {
        let own = |primary: &str| {
            let listing = format!(
                "sec:-:255:22:81411CFB911715FE:0:::{primary}\n\
                 fpr:::::::::B0190C2E104496E6B0458B6F81411CFB911715FE:\n\
                 grp:::::::::265457820B6F13477BFF7485B6BF302CC7EAA490:\n\
                 ssb:-:255:22:7856B55C7DF50AE0:0::::::s:::+::ed25519::\n\
                 fpr:::::::::BD1A985E90C8F498DB3DB0697856B55C7DF50AE0:\n\
                 grp:::::::::F1015D5EB1530EE39105132CB59369E4160F2001:\n"
            );
            let mut listing = parse(listing.as_bytes(), Protocol::OpenPgp);
            listing.find_owners();
            listing.keys.pop().unwrap().is_own()
        };
        assert!(own("-:::scSC:::+:"));
        assert!(own("u:::scSC:::#:"));
        assert!(!own("-:::scSC:::#:"));
        assert!(!own("f:::scSC:::#:"));
    }

    #[test]
    fn a_block_is_never_the_users_own_by_a_key_pair_that_another_block_has() {
        let block = |name: &str, trust: &str, primary: &str, subkey: &str| {
            format!(
                "sec:-:255:22:0:0:::{trust}:::scSC:::+:\nfpr:::::::::{name}1:\ngrp:::::::::{primary}:\n\
                 ssb:-:255:22:0:0::::::s:::+::ed25519::\nfpr:::::::::{name}2:\ngrp:::::::::{subkey}:\n"
            )
        };
        let [one, two, three, four] = ["1", "2", "3", "4"].map(|digit| digit.repeat(40));
        let owners = |blocks: &[String]| -> Vec<Owner> {
            let mut listing = parse(blocks.concat().as_bytes(), Protocol::OpenPgp);
            let certificate =
                format!("crs:n:255:22:0:0:::::s:::+:\nfpr:::::::::C:\ngrp:::::::::{four}:\n");
            listing.keys.extend(parse(certificate.as_bytes(), Protocol::X509).keys);
            listing.find_owners();
            listing.keys.pop();
            listing.keys.iter().map(|key| key.owner).collect()
        };
        let (own, none) = (Owner::User, Owner::Disputed);
        let real = |trust| block("A", trust, &one, &two);
        assert_eq!(owners(&[real("-")]), [own; 2]);
        // Its subkey is the primary key of another block, which was made with it.
        let forged = block("B", "-", &two, &three);
        assert_eq!(owners(&[real("-"), forged.clone()]), [own, own, none, none]);
        // The same primary key with another creation time; ultimate trust decides.
        let alias = block("B", "-", &one, &three);
        assert_eq!(owners(&[real("-"), alias.clone()]), [none; 4]);
        assert_eq!(owners(&[real("u"), alias]), [own, own, none, none]);
        assert_eq!(owners(&[forged, real("u")]), [none, none, own, own]);
        // A certificate has the key pair of this one.
        assert_eq!(owners(&[block("A", "-", &four, &one)]), [none; 2]);
        // The same key pair twice in one block disputes nothing.
        assert_eq!(owners(&[block("A", "-", &one, &one)]), [own; 2]);
    }

    #[test]
    fn a_block_is_never_the_users_own_while_certificates_cannot_be_listed() {
        for (trust, owner) in [("-", Owner::Unchecked), ("u", Owner::User)] {
            let block = format!(
                "sec:-:255:22:0:0:::{trust}:::scSC:::+:\nfpr:::::::::A:\ngrp:::::::::{}:\n",
                "1".repeat(40)
            );
            let mut listing = parse(block.as_bytes(), Protocol::OpenPgp);
            listing.lacks_certificates = true;
            listing.find_owners();
            assert_eq!(listing.keys[0].owner, owner);
        }
    }

    #[test]
    fn times_are_read_in_both_forms() {
        for (text, seconds) in [
            ("1794792925", Some(1_794_792_925)),
            ("19700101T000000", Some(0)),
            ("20000229T235959", Some(951_868_799)),
            ("20261116T015021", Some(1_794_793_821)),
            ("", None),
            ("T", None),
            ("2026T1", None),
        ] {
            assert_eq!(parse_time(text), seconds, "{text}");
        }
    }

    #[test]
    fn what_can_not_be_read_names_no_key() {
        for listing in [
            &b""[..],
            b"\xff\nsec\n",
            b"fpr:::::::::AB:\ngrp:::::::::00:\n",
            b"sec:u:::::::::::s:::+:\nfpr:::::::::AB:\ngrp:::::::::0011:\n",
            b"sec:u:::::::::::s:::+:\nfpr:::::::::AB:\n\
              grp:::::::::63D914BA426E667EB07D5C12D77A09516F257F52,x:\n",
        ] {
            assert_eq!(parse(listing, Protocol::OpenPgp).keys, []);
        }
    }
}
