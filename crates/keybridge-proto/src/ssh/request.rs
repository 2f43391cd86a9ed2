//! Requests of a client, parsed as far as the gate needs.

use super::wire::{Fields, Lack};
use super::{AddedKey, Malformed, MessageType, Purpose};

/// A request, with only what is needed to decide on it. Private keys are skipped; PINs and
/// passphrases are not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// Lists the keys.
    RequestIdentities,
    /// Asks for a signature.
    SignRequest {
        /// The public key, as on the wire.
        key: &'a [u8],
        /// What the signature is for.
        purpose: Purpose<'a>,
    },
    /// Adds a private key.
    AddIdentity(AddedKey),
    /// Adds a private key with limits on its use.
    AddIdConstrained(AddedKey),
    /// Removes a key.
    RemoveIdentity {
        /// The public key, as on the wire.
        key: &'a [u8],
    },
    /// Removes every key.
    RemoveAllIdentities,
    /// Adds the keys of a token.
    AddSmartcardKey,
    /// Adds the keys of a token with limits on their use.
    AddSmartcardKeyConstrained,
    /// Removes the keys of a token.
    RemoveSmartcardKey,
    /// Locks the agent.
    Lock,
    /// Unlocks it.
    Unlock,
    /// Binds the connection to an SSH session.
    SessionBind {
        /// What follows the extension's name.
        body: &'a [u8],
    },
    /// Another extension, by its name.
    Extension {
        /// The name.
        name: &'a [u8],
    },
    /// A type that RFC 9987 doesn't define.
    Unknown(MessageType),
}

/// Whether enough of a request is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading<'a> {
    /// It is.
    Known(Request<'a>),
    /// More bytes of the same frame are needed.
    NeedsMore,
}

impl<'a> Request<'a> {
    /// The name of the extension that binds a connection to an SSH session. Keys that are limited to
    /// some hosts depend on it.
    pub const SESSION_BIND: &'static [u8] = b"session-bind@openssh.com";

    /// The name of the extension that lists extensions.
    pub const QUERY: &'static [u8] = b"query";

    /// The request that lists the keys, as a whole frame.
    pub const LIST: [u8; 5] = [0, 0, 0, 1, MessageType::REQUEST_IDENTITIES.0];

    /// Parses a request whose body has `size` bytes, of which `body` is the beginning.
    pub fn read(kind: MessageType, here: &'a [u8], size: usize) -> Result<Reading<'a>, Malformed> {
        match Self::try_read(kind, Fields::new(here, size)) {
            Ok(request) => Ok(Reading::Known(request)),
            Err(Lack::More) => Ok(Reading::NeedsMore),
            Err(Lack::Malformed) => Err(Malformed),
        }
    }

    fn try_read(kind: MessageType, mut fields: Fields<'a>) -> Result<Self, Lack> {
        Ok(match kind {
            MessageType::REQUEST_IDENTITIES => Self::RequestIdentities,
            MessageType::SIGN_REQUEST => {
                let key = fields.string()?;
                Self::SignRequest { key, purpose: Purpose::read(fields.inside_string()?, key)? }
            }
            MessageType::ADD_IDENTITY => Self::AddIdentity(AddedKey::read(fields)?),
            MessageType::ADD_ID_CONSTRAINED => Self::AddIdConstrained(AddedKey::read(fields)?),
            MessageType::REMOVE_IDENTITY => Self::RemoveIdentity { key: fields.string()? },
            MessageType::REMOVE_ALL_IDENTITIES => Self::RemoveAllIdentities,
            MessageType::ADD_SMARTCARD_KEY => Self::AddSmartcardKey,
            MessageType::ADD_SMARTCARD_KEY_CONSTRAINED => Self::AddSmartcardKeyConstrained,
            MessageType::REMOVE_SMARTCARD_KEY => Self::RemoveSmartcardKey,
            MessageType::LOCK => Self::Lock,
            MessageType::UNLOCK => Self::Unlock,
            MessageType::EXTENSION => match fields.string()? {
                Self::SESSION_BIND => Self::SessionBind { body: fields.rest()? },
                name => Self::Extension { name },
            },
            other => Self::Unknown(other),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Frame;
    use super::super::wire::put_string;
    use super::*;

    fn sign(data: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        put_string(&mut body, b"blob");
        put_string(&mut body, data);
        body.extend_from_slice(&[0; 4]);
        body
    }

    fn message(namespace: &[u8]) -> Vec<u8> {
        let mut data = b"SSHSIG".to_vec();
        for field in [namespace, b"", b"sha512", b"hash"] {
            put_string(&mut data, field);
        }
        data
    }

    fn read(kind: MessageType, body: &[u8]) -> Request<'_> {
        match Request::read(kind, body, body.len()) {
            Ok(Reading::Known(request)) => request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_signature_is_known_once_its_namespace_is_there_and_not_before() {
        let body = sign(&message(b"git"));
        // Two lengths, the key, the magic, the namespace and its length.
        let enough = 4 + 4 + 4 + 6 + 4 + 3;
        for here in 0..body.len() {
            let reading =
                Request::read(MessageType::SIGN_REQUEST, &body[..here], body.len()).unwrap();
            assert_eq!(reading == Reading::NeedsMore, here < enough, "{here}");
        }
    }

    #[test]
    fn fields_that_reach_over_their_end_are_malformed() {
        // The second namespace ends in the frame, but not in the data.
        for data in [&b"SSHSIG"[..], b"SSHSIG\0\0\0\x04"] {
            let body = sign(data);
            assert_eq!(Request::read(MessageType::SIGN_REQUEST, &body, body.len()), Err(Malformed));
        }
        for kind in [
            MessageType::SIGN_REQUEST,
            MessageType::ADD_IDENTITY,
            MessageType::ADD_ID_CONSTRAINED,
            MessageType::REMOVE_IDENTITY,
            MessageType::EXTENSION,
        ] {
            assert_eq!(Request::read(kind, b"", 0), Err(Malformed), "{kind}");
            assert_eq!(Request::read(kind, b"\0\0\0\x05", 8), Err(Malformed), "{kind}");
            assert_eq!(Request::read(kind, b"\0\0\0\x04", 8), Ok(Reading::NeedsMore), "{kind}");
        }
    }

    #[test]
    fn secrets_are_not_needed_to_know_a_request() {
        for (kind, request) in [
            (MessageType::ADD_SMARTCARD_KEY, Request::AddSmartcardKey),
            (MessageType::ADD_SMARTCARD_KEY_CONSTRAINED, Request::AddSmartcardKeyConstrained),
            (MessageType::LOCK, Request::Lock),
            (MessageType::UNLOCK, Request::Unlock),
        ] {
            assert_eq!(Request::read(kind, b"", 1000), Ok(Reading::Known(request)));
        }
    }

    #[test]
    fn the_request_for_a_list_is_a_frame() {
        let (frame, taken) = Frame::parse(&Request::LIST).unwrap().unwrap();
        assert_eq!(
            (frame.kind(), frame.body(), taken),
            (MessageType::REQUEST_IDENTITIES, &b""[..], 5)
        );
    }

    #[test]
    fn every_other_number_is_unknown() {
        let known = MessageType::ALL.iter().filter(|kind| {
            !matches!(Request::read(**kind, b"", 0), Ok(Reading::Known(Request::Unknown(_))))
        });
        assert_eq!(known.count(), 12);
        // A request of version 1 of the protocol, an answer, and a private one.
        for number in [1, 6, 255] {
            assert_eq!(read(MessageType(number), b"x"), Request::Unknown(MessageType(number)));
        }
    }
}
