//! The helper's end of a path past whoever carries the link.

use std::path::{Path, PathBuf};
use std::time::Duration;

use keybridge_lab::PATIENCE;
use keybridge_link::{Link, Notice, prove_to_helper};
use keybridge_proto::Lane;
use keybridge_proto::direct::{DirectAsk, DirectOffer, Proof};
use keybridge_proto::mux::{Config, End, Version};
use keybridge_remote::offer_direct_path;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

const HOST: [u8; 16] = [7; 16];

fn run(bytes: tokio::io::DuplexStream, end: End) -> (Link, mpsc::UnboundedReceiver<Vec<u8>>) {
    let link = Link::new(Config::new(end, Version::Two, &Lane::ALL)).unwrap();
    let (told, payloads) = mpsc::unbounded_channel();
    let (reader, writer) = split(bytes);
    spawn_local({
        let link = link.clone();
        async move {
            link.run(b"", reader, writer, |notice| {
                if let Notice::Direct(payload) = notice {
                    let _ = told.send(payload);
                }
            })
            .await
        }
    });
    (link, payloads)
}

/// A helper that offers a path, and the host's end of its link.
async fn offered() -> (Link, Link, DirectOffer, PathBuf) {
    let (host_bytes, helper_bytes) = duplex(10_000);
    let ((host, mut offers), (helper, _)) =
        (run(host_bytes, End::Host), run(helper_bytes, End::Helper));
    spawn_local(offer_direct_path(helper.clone(), DirectAsk { host: Proof::new(HOST) }));
    let offer = DirectOffer::decode(&offers.recv().await.unwrap()).unwrap();
    let socket = PathBuf::from(String::from_utf8(offer.socket.clone()).unwrap());
    (host, helper, offer, socket)
}

/// Connects, shows a proof, and is taken.
async fn come(socket: &Path, offer: &DirectOffer, proof: [u8; 16]) -> std::io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket).await?;
    prove_to_helper(&mut stream, &Proof::new(proof), &offer.helper, None).await?;
    Ok(stream)
}

#[tokio::test(flavor = "current_thread")]
async fn the_host_is_taken_after_strangers_and_nothing_is_left() {
    let test = async {
        let (host, helper, offer, socket) = offered().await;
        let folder = socket.parent().unwrap();
        let mode = std::os::unix::fs::MetadataExt::mode(&folder.metadata().unwrap());
        assert_eq!(mode & 0o7777, 0o700);
        // One that shows the wrong thing, one that goes away, and one that says nothing for too long.
        come(&socket, &offer, [8; 16]).await.unwrap_err();
        drop(UnixStream::connect(&socket).await.unwrap());
        let mut silent = UnixStream::connect(&socket).await.unwrap();
        let stream = come(&socket, &offer, HOST).await.unwrap();
        let mut proof = Vec::new();
        silent.read_to_end(&mut proof).await.unwrap();
        assert!(offer.helper.is(&proof), "no more than the helper's own proof");
        assert!(!folder.exists());
        host.go_direct(stream).unwrap();
        while !helper.is_direct() || !host.is_direct() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, LocalSet::new().run_until(test)).await.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn an_offer_that_nobody_takes_is_withdrawn() {
    let test = async {
        let (_host, helper, _, socket) = offered().await;
        // The time goes on to the next timer whenever there is nothing else to do.
        tokio::time::pause();
        while socket.parent().unwrap().exists() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(!helper.is_direct());
    };
    tokio::time::timeout(PATIENCE, LocalSet::new().run_until(test)).await.unwrap();
}

#[tokio::test(flavor = "current_thread")]
async fn the_folder_goes_with_the_helper() {
    let local = LocalSet::new();
    let (_host, _helper, _, socket) = local.run_until(offered()).await;
    assert!(socket.exists());
    let mut other = UnixStream::connect(&socket).await.unwrap();
    drop(local);
    assert!(!socket.parent().unwrap().exists());
    let _ = other.write_all(&HOST).await;
}
