//! The second path of a link: taken, cut, robbed and refused.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use keybridge_link::{Link, LinkEnd, Notice, Stream, prove_to_helper, prove_to_host};
use keybridge_proto::Lane;
use keybridge_proto::direct::Proof;
use keybridge_proto::mux::{Config, End, Version};
use rustix::net::Shutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::net::UnixStream;
use tokio::task::{JoinHandle, LocalSet, spawn_local};

/// How much the helper's client asks for and the host's end sends.
const ANSWER: usize = 3 * 1024 * 1024;

/// Both ends of a link, whose first path can be watched.
struct Ends {
    host: Link,
    helper: Link,
    host_end: JoinHandle<LinkEnd>,
    helper_end: JoinHandle<LinkEnd>,
}

impl Ends {
    fn new(host_bytes: DuplexStream, helper_bytes: DuplexStream) -> Self {
        let link = |end| Link::new(Config::new(end, Version::Two, &Lane::ALL)).unwrap();
        let (host, helper) = (link(End::Host), link(End::Helper));
        let host_end = run(&host, host_bytes);
        let helper_end = run(&helper, helper_bytes);
        Self { host, helper, host_end, helper_end }
    }

    /// Gives both ends the second path, and waits until both use it. The duplicates of its two ends
    /// are for whoever wants to harm it.
    async fn go_direct(&self) -> (OwnedFd, OwnedFd) {
        let (mut host, mut helper) = UnixStream::pair().unwrap();
        let copy = |socket: &UnixStream| socket.as_fd().try_clone_to_owned().unwrap();
        let copies = (copy(&host), copy(&helper));
        let (ours, theirs) = (Proof::new([1; 16]), Proof::new([2; 16]));
        let helper_proves = async {
            prove_to_host(&mut helper, &theirs, &ours).await.unwrap();
            self.helper.may_go_direct(helper, None).unwrap();
        };
        let (proved, ()) =
            tokio::join!(prove_to_helper(&mut host, &ours, &theirs, None), helper_proves);
        proved.unwrap();
        self.host.go_direct(host).unwrap();
        while !self.host.is_direct() || !self.helper.is_direct() {
            tokio::task::yield_now().await;
        }
        copies
    }
}

fn run(link: &Link, bytes: DuplexStream) -> JoinHandle<LinkEnd> {
    let (reader, writer) = split(bytes);
    let link = link.clone();
    spawn_local(async move {
        let serve = |notice| {
            if let Notice::Opened(stream, _) = notice {
                spawn_local(answer(stream));
            }
        };
        link.run(b"", reader, writer, serve).await
    })
}

/// The byte at a place of an answer.
fn byte_at(place: usize) -> u8 {
    u8::try_from(place % 251).unwrap()
}

/// Reads how much is wanted, and sends that.
async fn answer(stream: Stream) {
    let mut wanted = Vec::new();
    while !stream.is_finished() {
        stream.changed().await;
        stream.read(|bytes| {
            wanted.extend_from_slice(bytes);
            bytes.len()
        });
    }
    let wanted: usize = String::from_utf8(wanted).unwrap().parse().unwrap();
    let all: Vec<u8> = (0..wanted).map(byte_at).collect();
    stream.write_all(&all).await;
    stream.finish();
    while !stream.is_closed() {
        stream.changed().await;
    }
}

/// Asks for so many bytes; every one that comes is the right one. Tells how many came.
async fn exchange(helper: &Link, wanted: usize) -> usize {
    let came = Rc::default();
    ask(helper, wanted, &came).await;
    came.get()
}

async fn ask(helper: &Link, wanted: usize, came: &Rc<std::cell::Cell<usize>>) {
    let stream = helper.open(Lane::Gpg).unwrap();
    stream.write_all(wanted.to_string().as_bytes()).await;
    stream.finish();
    while !stream.is_finished() && !stream.is_closed() {
        stream.changed().await;
        stream.read(|bytes| {
            for byte in bytes {
                assert_eq!(*byte, byte_at(came.get()));
                came.set(came.get() + 1);
            }
            bytes.len()
        });
    }
}

/// Waits until a part of an answer has come.
async fn until_some_came(came: &std::cell::Cell<usize>) {
    while came.get() < ANSWER / 10 {
        tokio::task::yield_now().await;
    }
    assert!(came.get() < ANSWER);
}

#[tokio::test(flavor = "current_thread")]
async fn the_second_path_carries_all_and_the_first_one_nothing_more() {
    let test = async {
        // What the first path carries passes through here.
        let (host_bytes, outer) = duplex(1000);
        let (inner, helper_bytes) = duplex(1000);
        let carried = Rc::new(std::cell::Cell::new(0));
        spawn_local({
            let carried = Rc::clone(&carried);
            async move {
                let ((mut from_host, mut to_host), (mut from_helper, mut to_helper)) =
                    (split(outer), split(inner));
                let count =
                    async |from: &mut (dyn tokio::io::AsyncRead + Unpin),
                           to: &mut (dyn tokio::io::AsyncWrite + Unpin)| {
                        let mut buffer = [0; 500];
                        while let Ok(count @ 1..) = from.read(&mut buffer).await {
                            carried.set(carried.get() + count);
                            to.write_all(&buffer[..count]).await.unwrap();
                        }
                    };
                tokio::join!(
                    count(&mut from_host, &mut to_helper),
                    count(&mut from_helper, &mut to_host)
                );
            }
        });
        let ends = Ends::new(host_bytes, helper_bytes);
        assert_eq!(exchange(&ends.helper, 100_000).await, 100_000);
        ends.go_direct().await;
        let before = carried.get();
        assert!(before > 100_000);
        assert_eq!(exchange(&ends.helper, ANSWER).await, ANSWER);
        assert_eq!(carried.get(), before);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_path_that_is_cut_in_the_middle_of_an_answer_loses_and_doubles_nothing() {
    for cut in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
        for at_host in [true, false] {
            let test = async {
                let (host_bytes, helper_bytes) = duplex(1000);
                let ends = Ends::new(host_bytes, helper_bytes);
                let (host, helper) = ends.go_direct().await;
                let came = Rc::default();
                let asking = ask(&ends.helper, ANSWER, &came);
                let cutting = async {
                    until_some_came(&came).await;
                    rustix::net::shutdown(if at_host { &host } else { &helper }, cut).unwrap();
                };
                tokio::join!(asking, cutting);
                assert_eq!(came.get(), ANSWER, "{cut:?}");
                assert_eq!(exchange(&ends.helper, 100_000).await, 100_000);
                assert!(!ends.host.is_direct() && !ends.helper.is_direct());
                assert!(!ends.host_end.is_finished() && !ends.helper_end.is_finished());
            };
            LocalSet::new().run_until(test).await;
        }
    }
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_path_that_is_cut_while_nobody_talks_is_not_missed() {
    let test = async {
        let (host_bytes, helper_bytes) = duplex(1000);
        let ends = Ends::new(host_bytes, helper_bytes);
        let (host, _helper) = ends.go_direct().await;
        rustix::net::shutdown(&host, Shutdown::Both).unwrap();
        // Past the PING of an idle link, and the time for its answer.
        for _ in 0..60 {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
        assert!(!ends.host_end.is_finished() && !ends.helper_end.is_finished());
        assert_eq!(exchange(&ends.helper, 10).await, 10);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_peer_that_goes_on_by_the_first_path_has_left_the_second_one() {
    let test = async {
        let (host_bytes, mut stranger) = duplex(1000);
        let (inner, helper_bytes) = duplex(1000);
        drop(inner);
        let ends = Ends::new(host_bytes, helper_bytes);
        let (mut host, mut helper) = UnixStream::pair().unwrap();
        let hello = [&[0, 0, 0, 12, 7, 0, 0, 0, 0][..], b"2 0.1.0"].concat();
        stranger.write_all(&hello).await.unwrap();
        let (ours, theirs) = (Proof::new([1; 16]), Proof::new([2; 16]));
        let proving = async {
            prove_to_host(&mut helper, &theirs, &ours).await.unwrap();
            helper.write_all(&[1]).await.unwrap();
        };
        let (proved, ()) = tokio::join!(prove_to_helper(&mut host, &ours, &theirs, None), proving);
        proved.unwrap();
        ends.host.go_direct(host).unwrap();
        // SWITCH, and then a count by the first path, while the second one stays open.
        let switch = [0, 0, 0, 5, 14, 0, 0, 0, 0];
        stranger.write_all(&[&switch[..], &5_u64.to_be_bytes()].concat()).await.unwrap();
        let end = ends.host_end.await.unwrap().to_string();
        assert!(end.contains("5 were sent, 0 came"), "{end}");
        drop(helper);
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_path_that_loses_bytes_ends_the_link() {
    let test = async {
        let (host_bytes, helper_bytes) = duplex(1000);
        let ends = Ends::new(host_bytes, helper_bytes);
        let (_host, helper) = ends.go_direct().await;
        let came = Rc::default();
        let asking = ask(&ends.helper, ANSWER, &came);
        let robbing = async {
            until_some_came(&came).await;
            // Whatever the helper has left there at the moment.
            while rustix::io::read(&helper, &mut [0; 1000]).is_err() {
                tokio::task::yield_now().await;
            }
            rustix::net::shutdown(&helper, Shutdown::Both).unwrap();
        };
        tokio::join!(asking, robbing);
        assert!(came.get() < ANSWER);
        let end = ends.helper_end.await.unwrap();
        assert!(matches!(end, LinkEnd::Io(_) | LinkEnd::Protocol(_)), "{end}");
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(flavor = "current_thread")]
async fn the_end_of_the_first_path_is_the_end_of_the_link_after_its_last_words() {
    let test = async {
        let (host_bytes, helper_bytes) = duplex(1000);
        let ends = Ends::new(host_bytes, helper_bytes);
        ends.go_direct().await;
        ends.helper.with_mux(|mux| mux.fail("last words")).unwrap();
        ends.helper.flushed().await;
        ends.helper_end.abort();
        assert!(matches!(ends.host_end.await.unwrap(), LinkEnd::Eof));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(flavor = "current_thread")]
async fn nobody_switches_to_a_path_that_there_is_not() {
    let test = async {
        let (host_bytes, helper_bytes) = duplex(1000);
        let ends = Ends::new(host_bytes, helper_bytes);
        assert_eq!(exchange(&ends.helper, 10).await, 10);
        ends.helper.with_mux(keybridge_proto::mux::Endpoint::switch);
        let end = ends.host_end.await.unwrap();
        assert!(matches!(&end, LinkEnd::Protocol(error) if error.to_string().contains("SWITCH")));
    };
    LocalSet::new().run_until(test).await;
}

#[tokio::test(flavor = "current_thread")]
async fn both_ends_prove_themselves_and_a_stranger_is_told_nothing() {
    let (ours, theirs) = (Proof::new([1; 16]), Proof::new([2; 16]));
    // A stranger in the helper's place gets not one byte.
    let (mut host, mut stranger) = UnixStream::pair().unwrap();
    stranger.write_all(&[3; 16]).await.unwrap();
    prove_to_helper(&mut host, &ours, &theirs, None).await.unwrap_err();
    drop(host);
    assert_eq!(stranger.read(&mut [0; 16]).await.unwrap(), 0);

    // One in the host's place is not told that it is taken.
    let (mut stranger, mut helper) = UnixStream::pair().unwrap();
    stranger.write_all(&[3; 16]).await.unwrap();
    prove_to_host(&mut helper, &theirs, &ours).await.unwrap_err();
    drop(helper);
    let mut all = Vec::new();
    stranger.read_to_end(&mut all).await.unwrap();
    assert_eq!(all, [2; 16]);
}
