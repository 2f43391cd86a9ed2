//! What a signature of an ssh-agent is for, as far as the data shows it.

use super::wire::{Fields, Lack};

/// The beginning of data that `ssh-keygen -Y sign` signs.
const SIGNATURE_MAGIC: &[u8] = b"SSHSIG";

/// The number of a user's request to log in (RFC 4252).
const USERAUTH_REQUEST: u8 = 50;

/// The longest session id that OpenSSH's agent accepts.
pub(super) const MAX_SESSION_ID: usize = 128;

/// The longest user name; systems allow less.
const MAX_USER: usize = 1024;

/// Data that is longer isn't read as a login: all of it would have to be stored. Such a login has a certificate
/// of that size.
const LONGEST_LOGIN: usize = 32 * 1024;

/// What a signature is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// A login to an SSH server with the key that signs.
    Login(Login<'a>),
    /// A file, a commit or another message, in the format `SSHSIG`.
    Message {
        /// What kind of message it is; `git` for commits and tags.
        namespace: &'a [u8],
    },
    /// Neither.
    Other,
}

/// A login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Login<'a> {
    /// The session that it is for.
    pub session_id: &'a [u8],
    /// The user on the server.
    pub user: &'a [u8],
    /// The server's key, if the client has put it into what is signed.
    pub host_key: Option<&'a [u8]>,
}

impl<'a> Purpose<'a> {
    /// Reads the data that a key is to sign.
    pub(super) fn read(mut data: Fields<'a>, key: &[u8]) -> Result<Self, Lack> {
        // Shorter data can't begin with the magic; of longer data that much has to be here.
        let mut beginning = data;
        let is_message = data.left() >= SIGNATURE_MAGIC.len()
            && beginning.bytes(SIGNATURE_MAGIC.len())? == SIGNATURE_MAGIC;
        if is_message {
            return Ok(Self::Message { namespace: beginning.string()? });
        }
        if data.left() > LONGEST_LOGIN {
            return Ok(Self::Other);
        }
        match Login::read(&mut data, key) {
            Ok(login) => Ok(Self::Login(login)),
            Err(Lack::More) => Err(Lack::More),
            Err(Lack::Malformed) => Ok(Self::Other),
        }
    }
}

impl<'a> Login<'a> {
    /// Reads a request as RFC 4252 has it, and OpenSSH's `hostbound` form of it.
    fn read(data: &mut Fields<'a>, key: &[u8]) -> Result<Self, Lack> {
        let session_id = short(data, MAX_SESSION_ID)?;
        expect(!session_id.is_empty() && data.u8()? == USERAUTH_REQUEST)?;
        let user = short(data, MAX_USER)?;
        expect(short(data, 64)? == b"ssh-connection")?;
        let is_host_bound = match short(data, 64)? {
            b"publickey" => false,
            b"publickey-hostbound-v00@openssh.com" => true,
            _ => return Err(Lack::Malformed),
        };
        // That a signature follows.
        expect(data.u8()? == 1)?;
        let _algorithm = short(data, 256)?;
        expect(data.string()? == key)?;
        let host_key = if is_host_bound { Some(data.string()?) } else { None };
        data.end()?;
        Ok(Self { session_id, user, host_key })
    }
}

fn short<'a>(data: &mut Fields<'a>, most: usize) -> Result<&'a [u8], Lack> {
    data.short_string(most)?.ok_or(Lack::Malformed)
}

const fn expect(is_so: bool) -> Result<(), Lack> {
    if is_so { Ok(()) } else { Err(Lack::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::super::wire::put_string;
    use super::*;

    const KEY: &[u8] = b"blob";

    fn message(namespace: &[u8]) -> Vec<u8> {
        let mut data = b"SSHSIG".to_vec();
        for field in [namespace, b"", b"sha512", b"hash"] {
            put_string(&mut data, field);
        }
        data
    }

    /// A login of `git`, with one of its fields replaced.
    fn login(field: usize, value: &[u8]) -> Vec<u8> {
        let mut fields: [&[u8]; 6] =
            [b"session", b"git", b"ssh-connection", b"publickey", b"ssh-ed25519", KEY];
        if let Some(place) = fields.get_mut(field) {
            *place = value;
        }
        let [session, user, service, method, algorithm, key] = fields;
        let mut data = Vec::new();
        put_string(&mut data, session);
        data.push(50);
        for field in [user, service, method] {
            put_string(&mut data, field);
        }
        data.push(1);
        put_string(&mut data, algorithm);
        put_string(&mut data, key);
        data
    }

    fn read(data: &[u8]) -> Purpose<'_> {
        Purpose::read(Fields::new(data, data.len()), KEY).unwrap()
    }

    #[test]
    fn a_login_tells_its_user_and_its_session() {
        let plain = Login { session_id: b"session", user: b"git", host_key: None };
        assert_eq!(read(&login(9, b"")), Purpose::Login(plain));
        let mut bound = login(3, b"publickey-hostbound-v00@openssh.com");
        put_string(&mut bound, b"host");
        let host_key = Some(&b"host"[..]);
        assert_eq!(read(&bound), Purpose::Login(Login { host_key, ..plain }));
    }

    #[test]
    fn what_only_looks_like_a_login_is_none() {
        let mut longer = login(9, b"");
        longer.push(0);
        let mut no_signature = login(9, b"");
        no_signature[4 + 7 + 1 + 7 + 4 + 14 + 4 + 9] = 0;
        let mut other_number = login(9, b"");
        other_number[4 + 7] = 51;
        for data in [
            longer,
            no_signature,
            other_number,
            login(0, b""),
            login(0, &[7; 129]),
            login(1, &[b'u'; 1025]),
            login(2, b"ssh-userauth"),
            login(3, b"password"),
            login(3, b"publickey-hostbound-v00@openssh.com"),
            login(4, &[b'a'; 257]),
            login(5, b"another"),
            vec![0; 40 * 1024],
            b"SSHSI".to_vec(),
            b"sshsig\0\0\0\0".to_vec(),
            b"\0\0\0\x20a session".to_vec(),
            Vec::new(),
        ] {
            assert_eq!(read(&data), Purpose::Other, "{data:?}");
        }
    }

    #[test]
    fn a_message_tells_its_namespace() {
        for namespace in [&b"git"[..], b""] {
            assert_eq!(read(&message(namespace)), Purpose::Message { namespace });
        }
    }

    #[test]
    fn data_is_waited_for_as_long_as_it_can_be_a_login() {
        let (login, no_login) = (login(9, b""), login(3, b"password"));
        for here in 0..login.len() {
            let purpose = Purpose::read(Fields::new(&login[..here], login.len()), KEY);
            assert_eq!(purpose, Err(Lack::More), "{here}");
        }
        let known = 4 + 7 + 1 + 7 + 4 + 14 + 4 + 8;
        let purpose = Purpose::read(Fields::new(&no_login[..known], no_login.len()), KEY);
        assert_eq!(purpose, Ok(Purpose::Other));
    }
}
