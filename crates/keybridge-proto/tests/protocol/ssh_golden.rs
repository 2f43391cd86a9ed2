//! Golden files: decoded, compared, encoded again to the same bytes.

use std::collections::HashSet;

use crate::ssh_talk::{Talk, string};
use keybridge_proto::gate::Policy;
use keybridge_proto::ssh::{
    AddedKey, Frame, Login, MessageType, Purpose, Reading, Request, Response,
};

macro_rules! golden {
    ($name:literal) => {
        include_bytes!(concat!("../golden/ssh/", $name)).as_slice()
    };
}

/// A file, what it is decoded to, and the body that is made of that again, where it says all of it.
type Golden = (&'static [u8], Request<'static>, Option<Vec<u8>>);

fn requests() -> Vec<Golden> {
    let key = key();
    let sign = |purpose| Request::SignRequest { key, purpose };
    let bind = golden!("extension-session-bind");
    let login = golden!("sign-request-login");
    let login = Login {
        session_id: &login[0x44..0x84],
        user: b"root",
        host_key: Some(&login[0x111..0x144]),
    };
    let body = &bind[4 + 1 + 4 + Request::SESSION_BIND.len()..];
    let none = || Some(Vec::new());
    vec![
        (golden!("request-identities"), Request::RequestIdentities, none()),
        (golden!("sign-request-login"), sign(Purpose::Login(login)), None),
        (golden!("sign-request-message"), sign(Purpose::Message { namespace: b"git" }), None),
        (golden!("add-identity"), Request::AddIdentity(AddedKey::Plain), None),
        (golden!("add-id-constrained"), Request::AddIdConstrained(AddedKey::Plain), None),
        (
            golden!("add-id-constrained-destination"),
            Request::AddIdConstrained(AddedKey::Plain),
            None,
        ),
        (golden!("remove-identity"), Request::RemoveIdentity { key }, Some(string(key))),
        (golden!("remove-all-identities"), Request::RemoveAllIdentities, none()),
        (golden!("version-1-remove-all"), Request::Unknown(MessageType(9)), none()),
        (golden!("add-smartcard-key"), Request::AddSmartcardKey, None),
        (golden!("add-smartcard-key-constrained"), Request::AddSmartcardKeyConstrained, None),
        (golden!("remove-smartcard-key"), Request::RemoveSmartcardKey, None),
        (golden!("lock"), Request::Lock, Some(string(b"golden"))),
        (golden!("unlock"), Request::Unlock, Some(string(b"golden"))),
        (bind, Request::SessionBind { body }, None),
        (golden!("extension-query"), Request::Extension { name: b"query" }, Some(string(b"query"))),
    ]
}

fn answers() -> Vec<(&'static [u8], MessageType)> {
    vec![
        (golden!("failure"), MessageType::FAILURE),
        (golden!("success"), MessageType::SUCCESS),
        (golden!("identities-answer-empty"), MessageType::IDENTITIES_ANSWER),
        (golden!("identities-answer"), MessageType::IDENTITIES_ANSWER),
        (golden!("sign-response"), MessageType::SIGN_RESPONSE),
        (golden!("extension-failure"), MessageType::EXTENSION_FAILURE),
        (golden!("extension-response-query"), MessageType::EXTENSION_RESPONSE),
    ]
}

/// The public key in all of them, as the agent lists it.
fn key() -> &'static [u8] {
    let Response::Identities(identities) = answer(golden!("identities-answer")) else {
        panic!("no list");
    };
    identities.iter().next().unwrap().key
}

fn whole(bytes: &'static [u8]) -> Frame<'static> {
    let (frame, taken) = Frame::parse(bytes).unwrap().unwrap();
    assert_eq!(taken, bytes.len());
    frame
}

fn answer(bytes: &'static [u8]) -> Response<'static> {
    Response::read(&whole(bytes)).unwrap()
}

#[test]
fn requests_are_decoded_and_encoded_again() {
    for (bytes, expected, body) in requests() {
        let frame = whole(bytes);
        let read = Request::read(frame.kind(), frame.body(), frame.body().len());
        assert_eq!(read, Ok(Reading::Known(expected)));
        let body = body.unwrap_or_else(|| frame.body().to_vec());
        assert_eq!(Frame::new(frame.kind(), &body).unwrap().encode(), bytes, "{expected:?}");
    }
}

#[test]
fn answers_are_decoded_and_encoded_again() {
    for (bytes, kind) in answers() {
        let body = match answer(bytes) {
            Response::Failure | Response::Success | Response::ExtensionFailure => Vec::new(),
            Response::Identities(identities) => {
                let pairs = identities.iter().flat_map(|one| [one.key, one.comment].map(string));
                [identities.len().to_be_bytes().to_vec(), pairs.flatten().collect()].concat()
            }
            Response::Signature(signature) => string(signature),
            Response::ExtensionResponse(response) => response.to_vec(),
            Response::Unknown(kind) => panic!("{kind}"),
        };
        assert_eq!(Frame::new(kind, &body).unwrap().encode(), bytes, "{kind}");
    }
    let Response::Identities(identities) = answer(golden!("identities-answer")) else {
        panic!("no list");
    };
    let comments: Vec<_> = identities.iter().map(|one| one.comment).collect();
    assert_eq!(comments, [b"golden@test"]);
    assert!(key().starts_with(&string(b"ssh-ed25519")));
    assert!(answer(golden!("identities-answer-empty")) != answer(golden!("identities-answer")));
}

#[test]
fn every_kind_has_a_golden_file() {
    let requests = requests().into_iter().map(|(bytes, ..)| whole(bytes).kind());
    let kinds: HashSet<MessageType> =
        requests.chain(answers().into_iter().map(|(_, kind)| kind)).collect();
    let missing: Vec<_> = MessageType::ALL.iter().filter(|kind| !kinds.contains(kind)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    // The files that are there are the ones in the tables.
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/ssh");
    let files = std::fs::read_dir(folder).unwrap().count() - 1;
    assert_eq!(files, self::requests().len() + answers().len());
}

#[test]
fn what_asks_passes_unchanged_and_what_changes_does_not() {
    let answer = golden!("sign-response");
    for (bytes, request, _) in requests() {
        let asks = match request {
            Request::RequestIdentities
            | Request::SignRequest { .. }
            | Request::SessionBind { .. }
            | Request::Extension { name: b"query" } => true,
            Request::Extension { .. }
            | Request::AddIdentity(_)
            | Request::AddIdConstrained(_)
            | Request::RemoveIdentity { .. }
            | Request::RemoveAllIdentities
            | Request::AddSmartcardKey
            | Request::AddSmartcardKeyConstrained
            | Request::RemoveSmartcardKey
            | Request::Lock
            | Request::Unlock
            | Request::Unknown(_) => false,
        };
        let mut talk = Talk::connected(Policy::default(), 7);
        talk.answers.push_back(answer.to_vec());
        talk.write(bytes);
        let (for_agent, for_client) =
            if asks { (bytes, answer) } else { (&b""[..], golden!("failure")) };
        assert_eq!(talk.agent_got, for_agent, "{request:?}");
        assert_eq!(talk.client_got, for_client, "{request:?}");
    }
}
