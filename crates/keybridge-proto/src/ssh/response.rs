//! Responses of an agent to requests of our own. Responses to clients are forwarded without being
//! parsed, except for a list of keys that has to be reduced.

use super::wire::Fields;
use super::{Frame, Malformed, MessageType};

/// A response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Response<'a> {
    /// The agent refused.
    Failure,
    /// The agent succeeded.
    Success,
    /// The keys that the agent has.
    Identities(Identities<'a>),
    /// A signature.
    Signature(&'a [u8]),
    /// An extension failed.
    ExtensionFailure,
    /// The answer of an extension.
    ExtensionResponse(&'a [u8]),
    /// A type that isn't a response, or that RFC 9987 doesn't define.
    Unknown(MessageType),
}

/// The keys that an agent has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Identities<'a> {
    count: u32,
    /// Pairs of strings; checked that there are `count`.
    pairs: &'a [u8],
}

/// One of the keys that an agent has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity<'a> {
    /// The public key, as on the wire.
    pub key: &'a [u8],
    /// Its comment; any bytes.
    pub comment: &'a [u8],
}

impl<'a> Response<'a> {
    /// Parses a response.
    pub fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let body = frame.body();
        Ok(match frame.kind() {
            MessageType::FAILURE => Self::Failure,
            MessageType::SUCCESS => Self::Success,
            MessageType::IDENTITIES_ANSWER => Self::Identities(Identities::read(body)?),
            MessageType::SIGN_RESPONSE => {
                let mut fields = Fields::new(body, body.len());
                Self::Signature(fields.string().map_err(|_| Malformed)?)
            }
            MessageType::EXTENSION_FAILURE => Self::ExtensionFailure,
            MessageType::EXTENSION_RESPONSE => Self::ExtensionResponse(body),
            other => Self::Unknown(other),
        })
    }
}

impl<'a> Identities<'a> {
    /// Parses the body of such a response.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(body, body.len());
        let count = fields.u32().map_err(|_| Malformed)?;
        let identities = Self { count, pairs: body.get(4..).unwrap_or_default() };
        // An entry takes at least eight bytes, so this ends with the body, whatever the count says.
        let whole = identities.iter().count();
        if u32::try_from(whole) == Ok(count) { Ok(identities) } else { Err(Malformed) }
    }

    /// How many keys there are.
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The keys, in the agent's order.
    pub fn iter(&self) -> impl Iterator<Item = Identity<'a>> + use<'a> {
        let mut fields = Fields::new(self.pairs, self.pairs.len());
        (0..self.count).map_while(move |_| {
            Some(Identity { key: fields.string().ok()?, comment: fields.string().ok()? })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::put_string;
    use super::*;

    fn read(kind: MessageType, body: &[u8]) -> Result<Response<'_>, Malformed> {
        Response::read(&Frame::new(kind, body).unwrap())
    }

    #[test]
    fn a_list_of_keys_is_read() {
        let mut body = vec![0, 0, 0, 2];
        for part in [&b"key"[..], b"mine", b"other", b""] {
            put_string(&mut body, part);
        }
        let Ok(Response::Identities(identities)) = read(MessageType::IDENTITIES_ANSWER, &body)
        else {
            panic!("not read");
        };
        assert_eq!((identities.len(), identities.is_empty()), (2, false));
        let keys: Vec<_> = identities.iter().map(|one| (one.key, one.comment)).collect();
        assert_eq!(keys, [(&b"key"[..], &b"mine"[..]), (b"other", b"")]);
    }

    #[test]
    fn a_list_that_promises_more_than_it_holds_is_malformed() {
        for body in
            [&b""[..], b"\0\0\0\x01", b"\xff\xff\xff\xff\0\0\0\0\0\0\0\0", b"\0\0\0\x01\0\0\0\x09"]
        {
            assert_eq!(read(MessageType::IDENTITIES_ANSWER, body), Err(Malformed), "{body:?}");
        }
        assert_eq!(read(MessageType::SIGN_RESPONSE, b"\0\0\0\x01"), Err(Malformed));
    }
}
