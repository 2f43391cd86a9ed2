//! Checks that a private key which a client wants to add makes the agent load nothing else.
//!
//! A constraint can name a library that the agent loads. Constraints follow the private key, so the
//! key is skipped field by field, for the types whose fields are known. OpenSSH's agent reads
//! constraints in both kinds of request.

use super::wire::{Fields, Lack};

/// What is to be added. Holds nothing of the key itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddedKey {
    /// A private key, perhaps with a certificate, with no constraints but limits on its use.
    Plain,
    /// Something else: a key of another type, or with another constraint.
    Other,
}

/// The types of keys, and how many fields are between the type and the comment.
const KEYS: [(&[u8], usize); 12] = [
    (b"ssh-rsa", 6),
    (b"ssh-dss", 5),
    (b"ssh-ed25519", 2),
    (b"ecdsa-sha2-nistp256", 3),
    (b"ecdsa-sha2-nistp384", 3),
    (b"ecdsa-sha2-nistp521", 3),
    (b"ssh-rsa-cert-v01@openssh.com", 5),
    (b"ssh-dss-cert-v01@openssh.com", 2),
    (b"ssh-ed25519-cert-v01@openssh.com", 3),
    (b"ecdsa-sha2-nistp256-cert-v01@openssh.com", 2),
    (b"ecdsa-sha2-nistp384-cert-v01@openssh.com", 2),
    (b"ecdsa-sha2-nistp521-cert-v01@openssh.com", 2),
];

/// The longest name of a type.
const MAX_TYPE: usize = 64;

const LIFETIME: u8 = 1;
const CONFIRM: u8 = 2;
const EXTENSION: u8 = 255;

/// The extension that limits a key to some destinations. Others could make the agent load something.
const RESTRICT_DESTINATION: &[u8] = b"restrict-destination-v00@openssh.com";

impl AddedKey {
    /// Parses the body of a request to its end.
    pub(super) fn read(mut fields: Fields<'_>) -> Result<Self, Lack> {
        let Some(name) = fields.short_string(MAX_TYPE)? else { return Ok(Self::Other) };
        let Some((_, count)) = KEYS.iter().find(|(key, _)| *key == name) else {
            return Ok(Self::Other);
        };
        // The comment is one more.
        for _ in 0..=*count {
            fields.string()?;
        }
        while fields.left() > 0 {
            match fields.bytes(1)? {
                [LIFETIME] => drop(fields.u32()?),
                [CONFIRM] => {}
                [EXTENSION] if fields.string()? == RESTRICT_DESTINATION => drop(fields.string()?),
                _ => return Ok(Self::Other),
            }
        }
        Ok(Self::Plain)
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::put_string;
    use super::*;

    fn addition(name: &[u8], count: usize, constraints: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        put_string(&mut body, name);
        for number in 0..=count {
            put_string(&mut body, &vec![255; number * 3]);
        }
        body.extend_from_slice(constraints);
        body
    }

    fn read(body: &[u8]) -> Result<AddedKey, Lack> {
        AddedKey::read(Fields::new(body, body.len()))
    }

    fn extension(name: &[u8], value: &[u8]) -> Vec<u8> {
        let mut constraint = vec![EXTENSION];
        put_string(&mut constraint, name);
        put_string(&mut constraint, value);
        constraint
    }

    #[test]
    fn plain_keys_may_have_limits_on_their_use() {
        let restricted = extension(RESTRICT_DESTINATION, b"hosts");
        let all = [&[1, 0, 0, 0, 60, 2][..], &restricted, &[2]].concat();
        for (name, count) in KEYS {
            for limits in [&b""[..], &[1, 0, 0, 0, 60], &[2], &restricted, &all] {
                let body = addition(name, count, limits);
                assert_eq!(read(&body), Ok(AddedKey::Plain), "{limits:?}");
                for here in 0..body.len() {
                    let part = AddedKey::read(Fields::new(&body[..here], body.len()));
                    assert_eq!(part, Err(Lack::More), "{here}");
                }
            }
        }
    }

    #[test]
    fn what_could_make_the_agent_load_something_is_another_thing() {
        let provider = extension(b"sk-provider@openssh.com", b"/lib/evil.so");
        for constraint in [
            &provider[..],
            &[&[2][..], &provider].concat(),
            &extension(b"sk-provider@openssh.com", b"internal"),
            &extension(b"associated-certs-v00@openssh.com", b""),
            &extension(b"", b""),
            &[3, 0, 0, 0, 1],
            &[0],
            &[254],
        ] {
            for (name, count) in KEYS {
                let body = addition(name, count, constraint);
                assert_eq!(read(&body), Ok(AddedKey::Other), "{constraint:?}");
            }
        }
        for name in [
            &b"sk-ssh-ed25519@openssh.com"[..],
            b"sk-ecdsa-sha2-nistp256@openssh.com",
            b"sk-ssh-ed25519-cert-v01@openssh.com",
            b"ssh-xmss@openssh.com",
            b"ED25519",
            b"SSH-RSA",
            b"ssh-rsa\0",
            b"",
            &[b'x'; 65],
        ] {
            assert_eq!(read(&addition(name, 2, b"")), Ok(AddedKey::Other));
        }
    }

    #[test]
    fn a_key_whose_fields_do_not_fit_is_malformed() {
        let body = addition(b"ssh-ed25519", 2, b"");
        assert_eq!(read(&body[..body.len() - 1]), Err(Lack::Malformed));
        assert_eq!(read(&addition(b"ssh-ed25519", 2, &[1, 0, 0])), Err(Lack::Malformed));
        assert_eq!(read(&addition(b"ssh-rsa", 2, b"")), Err(Lack::Malformed));
        assert_eq!(read(&addition(b"ssh-ed25519", 2, &[EXTENSION])), Err(Lack::Malformed));
        assert_eq!(read(b""), Err(Lack::Malformed));
    }
}
