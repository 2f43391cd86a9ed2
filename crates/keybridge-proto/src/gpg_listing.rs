//! Lines of gpg's listings with colons, on either machine.

/// One line: fields that are counted from 1, as GnuPG's documentation has them.
pub struct Record<'a>(Vec<&'a str>);

impl<'a> Record<'a> {
    /// Splits a line.
    pub fn of(line: &'a str) -> Self {
        Self(line.split(':').collect())
    }

    /// A field; one that is missing is empty.
    pub fn field(&self, number: usize) -> &'a str {
        number.checked_sub(1).and_then(|index| self.0.get(index)).copied().unwrap_or_default()
    }
}

/// A public key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListedKey {
    /// The fingerprint of the primary key.
    pub fingerprint: String,
    /// As `gpg --export-ownertrust` writes it, if it is set: 2 undefined to 6 ultimate.
    pub ownertrust: Option<u8>,
    /// When the primary key expires, in seconds since 1970.
    pub expires: Option<u64>,
    /// Its subkeys.
    pub subkeys: Vec<ListedSubkey>,
    /// Its user ids.
    pub user_ids: Vec<ListedUserId>,
}

/// A subkey of a public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSubkey {
    /// Its fingerprint.
    pub fingerprint: String,
    /// When it expires, in seconds since 1970.
    pub expires: Option<u64>,
    /// Whether it is revoked.
    pub is_revoked: bool,
}

/// A user id of a public key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedUserId {
    /// GnuPG's hash of it, in hexadecimal digits.
    pub hash: String,
    /// The user id itself.
    pub text: String,
    /// Not revoked, and with a good signature of its key.
    pub is_valid: bool,
}

/// The public keys of a listing. One without a fingerprint is left out.
pub fn public_keys(listing: &[u8]) -> Vec<ListedKey> {
    let mut keys: Vec<ListedKey> = Vec::new();
    for line in listing.split(|&byte| byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let record = Record::of(&line);
        let field = |number| record.field(number);
        let expires = field(7).parse().ok();
        match (field(1), keys.last_mut()) {
            ("pub", _) => {
                let ownertrust = ownertrust_of(field(9));
                keys.push(ListedKey { ownertrust, expires, ..ListedKey::default() });
            }
            ("sub", Some(key)) => {
                let (fingerprint, is_revoked) = (String::new(), field(2) == "r");
                key.subkeys.push(ListedSubkey { fingerprint, expires, is_revoked });
            }
            ("uid", Some(key)) => key.user_ids.push(ListedUserId {
                hash: field(8).to_owned(),
                text: unescape(field(10)),
                is_valid: !matches!(field(2), "r" | "i"),
            }),
            ("fpr", Some(key)) => {
                let subkey = key.subkeys.last_mut().map(|subkey| &mut subkey.fingerprint);
                let fingerprint = subkey.unwrap_or(&mut key.fingerprint);
                if fingerprint.is_empty() {
                    field(10).clone_into(fingerprint);
                }
            }
            _ => {}
        }
    }
    keys.retain(|key| !key.fingerprint.is_empty());
    keys
}

/// The number that `gpg --export-ownertrust` writes for a letter of a listing.
fn ownertrust_of(letter: &str) -> Option<u8> {
    match letter {
        "q" => Some(2),
        "n" => Some(3),
        "m" => Some(4),
        "f" => Some(5),
        "u" => Some(6),
        _ => None,
    }
}

/// Undoes the `\x3a` of a text.
pub fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after
            .strip_prefix(b"x")
            .and_then(|digits| digits.split_at_checked(2))
            .filter(|_| first == b'\\')
            .and_then(|(digits, after)| {
                let digits = std::str::from_utf8(digits).ok()?;
                Some((u8::from_str_radix(digits, 16).ok()?, after))
            });
        let (byte, after) = escaped.unwrap_or((first, after));
        bytes.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_is_read_key_by_key() {
        let keys = public_keys(
            b"tru::1:1:0:3:1:5\nfpr:::::::::0:\n\
              pub:u:255:22:AA:1:99::u:::sc:\nfpr:::::::::A:\n\
              uid:u::::1::H::A \\x3a <a@x>:\nuid:r::::1::I::Old:\n\
              sub:e:255:18:BB:1:7:::::e:\nfpr:::::::::B:\n\
              sub:r:255:18:CC:1::::::e:\nfpr:::::::::C:\n\
              pub:-:1:1:DD:1:::-:\n\xff:::\npub:::\n",
        );
        let subkey = |fingerprint: &str, expires, is_revoked| ListedSubkey {
            fingerprint: fingerprint.into(),
            expires,
            is_revoked,
        };
        let user_id = |hash: &str, text: &str, is_valid| ListedUserId {
            hash: hash.into(),
            text: text.into(),
            is_valid,
        };
        let expected = ListedKey {
            fingerprint: "A".into(),
            ownertrust: Some(6),
            expires: Some(99),
            subkeys: vec![subkey("B", Some(7), false), subkey("C", None, true)],
            user_ids: vec![user_id("H", "A : <a@x>", true), user_id("I", "Old", false)],
        };
        assert_eq!(keys, [expected]);
    }

    #[test]
    fn fields_are_counted_from_1_and_may_be_missing() {
        let record = Record::of("uid:u::A \\x3a B");
        let fields = [0, 1, 2, 3, 4, 5].map(|number| record.field(number));
        assert_eq!(fields, ["", "uid", "u", "", "A \\x3a B", ""]);
        assert_eq!(unescape(record.field(4)), "A : B");
        assert_eq!(unescape("\\x3 \\xzz \\xc3\\xbc\\"), "\\x3 \\xzz ü\\");
    }
}
