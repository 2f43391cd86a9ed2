//! Requests of the ssh lane, made by hand.

use crate::agent_home::SshHome;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use keybridge_proto::ssh::{Frame, MessageType, Response};

pub use keybridge_lab::{FAILURE, SUCCESS};

pub fn frame(kind: MessageType, body: &[u8]) -> Vec<u8> {
    Frame::new(kind, body).unwrap().encode()
}

pub fn string(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

/// The public key in a file of a home, `NAME.pub`, as it is on the wire.
pub fn blob(home: &SshHome, name: &str) -> Vec<u8> {
    let line = std::fs::read_to_string(home.file(&format!("{name}.pub"))).unwrap();
    STANDARD.decode(line.split(' ').nth(1).unwrap()).unwrap()
}

/// Asks for the signature of some text.
pub fn sign(key: &[u8]) -> Vec<u8> {
    sign_data(key, b"a login, or whatever")
}

pub fn sign_data(key: &[u8], data: &[u8]) -> Vec<u8> {
    frame(MessageType::SIGN_REQUEST, &[&string(key)[..], &string(data), &[0; 4]].concat())
}

/// The comments of the keys in a list.
pub fn keys_in(answer: &[u8]) -> Vec<String> {
    let (frame, _) = Frame::parse(answer).unwrap().unwrap();
    match Response::read(&frame) {
        Ok(Response::Identities(identities)) => {
            identities.iter().map(|one| String::from_utf8(one.comment.to_vec()).unwrap()).collect()
        }
        other => panic!("{other:?}"),
    }
}
