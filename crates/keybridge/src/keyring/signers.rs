//! Finds the key that git in a target has named, among those that are lent for signing.

use std::path::{Path, PathBuf};

use keybridge_proto::gate::{KeyGrip, Use};

use super::key_id::KeyId;
use super::listing::{Capabilities, Protocol};
use super::rights::{Chosen, Lent};

/// An OpenPGP key that may sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signer {
    /// Its own fingerprint.
    pub(crate) fingerprint: String,
    /// That of its primary key.
    primary: String,
    keygrip: KeyGrip,
    /// In seconds since 1970.
    created: u64,
    /// The addresses in the user ids of its primary key.
    pub(super) addresses: Vec<String>,
}

/// Why no key fits a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoSigner {
    /// None of those that are lent.
    NotLent,
    /// An address that is in the user ids of several.
    Ambiguous,
    /// The keys can't be listed now.
    Unlisted,
}

/// How git names a key: `user.signingKey`, or else who commits.
#[derive(Debug, PartialEq, Eq)]
enum Name {
    Id(KeyId),
    Address(String),
    Other,
}

impl Signer {
    /// Those of the chosen keys that are made for signing.
    pub(super) fn among(chosen: &[Chosen<'_>]) -> Vec<Self> {
        let mut signers = Vec::new();
        for Chosen { key, .. } in chosen {
            let signs = key.protocol == Protocol::OpenPgp
                && key.is_valid
                && key.capabilities.has(Capabilities::SIGN);
            let Some(&keygrip) = key.keygrips.first().filter(|_| signs) else { continue };
            let signer = Self {
                fingerprint: key.fingerprint.clone(),
                primary: key.primary.clone(),
                keygrip,
                created: key.created,
                addresses: key.addresses.clone(),
            };
            if !signers.contains(&signer) {
                signers.push(signer);
            }
        }
        signers
    }

    /// Whether it may sign commits or tags by what is lent now, on the git lane or with gpg in the target:
    /// not another key that claims the same key pair.
    pub(super) fn is_lent(&self, lent: &[Lent], by_gpg: bool) -> bool {
        let is_it =
            |lent: &Lent| lent.keygrip == self.keygrip && lent.fingerprint == self.fingerprint;
        let signs = |lent: &Lent| lent.for_git || (by_gpg && lent.rights.sign >= Use::OpenPgp);
        lent.iter().any(|lent| is_it(lent) && signs(lent))
    }

    /// The key that a name means: the very one, or as gpg does it the newest of its block.
    pub(super) fn find<'a>(signers: &'a [Self], name: &[u8]) -> Result<&'a Self, NoSigner> {
        let name = Name::read(name);
        let named: Vec<&Self> = signers.iter().filter(|signer| name.means(signer)).collect();
        let first = named.first().ok_or(NoSigner::NotLent)?;
        if named.iter().any(|signer| signer.primary != first.primary) {
            return Err(NoSigner::Ambiguous);
        }
        match &name {
            Name::Id(KeyId { is_exact: true, .. }) => Ok(first),
            Name::Id(_) | Name::Address(_) => {
                let block = signers.iter().filter(|signer| signer.primary == first.primary);
                block.max_by_key(|signer| signer.created).ok_or(NoSigner::NotLent)
            }
            Name::Other => Err(NoSigner::NotLent),
        }
    }

    /// The address that a name consists of, as the key's own user id spells it, if it is a plain one.
    pub(crate) fn address(&self, name: &[u8]) -> Option<&str> {
        let Name::Address(address) = Name::read(name) else { return None };
        let own = self.addresses.iter().map(String::as_str);
        own.filter(|own| is_plain(own)).find(|own| own.eq_ignore_ascii_case(&address))
    }

    /// What gpg-agent knows it by.
    pub(crate) const fn keygrip(&self) -> KeyGrip {
        self.keygrip
    }

    /// Where gpg-agent keeps its secret half.
    pub(crate) fn key_file(&self, home: &Path) -> PathBuf {
        home.join("private-keys-v1.d").join(format!("{}.key", self.keygrip))
    }
}

impl Name {
    fn read(name: &[u8]) -> Self {
        let Ok(name) = std::str::from_utf8(name) else {
            // Who commits, in another encoding: the address is what counts.
            return Self::of_user_id(&String::from_utf8_lossy(name));
        };
        let name = name.trim();
        // A short one does, since it is looked up among the few keys that are lent.
        KeyId::parse(name).map_or_else(|| Self::of_user_id(name), Self::Id)
    }

    fn of_user_id(user_id: &str) -> Self {
        address_in(user_id).map_or(Self::Other, |address| Self::Address(address.to_owned()))
    }

    fn means(&self, signer: &Signer) -> bool {
        match self {
            Self::Id(id) => {
                id.is_of(&signer.fingerprint) || !id.is_exact && id.is_of(&signer.primary)
            }
            Self::Address(address) => {
                signer.addresses.iter().any(|own| own.eq_ignore_ascii_case(address))
            }
            Self::Other => false,
        }
    }
}

/// The address in `NAME <ADDRESS>`, `<ADDRESS>` or `ADDRESS`, to be compared with others.
pub(super) fn address_in(user_id: &str) -> Option<&str> {
    let user_id = user_id.trim();
    let address = match user_id.strip_suffix('>').and_then(|rest| rest.rsplit_once('<')) {
        Some((_, address)) => address,
        None => user_id,
    };
    // Bytes that were no UTF-8 could have been any.
    let is_other = |letter: char| {
        letter.is_whitespace() || letter.is_control() || "<>\u{fffd}".contains(letter)
    };
    let (local, domain) = address.split_once('@')?;
    let is_address = !local.is_empty() && !domain.is_empty() && !domain.contains('@');
    (is_address && !address.contains(is_other)).then_some(address)
}

/// The same, if it is a plain one, which can be a word of a command line.
pub(crate) fn address(user_id: &str) -> Option<String> {
    address_in(user_id).filter(|address| is_plain(address)).map(str::to_owned)
}

fn is_plain(address: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@.+_-".contains(&byte);
    !address.starts_with('-') && address.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key by the first digit of its fingerprint and that of its primary key.
    fn signer(digit: char, primary: char, created: u64, addresses: &[&str]) -> Signer {
        let id = |digit: char| digit.to_string().repeat(40);
        Signer {
            fingerprint: id(digit),
            primary: id(primary),
            keygrip: KeyGrip::parse(id(digit).as_bytes()).unwrap(),
            created,
            addresses: addresses.iter().map(|&address| address.to_owned()).collect(),
        }
    }

    fn signers() -> Vec<Signer> {
        let (me, other) = (&["me@x.org", "work@x.org"], &["other@x.org", "work@x.org"]);
        vec![
            signer('A', 'A', 1, me),
            signer('B', 'A', 3, me),
            signer('C', 'A', 2, me),
            signer('D', 'E', 9, other),
        ]
    }

    #[test]
    fn a_key_is_named_as_gpg_has_it() {
        let signers = signers();
        let find = |name: &str| {
            Signer::find(&signers, name.as_bytes()).map(|signer| signer.fingerprint.clone())
        };
        let found = |digit: char| Ok(digit.to_string().repeat(40));
        let id = |digit: char, count: usize| digit.to_string().repeat(count);
        for (name, expected) in [
            // The newest of the block, whichever of its keys is named.
            (id('A', 40), found('B')),
            (id('C', 40), found('B')),
            (format!("0x{}", id('a', 16)), found('B')),
            (format!("{} {}", id('A', 20), id('A', 20)), found('B')),
            ("me@x.org".into(), found('B')),
            ("Some One <ME@x.org>".into(), found('B')),
            ("<other@x.org>".into(), found('D')),
            // A primary key that isn't lent.
            (id('E', 40), found('D')),
            // The very one.
            (format!("{}!", id('A', 40)), found('A')),
            (format!("0x{}!", id('c', 16)), found('C')),
            (format!("{}!", id('E', 40)), Err(NoSigner::NotLent)),
            (id('F', 40), Err(NoSigner::NotLent)),
            (id('A', 8), found('B')),
            (id('A', 7), Err(NoSigner::NotLent)),
            (id('A', 65), Err(NoSigner::NotLent)),
            ("x@x.org".into(), Err(NoSigner::NotLent)),
            ("Some One".into(), Err(NoSigner::NotLent)),
            (String::new(), Err(NoSigner::NotLent)),
            ("--help".into(), Err(NoSigner::NotLent)),
            ("--help@x.org".into(), Err(NoSigner::NotLent)),
            ("work@x.org".into(), Err(NoSigner::Ambiguous)),
        ] {
            assert_eq!(find(&name), expected, "{name}");
        }
        let latin1 = Signer::find(&signers, b"J\xfcrgen <me@x.org>").unwrap();
        assert_eq!(latin1.fingerprint, "B".repeat(40));
        assert_eq!(latin1.address(b"J\xfcrgen <ME@x.org>"), Some("me@x.org"));
        assert_eq!(latin1.address("B".repeat(40).as_bytes()), None);
    }

    #[test]
    fn a_short_id_of_two_lent_keys_signs_nothing() {
        let mut signers = signers();
        signers[3].fingerprint.replace_range(32.., "AAAAAAAA");
        assert_eq!(Signer::find(&signers, b"AAAAAAAA"), Err(NoSigner::Ambiguous));
        assert!(Signer::find(&signers, "A".repeat(40).as_bytes()).is_ok());
    }

    #[test]
    fn an_address_of_any_form_names_its_key_and_only_a_plain_one_is_passed_on() {
        for address in
            ["o'neill@x.org", "a=b/c@x.org", "j\u{fc}rgen@m\u{fc}ller.example", "-a@x.org"]
        {
            let signers = [signer('A', 'A', 1, &[address])];
            let name = format!("Some One <{address}>");
            let found = Signer::find(&signers, name.as_bytes());
            assert_eq!(found, Ok(&signers[0]), "{address}");
            assert_eq!(found.unwrap().address(name.as_bytes()), None, "{address}");
        }
        for name in ["a b@c", "a@b@c", "@b", "a@", "A", "<a@b> (x)", "a\u{fffd}@b", "a\n@b"] {
            assert_eq!(address_in(name), None, "{name}");
        }
    }

    #[test]
    fn an_address_is_a_plain_one() {
        for (user_id, expected) in [
            ("A B <a@b>", Some("a@b")),
            ("a.b+c_d-e@b.example", Some("a.b+c_d-e@b.example")),
            ("A <b> <a@b>", Some("a@b")),
            ("a@b@c", None),
            ("A B", None),
            ("@b", None),
            ("a@", None),
            ("-a@b", None),
            ("A <a b@c>", None),
            ("A <a@b> (x)", None),
        ] {
            assert_eq!(address(user_id).as_deref(), expected, "{user_id}");
        }
    }
}
