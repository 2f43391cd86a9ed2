//! The git lane through a link, which counts its round trips.

use std::cell::RefCell;
use std::rc::Rc;

use keybridge::bridge::{Bridge, Settings};
use keybridge::git::GitKeys;
use keybridge::keyring::{Keyring, Lending, SharedCeiling};
use keybridge::keys::PublicKeys;
use keybridge_lab::{command, run, until};
use keybridge_proto::Lane;
use keybridge_proto::git::{Answer, Format, MAX_FRAME, Request};
use keybridge_proto::report::KeyChanges;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::agent_home::{FoundAgent, Home, SshHome, agent, local};
use crate::bridge_helper::{Client, Helper, cookie, pair_at, pipes};
use crate::git_signer::instead_of_signing;

const COMMIT: &str = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\
    author A <a@x> 1700000000 +0100\ncommitter C <c@x> 1700000001 -0000\n\nsubject\n";

const USER: &str = "Git <git@keybridge.example>";

fn request(key: &str) -> Request {
    Request { format: Format::Openpgp, key: key.into(), object: COMMIT.into() }
}

/// Sends bytes as a client of the git lane, and reads what comes until the end.
async fn ask(client: &Client, bytes: &[u8]) -> Vec<u8> {
    assert!(client.stream.write_all(bytes).await);
    client.stream.finish();
    let mut came = Vec::new();
    loop {
        client.stream.read(|bytes| {
            came.extend_from_slice(bytes);
            bytes.len()
        });
        if client.stream.is_finished() || client.stream.is_closed() {
            return came;
        }
        client.stream.changed().await;
    }
}

/// Who has sent something, without those that have sent twice.
type Turns = Rc<RefCell<Vec<&'static str>>>;

async fn carry(
    who: &'static str,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    turns: Turns,
) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if turns.borrow().last() != Some(&who) {
            turns.borrow_mut().push(who);
        }
        to.write_all(&buffer[..count]).await.unwrap();
    }
}

#[test]
fn a_signature_takes_one_round_trip() {
    let home = Home::with_key(USER);
    local(async {
        let agent = agent(&home).await;
        let (host, host_relay) = pipes();
        let (helper, helper_relay) = pipes();
        let turns = Turns::default();
        tokio::task::spawn_local(carry("host", host_relay.0, helper_relay.1, turns.clone()));
        tokio::task::spawn_local(carry("helper", helper_relay.0, host_relay.1, turns.clone()));
        let git = Some(GitKeys { openpgp: Some(Rc::clone(&agent.keyring)), ssh: None });
        let settings = Settings { lanes: vec![Lane::Git], git, ..Settings::new("test") };
        let (cookie, keys) = (cookie(), PublicKeys::default());
        let starting = Bridge::start(host.0, host.1, &cookie, settings, None, &keys);
        let helping = async {
            let mut helper = Helper::start(helper).await;
            helper.take_keys().await;
            helper.ready(KeyChanges::default());
            helper
        };
        let (bridge, helper) = tokio::join!(starting, helping);
        let bridge = bridge.unwrap();
        for _ in 0..3 {
            // What was said before is over once this is answered.
            bridge.round_trip().await.unwrap();
            turns.borrow_mut().clear();
            let client = helper.client_of(Lane::Git);
            let answer = ask(&client, &request(USER).encode().unwrap()).await;
            let answer = Answer::decode(&answer).unwrap();
            assert!(matches!(answer, Answer::Signed { .. }), "{answer:?}");
            assert_eq!(*turns.borrow(), ["helper", "host"]);
        }
    });
}

#[test]
fn whatever_a_client_sends_it_gets_one_answer_or_an_end() {
    let home = Home::with_key(USER);
    local(async {
        let agent = agent(&home).await;
        let git = Some(GitKeys { openpgp: Some(Rc::clone(&agent.keyring)), ssh: None });
        let pair = pair_at(agent, |settings| {
            settings.lanes = Lane::ALL.to_vec();
            settings.git = git;
        })
        .await;
        let frame = request(USER).encode().unwrap();
        let too_long = u32::try_from(MAX_FRAME).unwrap().to_be_bytes();
        for bytes in [&frame[..frame.len() - 1], b"", b"\0\0\0"] {
            assert_eq!(ask(&pair.helper.client_of(Lane::Git), bytes).await, b"", "{bytes:?}");
        }
        for bytes in [&too_long[..], b"\0\0\0\0", b"\0\0\0\x06\0\0\0\x02{}", b"\xff\xff\xff\xff"] {
            let answer = ask(&pair.helper.client_of(Lane::Git), bytes).await;
            let answer = Answer::decode(&answer).unwrap();
            assert!(matches!(answer, Answer::Failed(_)), "{bytes:?}: {answer:?}");
        }
        // Nobody else is harmed, and what follows a request counts for nothing.
        let answer = ask(&pair.helper.client_of(Lane::Git), &[&frame[..], b"more"].concat()).await;
        let answer = Answer::decode(&answer).unwrap();
        assert!(matches!(answer, Answer::Signed { .. }), "{answer:?}");
    });
}

#[test]
fn requests_that_wait_for_a_person_never_take_more_memory_than_there_is_room_for() {
    const CLIENTS: usize = 24;
    const ROOM: usize = 16 * MAX_FRAME;
    let home = Home::with_key(USER);
    let gate = home.file("gate");
    run(command("mkfifo").arg(&gate));
    let wait = format!("[ ! -p {0} ] || read -r _ <{0}; exec gpg \"$@\"", gate.display());
    local(async {
        let gnupg = instead_of_signing(&home, &wait);
        let opened = Keyring::open(gnupg, Lending::default(), &SharedCeiling::default()).await;
        let git = Some(GitKeys { openpgp: Some(Rc::new(opened.unwrap().0)), ssh: None });
        let pair = pair_at(agent(&home).await, |settings| {
            settings.lanes = Lane::ALL.to_vec();
            settings.git = git;
        })
        .await;
        let mut longest = request(USER);
        longest.object.resize(MAX_FRAME - longest.encode().unwrap().len() + COMMIT.len(), b'x');
        let frame: Rc<[u8]> = longest.encode().unwrap().into();
        let mut asking = tokio::task::JoinSet::new();
        for _ in 0..CLIENTS {
            let (client, frame) = (pair.helper.client_of(Lane::Git), Rc::clone(&frame));
            asking.spawn_local(async move { ask(&client, &frame).await });
        }
        let taken = || usize::try_from(pair.bridge.stats().git.bytes_in).unwrap();
        until("as much is taken as there is room for", || taken() >= ROOM).await;
        for _ in 0..100 {
            pair.bridge.round_trip().await.unwrap();
        }
        assert!(taken() <= ROOM + CLIENTS * 4, "{}", taken());
        let open = move || {
            let waiting = std::fs::File::options().write(true).open(&gate).unwrap();
            std::fs::remove_file(&gate).unwrap();
            drop(waiting);
        };
        tokio::task::spawn_blocking(open).await.unwrap();
        for answer in asking.join_all().await {
            let answer = Answer::decode(&answer).unwrap();
            assert!(matches!(answer, Answer::Signed { .. }), "{answer:?}");
        }
    });
}

#[test]
fn a_bridge_without_the_git_lane_signs_nothing_for_git() {
    let home = SshHome::with_key();
    local(async {
        let pair = crate::bridge_helper::ssh_pair(home.dialer(), |_| {}).await;
        let wanted = Request { format: Format::Ssh, ..request(&home.public_key("key")) };
        let answer = ask(&pair.helper.client_of(Lane::Git), &wanted.encode().unwrap()).await;
        let answer = Answer::decode(&answer).unwrap();
        assert!(matches!(&answer, Answer::Failed(why) if why.contains("isn't lent")), "{answer:?}");
    });
}
