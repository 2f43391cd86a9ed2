//! Clients that the helper passes to the host, beside the second path.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as Client;
use std::time::Duration;

use keybridge_link::{Link, prove_to_helper, prove_to_host, receive_descriptors};
use keybridge_proto::Lane;
use keybridge_proto::direct::{Proof, lane_of_passed};
use keybridge_proto::mux::{Config, End, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use tokio::net::UnixStream;
use tokio::task::{LocalSet, spawn_local};

/// The helper's link, and the host's end of what clients are passed over.
async fn passing() -> (Link, Client) {
    let link = Link::new(Config::new(End::Helper, Version::Two, &Lane::ALL)).unwrap();
    let (mut host, mut helper) = UnixStream::pair().unwrap();
    let (ours, theirs) = Client::pair().unwrap();
    let (host_proof, helper_proof) = (Proof::new([1; 16]), Proof::new([2; 16]));
    let helper_proves = async {
        let passing = prove_to_host(&mut helper, &helper_proof, &host_proof).await.unwrap();
        link.may_go_direct(helper, passing).unwrap();
    };
    let host_proves = prove_to_helper(&mut host, &host_proof, &helper_proof, Some(theirs.into()));
    let (passes, ()) = tokio::join!(host_proves, helper_proves);
    assert!(passes.unwrap());
    (link, ours)
}

/// The next client that was passed.
fn receive(ours: &Client) -> (Lane, Client) {
    let (mut byte, mut descriptors) = ([0], Vec::new());
    assert_eq!(receive_descriptors(ours, &mut byte, &mut descriptors).unwrap(), 1);
    let [client] = <[OwnedFd; 1]>::try_from(descriptors).unwrap();
    (lane_of_passed(byte[0]).unwrap(), client.into())
}

#[tokio::test]
async fn clients_are_passed_in_their_order_until_the_host_is_gone() {
    let (link, ours) = passing().await;
    let pairs = [Lane::Gpg, Lane::Ssh, Lane::Gpg].map(|lane| (lane, Client::pair().unwrap()));
    for (lane, (_, socket)) in &pairs {
        assert!(link.pass(*lane, socket));
    }
    for (number, (lane, (mut client, socket))) in pairs.into_iter().enumerate() {
        drop(socket);
        let (came, mut socket) = receive(&ours);
        assert_eq!(came, lane);
        client.write_all(&[u8::try_from(number).unwrap()]).unwrap();
        let mut byte = [9];
        socket.read_exact(&mut byte).unwrap();
        assert_eq!(usize::from(byte[0]), number);
    }
    drop(ours);
    let (_client, socket) = Client::pair().unwrap();
    assert!(!link.pass(Lane::Gpg, &socket));
    assert!(!link.pass(Lane::Gpg, &socket));
}

#[tokio::test]
async fn a_host_that_takes_none_is_not_waited_for() {
    let (link, ours) = passing().await;
    let (_client, socket) = Client::pair().unwrap();
    let passed = (0..10_000).take_while(|_| link.pass(Lane::Gpg, &socket)).count();
    assert!((100..10_000).contains(&passed), "{passed}");
    receive(&ours);
    assert!((0..passed).any(|_| {
        receive(&ours);
        link.pass(Lane::Gpg, &socket)
    }));
}

#[tokio::test]
async fn a_host_or_a_helper_that_knows_nothing_of_it_goes_on_without() {
    let (host_proof, helper_proof) = (Proof::new([1; 16]), Proof::new([2; 16]));
    // A helper that reads the host's proof alone.
    let (mut host, mut helper) = UnixStream::pair().unwrap();
    let (mut ours, theirs) = Client::pair().unwrap();
    let older = async {
        helper.write_all(helper_proof.expose()).await.unwrap();
        let mut shown = [0; 16];
        helper.read_exact(&mut shown).await.unwrap();
        assert!(host_proof.is(&shown));
        helper.write_all(&[1]).await.unwrap();
    };
    let host_proves = prove_to_helper(&mut host, &host_proof, &helper_proof, Some(theirs.into()));
    let (passes, ()) = tokio::join!(host_proves, older);
    assert!(!passes.unwrap());
    assert_eq!(ours.read(&mut [0]).unwrap(), 0, "nobody has the other end");
    // A host that sends none.
    let link = Link::new(Config::new(End::Helper, Version::Two, &Lane::ALL)).unwrap();
    let (mut host, mut helper) = UnixStream::pair().unwrap();
    let newer = async {
        let passing = prove_to_host(&mut helper, &helper_proof, &host_proof).await.unwrap();
        assert!(passing.is_none());
        link.may_go_direct(helper, passing).unwrap();
    };
    let host_proves = prove_to_helper(&mut host, &host_proof, &helper_proof, None);
    let (passes, ()) = tokio::join!(host_proves, newer);
    assert!(!passes.unwrap());
    assert!(!link.pass(Lane::Gpg, &ours));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_silent_is_asked_first() {
    let test = async {
        let (link, ours) = passing().await;
        let host = Link::new(Config::new(End::Host, Version::Two, &Lane::ALL)).unwrap();
        let (host_bytes, helper_bytes) = duplex(1000);
        let run = |link: &Link, bytes| {
            let (link, (reader, writer)) = (link.clone(), split(bytes));
            spawn_local(async move { link.run(b"", reader, writer, |_| {}).await })
        };
        let (host_task, helper_task) = (run(&host, host_bytes), run(&link, helper_bytes));
        let (_client, socket) = Client::pair().unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!link.pass(Lane::Gpg, &socket));
        assert!(link.pass_if_alive(Lane::Gpg, &socket).await);
        assert!(link.pass(Lane::Gpg, &socket));
        assert_eq!((receive(&ours).0, receive(&ours).0), (Lane::Gpg, Lane::Gpg));
        drop((host_task, helper_task));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_held_up_gets_no_client() {
    let test = async {
        let (link, ours) = passing().await;
        let (_held, helper_bytes) = duplex(1000);
        let (reader, writer) = split(helper_bytes);
        spawn_local({
            let link = link.clone();
            async move { link.run(b"", reader, writer, |_| {}).await }
        });
        let (_client, socket) = Client::pair().unwrap();
        tokio::time::sleep(Duration::from_secs(3)).await;
        let start = tokio::time::Instant::now();
        assert!(!link.pass_if_alive(Lane::Gpg, &socket).await);
        assert!(link.is_over() && start.elapsed() < Duration::from_secs(6));
        receive_descriptors(&ours, &mut [0], &mut Vec::new()).unwrap_err();
    };
    LocalSet::new().run_until(test).await;
}
