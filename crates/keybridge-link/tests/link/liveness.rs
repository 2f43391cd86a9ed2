//! Links over which nothing comes, in a time that the test steps.

use std::time::Duration;

use keybridge_link::{Link, LinkEnd};
use keybridge_proto::Lane;
use keybridge_proto::mux::{Config, End, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex, split};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::{Instant, advance, sleep};

/// What a loss takes after a PING: five seconds, and the second look.
const LOSS: Duration = Duration::from_millis(5200);

const IDLE: Duration = Duration::from_secs(15);

/// Timers have a millisecond's grain.
const GRAIN: Duration = Duration::from_millis(2);

fn link(end: End, version: Version) -> Link {
    Link::new(Config::new(end, version, &Lane::ALL)).unwrap()
}

fn run(link: &Link, bytes: DuplexStream) -> JoinHandle<LinkEnd> {
    let (reader, writer) = split(bytes);
    let link = link.clone();
    spawn_local(async move { link.run(b"", reader, writer, |_| {}).await })
}

/// Waits for the loss of a link, which has to come after this time.
async fn assert_lost_after(time: Duration, running: JoinHandle<LinkEnd>) {
    let start = Instant::now();
    let end = running.await.unwrap();
    assert!(matches!(end, LinkEnd::Silent), "{end:?}");
    assert_eq!(end.to_string(), "nothing came over the link for 5 s");
    let took = start.elapsed();
    assert!(took >= time && took <= time + GRAIN, "{took:?}");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_host_finds_a_silent_link_lost() {
    LocalSet::new()
        .run_until(async {
            let host = link(End::Host, Version::Two);
            let (left, _right) = duplex(1 << 16);
            assert_lost_after(IDLE + LOSS, run(&host, left)).await;
            assert!(host.is_over());
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_helper_finds_it_when_a_stream_is_opened() {
    LocalSet::new()
        .run_until(async {
            let helper = link(End::Helper, Version::Two);
            let (left, _right) = duplex(1 << 16);
            let running = run(&helper, left);
            sleep(Duration::from_hours(1)).await;
            assert!(!running.is_finished(), "nobody has asked");
            let stream = helper.open(Lane::Gpg).unwrap();
            assert_lost_after(LOSS, running).await;
            stream.changed().await;
            assert!(stream.is_closed());
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_link_that_takes_no_bytes_is_lost_as_well() {
    LocalSet::new()
        .run_until(async {
            let helper = link(End::Helper, Version::Two);
            let (left, _right) = duplex(1);
            let running = run(&helper, left);
            sleep(Duration::from_secs(2)).await;
            helper.open(Lane::Gpg).unwrap();
            // It tries for a moment to say so.
            assert_lost_after(LOSS + Duration::from_millis(100), running).await;
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_helper_that_loses_its_host_leaves_word_for_it() {
    LocalSet::new()
        .run_until(async {
            let helper = link(End::Helper, Version::Two);
            let (left, mut right) = duplex(1 << 16);
            let running = run(&helper, left);
            sleep(Duration::from_secs(2)).await;
            helper.open(Lane::Gpg).unwrap();
            assert_lost_after(LOSS, running).await;
            // A host that was held up for all that time.
            let mut waiting = Vec::new();
            right.read_to_end(&mut waiting).await.unwrap();
            let waiting = String::from_utf8_lossy(&waiting);
            assert!(waiting.contains("nothing came over the link for 5 s"), "{waiting:?}");
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_helper_whose_client_waits_finds_it_by_itself() {
    LocalSet::new()
        .run_until(async {
            let helper = link(End::Helper, Version::Two);
            let (left, _right) = duplex(1 << 16);
            let running = run(&helper, left);
            sleep(Duration::from_secs(1)).await;
            let stream = helper.open(Lane::Gpg).unwrap();
            assert_lost_after(Duration::from_secs(14) + LOSS, running).await;
            assert!(stream.is_closed());
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn whoever_wants_to_know_can_ask_at_once() {
    LocalSet::new()
        .run_until(async {
            let host = link(End::Host, Version::Two);
            let (left, _right) = duplex(1 << 16);
            let running = run(&host, left);
            sleep(Duration::from_secs(1)).await;
            host.ping_now();
            sleep(Duration::from_secs(1)).await;
            // The one that is on its way counts.
            host.ping_now();
            assert_lost_after(LOSS.saturating_sub(Duration::from_secs(1)), running).await;
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_link_between_two_that_live_stays() {
    LocalSet::new()
        .run_until(async {
            let (host, helper) = (link(End::Host, Version::Two), link(End::Helper, Version::Two));
            let (left, right) = duplex(1 << 16);
            let (one, two) = (run(&host, left), run(&helper, right));
            sleep(Duration::from_hours(1)).await;
            for _ in 0..3 {
                drop(helper.open(Lane::Gpg).unwrap());
                host.ping_now();
                sleep(Duration::from_secs(10)).await;
            }
            assert!(!one.is_finished() && !two.is_finished());
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn the_silence_of_a_peer_that_is_held_up_means_nothing() {
    LocalSet::new()
        .run_until(async {
            let host = link(End::Host, Version::Two);
            let (left, _right) = duplex(1 << 16);
            let running = run(&host, left);
            sleep(IDLE + Duration::from_secs(4)).await;
            host.pause_liveness();
            host.ping_now();
            sleep(Duration::from_hours(1)).await;
            assert!(!running.is_finished());
            host.resume_liveness();
            assert_lost_after(IDLE + LOSS, running).await;
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_version_1_link_is_never_lost_by_silence() {
    LocalSet::new()
        .run_until(async {
            let mut config = Config::new(End::Host, Version::One, &Lane::ALL);
            config.version_1_keys = Some(Vec::new());
            let host = Link::new(config).unwrap();
            let (left, mut right) = duplex(1 << 16);
            let running = run(&host, left);
            host.ping_now();
            sleep(Duration::from_hours(1)).await;
            assert!(!running.is_finished());
            let mut keys = [0; 9];
            right.read_exact(&mut keys).await.unwrap();
            running.abort();
            assert!(running.await.unwrap_err().is_cancelled());
            assert_eq!(right.read(&mut keys).await.unwrap(), 0, "no PING");
        })
        .await;
}

/// A program that is stopped after the peer has answered judges by what waits in the pipe.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn one_that_was_stopped_itself_reads_first() {
    LocalSet::new()
        .run_until(async {
            for away in [LOSS, Duration::from_millis(5050), Duration::from_mins(1)] {
                let host = link(End::Host, Version::Two);
                let (left, mut right) = duplex(1 << 16);
                let running = run(&host, left);
                host.ping_now();
                let mut came = vec![0; 1 << 16];
                assert_ne!(right.read(&mut came).await.unwrap(), 0);
                // A HELLO of version 2 is as good an answer as a PONG.
                let helper = link(End::Helper, Version::Two);
                let mut answer = Vec::new();
                helper.with_mux(|mux| mux.transmit(&mut answer));
                right.write_all(&answer).await.unwrap();
                advance(away).await;
                let start = Instant::now();
                sleep(Duration::from_secs(14)).await;
                assert!(!running.is_finished(), "{away:?}");
                // And from then on it is as always.
                running.await.unwrap();
                assert!(start.elapsed() >= IDLE + LOSS, "{away:?}");
            }
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_round_trip_is_measured_until_the_link_ends() {
    LocalSet::new()
        .run_until(async {
            let (host, helper) = (link(End::Host, Version::Two), link(End::Helper, Version::Two));
            let (left, right) = duplex(1 << 16);
            let (at_host, at_helper) = (run(&host, left), run(&helper, right));
            assert!(host.round_trip().await.is_some());
            at_helper.abort();
            at_host.await.unwrap();
            assert_eq!(host.round_trip().await, None);
        })
        .await;
}
