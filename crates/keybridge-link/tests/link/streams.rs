//! Links over an in-memory byte stream, with the loops of both ends running.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use keybridge_link::{Link, LinkEnd, Notice, StartError, Stream, await_start};
use keybridge_proto::Lane;
use keybridge_proto::mux::{Config, Cookie, End, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::task::{LocalSet, spawn_local};

fn link(end: End, version: Version) -> Link {
    Link::new(Config::new(end, version, &Lane::ALL)).unwrap()
}

/// Runs a link, and tells how it ended.
fn run(
    link: &Link,
    bytes: DuplexStream,
    on_notice: impl FnMut(Notice) + 'static,
) -> tokio::task::JoinHandle<LinkEnd> {
    let (reader, writer) = split(bytes);
    let link = link.clone();
    spawn_local(async move { link.run(b"", reader, writer, on_notice).await })
}

/// Reads a stream to its end.
async fn read_to_end(stream: &Stream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        stream.read(|bytes| {
            all.extend_from_slice(bytes);
            bytes.len()
        });
        if stream.is_finished() || stream.is_closed() {
            return all;
        }
        stream.changed().await;
    }
}

/// Sends everything back that comes, then ends its direction.
async fn echo(stream: Stream) {
    let all = read_to_end(&stream).await;
    assert!(stream.write_all(&all).await);
    stream.finish();
    while !stream.is_closed() {
        stream.changed().await;
    }
}

#[tokio::test(flavor = "current_thread")]
async fn streams_carry_more_than_a_window_both_ways_at_once() {
    let local = LocalSet::new();
    local
        .run_until(async {
            let (host, helper) = (link(End::Host, Version::Two), link(End::Helper, Version::Two));
            let (left, right) = duplex(1000);
            run(&host, left, |notice| {
                if let Notice::Opened(stream, _) = notice {
                    spawn_local(echo(stream));
                }
            });
            run(&helper, right, |_| {});
            let mut clients = Vec::new();
            for number in 0..20_u8 {
                let stream = helper.open(Lane::Gpg).unwrap();
                clients.push(spawn_local(async move {
                    let sent = vec![number; 300_000 + usize::from(number)];
                    assert!(stream.write_all(&sent).await);
                    stream.finish();
                    assert_eq!(read_to_end(&stream).await, sent);
                }));
            }
            for client in clients {
                client.await.unwrap();
            }
        })
        .await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_long_write_to_a_version_1_peer_goes_on_without_a_word_from_it() {
    let local = LocalSet::new();
    local
        .run_until(async {
            let host = link(End::Host, Version::One);
            let (left, mut right) = duplex(1 << 16);
            run(&host, left, |notice| {
                if let Notice::Opened(stream, _) = notice {
                    spawn_local(async move {
                        assert!(stream.write_all(&vec![7; 200_000]).await);
                        stream.finish();
                        stream.changed().await;
                    });
                }
            });
            right.write_all(b"\0\0\0\x0e\x02\0\0\0\x01gpg-agent").await.unwrap();
            let mut came = Vec::new();
            while !came.ends_with(&[0, 0, 0, 5, 3, 0, 0, 0, 1]) {
                assert_ne!(right.read_buf(&mut came).await.unwrap(), 0, "closed too early");
            }
            assert_eq!(came.iter().filter(|byte| **byte == 7).count(), 200_000);
        })
        .await;
}

#[tokio::test(flavor = "current_thread")]
async fn the_end_of_a_link_closes_its_streams() {
    let local = LocalSet::new();
    local
        .run_until(async {
            let helper = link(End::Helper, Version::Two);
            let (left, right) = duplex(1000);
            let running = run(&helper, right, |_| {});
            let stream = helper.open(Lane::Gpg).unwrap();
            drop(left);
            assert!(matches!(running.await.unwrap(), LinkEnd::Eof));
            stream.changed().await;
            assert!(stream.is_closed());
            // Nobody waits for a link that is over.
            assert!(helper.is_over());
            let late = helper.open(Lane::Gpg).unwrap();
            late.changed().await;
            assert!(late.is_closed());
            helper.flushed().await;
        })
        .await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_peer_that_breaks_the_protocol_ends_the_link_with_the_reason() {
    let local = LocalSet::new();
    local
        .run_until(async {
            let (left, mut right) = duplex(1000);
            let running = run(&link(End::Host, Version::Two), left, |_| {});
            right.write_all(b"\0\0\0\x05\x01\0\0\0\x01").await.unwrap();
            let end = running.await.unwrap();
            let text = end.to_string();
            assert!(matches!(end, LinkEnd::Protocol(_)), "{text}");
            assert!(text.starts_with("the other end broke the protocol: "), "{text}");
        })
        .await;
}

#[tokio::test(flavor = "current_thread")]
async fn everything_is_written_when_a_link_is_flushed() {
    let local = LocalSet::new();
    local
        .run_until(async {
            let (host, helper) = (link(End::Host, Version::Two), link(End::Helper, Version::Two));
            let (left, right) = duplex(16);
            let told = Rc::new(RefCell::new(Vec::new()));
            let stopped = Rc::new(Cell::new(false));
            let (note, stop) = (Rc::clone(&told), Rc::clone(&stopped));
            run(&host, left, move |notice| {
                if let Notice::Error(text) = notice {
                    *note.borrow_mut() = text;
                }
            });
            run(&helper, right, move |notice| {
                stop.set(stop.get() | matches!(notice, Notice::Stop));
            });
            helper.with_mux(|mux| mux.fail("x".repeat(4000).as_str())).unwrap();
            helper.flushed().await;
            host.with_mux(|mux| mux.stop()).unwrap();
            host.flushed().await;
            while !stopped.get() || told.borrow().is_empty() {
                tokio::task::yield_now().await;
            }
            assert_eq!(told.borrow().len(), 4000);
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn the_start_line_is_found_behind_a_banner_or_given_up() {
    let cookie = Cookie::new([7; 16]);
    let output = [b"Welcome!\n", cookie.start_line().as_slice(), b"frames"].concat();
    assert_eq!(await_start(&mut output.as_slice(), &cookie).await.unwrap(), b"frames");
    let eof = await_start(&mut &b"sh: not found\n"[..], &cookie).await;
    assert!(matches!(eof, Err(StartError::Eof)));
    let flood = await_start(&mut tokio::io::repeat(b'x'), &cookie).await;
    assert!(matches!(flood, Err(StartError::Scan(_))));
    let (_silent, mut reader) = duplex(16);
    assert!(matches!(await_start(&mut reader, &cookie).await, Err(StartError::Timeout)));
}

#[tokio::test(flavor = "current_thread")]
async fn a_link_that_is_given_up_closes_its_streams_and_ends_its_peer() {
    let local = LocalSet::new();
    local
        .run_until(async {
            let (host, helper) = (link(End::Host, Version::Two), link(End::Helper, Version::Two));
            let (left, right) = duplex(1000);
            let host_runs = run(&host, left, |_| {});
            let helper_runs = run(&helper, right, |_| {});
            let stream = helper.open(Lane::Gpg).unwrap();
            host_runs.abort();
            while !stream.is_closed() {
                stream.changed().await;
            }
            assert!(matches!(helper_runs.await.unwrap(), LinkEnd::Eof));
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_peer_that_hangs_up_while_this_end_writes_has_closed_the_link() {
    LocalSet::new()
        .run_until(async {
            for hangs_up in [true, false] {
                let helper = link(End::Helper, Version::Two);
                // The two directions are two pipes, of which one closes first.
                let ((output, _), (input, mut peer)) = (duplex(1000), duplex(1000));
                let running = helper.run(b"", input, output, |_| {});
                let close_the_other = async {
                    if hangs_up {
                        peer.shutdown().await.unwrap();
                    }
                };
                let (end, ()) = tokio::join!(biased; running, close_the_other);
                assert_eq!(matches!(end, LinkEnd::Eof), hangs_up, "{end}");
            }
        })
        .await;
}
