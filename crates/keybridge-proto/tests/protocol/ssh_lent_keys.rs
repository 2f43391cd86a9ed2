//! A session of the ssh lane in which some of the agent's keys are lent.

use crate::ssh_talk::{EMPTY_LIST, FAILURE, Talk, frame, login, sign, string};
use keybridge_proto::gate::Policy;
use keybridge_proto::session::{Peer, Session};
use keybridge_proto::ssh::session::State;
use keybridge_proto::ssh::{
    Fingerprint, Frame, KeySelection, MAX_FRAME, MessageType, Request, Response, SessionError,
};

fn key(number: u8) -> Vec<u8> {
    [string(b"ssh-ed25519"), string(&[number; 32])].concat()
}

fn list(entries: &[(&[u8], &str)]) -> Vec<u8> {
    let count = u32::try_from(entries.len()).unwrap().to_be_bytes().to_vec();
    let pairs = entries.iter().flat_map(|(key, name)| [string(key), string(name.as_bytes())]);
    let fields: Vec<u8> = pairs.flatten().collect();
    frame(MessageType::IDENTITIES_ANSWER, &[count, fields].concat())
}

fn policy(words: &[&str]) -> Policy {
    let ssh_keys = KeySelection::of_words(words.iter().copied()).unwrap();
    Policy { ssh_keys, ..Policy::default() }
}

fn only_first() -> Policy {
    policy(&[&Fingerprint::of(&key(1)).unwrap().to_string()])
}

#[test]
fn a_list_is_narrowed_and_another_key_signs_nothing_in_pieces_of_every_size() {
    let (one, two) = (key(1), key(2));
    let signature = frame(MessageType::SIGN_RESPONSE, &[3; 100]);
    let (lent, other) = (sign(&one, &login()), sign(&two, &login()));
    for chunk in (1..40).chain([1000, 1 << 20]) {
        let mut talk = Talk::connected(only_first(), chunk);
        let whole = list(&[(&two, "two"), (&one, "one"), (b"", "")]);
        talk.answers.extend([whole, signature.clone(), EMPTY_LIST.to_vec(), FAILURE.to_vec()]);
        let ask = &Request::LIST;
        talk.write(&[&ask[..], &other, &lent, ask, &other, ask].concat());
        assert_eq!(talk.agent_got, [&ask[..], &lent, ask, ask].concat(), "{chunk}");
        let narrowed = list(&[(&one, "one")]);
        let got = [&narrowed[..], &FAILURE, &signature, &EMPTY_LIST, &FAILURE, &FAILURE];
        assert_eq!(talk.client_got, got.concat(), "{chunk}");
        assert_eq!(talk.session.state(), State::Ready);
    }
}

#[test]
fn a_comment_lends_nothing_before_the_agent_was_asked_and_what_a_client_saw_does_not_count() {
    let one = key(1);
    let listed = list(&[(&one, "me@work")]);
    let request = [&Request::LIST[..], &sign(&one, &login())].concat();
    let mut talk = Talk::connected(policy(&["me@*"]), 100);
    talk.answers.push_back(listed.clone());
    talk.write(&request);
    assert_eq!(talk.client_got, [&EMPTY_LIST[..], &FAILURE].concat());

    let mut talk = Talk::new(policy(&["me@*"]), 100);
    let (whole, _) = Frame::parse(&listed).unwrap().unwrap();
    let Ok(Response::Identities(identities)) = Response::read(&whole) else { panic!("no list") };
    talk.session.choose_keys(&identities);
    talk.connect();
    talk.answers.extend([listed.clone(), FAILURE.to_vec()]);
    talk.write(&request);
    assert_eq!((&talk.agent_got, &talk.client_got), (&request, &[&listed[..], &FAILURE].concat()));
}

#[test]
fn a_list_that_can_not_be_read_is_a_failure() {
    let mut talk = Talk::connected(only_first(), 100);
    talk.answers.push_back(frame(MessageType::IDENTITIES_ANSWER, b"\0\0\0\x02"));
    talk.write(&Request::LIST);
    assert_eq!(talk.client_got, FAILURE);
    assert!(matches!(talk.session.error(), Some(SessionError::List(_))));
    assert_eq!(
        talk.session.error().unwrap().to_string(),
        "invalid list of keys from the agent: expected a field that ends within its frame, got a \
         longer one"
    );

    let mut talk = Talk::connected(only_first(), 100);
    talk.write(&Request::LIST);
    talk.answers.push_back(list(&[(&key(1), "one")])[..20].to_vec());
    talk.answer();
    talk.session.agent_closed(false);
    talk.run();
    assert_eq!(talk.client_got, FAILURE, "of a list that is cut short nothing was told");
    assert_eq!(talk.session.error(), Some(&SessionError::Broken(Peer::Agent)));
}

#[test]
fn the_largest_list_is_narrowed() {
    let one = key(1);
    let name = "x".repeat(MAX_FRAME - 1 - 4 - (4 + one.len()) * 2 - 4 - 1 - 4);
    let mut talk = Talk::connected(only_first(), 10_000);
    let largest = list(&[(&key(2), &name), (&one, "1")]);
    assert_eq!(largest.len(), MAX_FRAME + 4);
    talk.answers.push_back(largest);
    talk.write(&Request::LIST);
    assert_eq!(talk.client_got, list(&[(&one, "1")]));
}
