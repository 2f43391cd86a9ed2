//! The host's end of version 1, byte for byte, and servers that don't keep to it.

use std::time::Duration;

use keybridge::agent::{AgentDialer, GpgAgent};
use keybridge::bridge::{Bridge, Settings};
use keybridge::keyring::Keyring;
use keybridge_lab::{PATIENCE, StandIn};
use keybridge_proto::Lane;
use keybridge_proto::gate::LentKeys;
use keybridge_proto::report::Ready;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
use tokio::task::LocalSet;
use tokio::time::timeout;

/// The bytes that a line of a transcript stands for: hexadecimal digits, and text in quotes.
fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, part) in text.split('"').enumerate() {
        if index % 2 == 1 {
            bytes.extend(part.replace("\\n", "\n").into_bytes());
            continue;
        }
        let digits: String = part.split_whitespace().collect();
        for pair in digits.as_bytes().chunks(2) {
            let pair = std::str::from_utf8(pair).unwrap();
            bytes.push(u8::from_str_radix(pair, 16).unwrap());
        }
    }
    bytes
}

/// An agent that lends no key.
fn agent(dialer: AgentDialer) -> GpgAgent {
    GpgAgent::new(dialer, Keyring::fixed(LentKeys::default()))
}

#[tokio::test(flavor = "current_thread")]
async fn the_host_says_what_the_transcript_has() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("S.gpg-agent.extra");
    let _agent = StandIn::listen(&socket, |_, peer| peer.write("OK\n"));
    let transcript = include_str!("../golden/version-1-host.txt");
    LocalSet::new()
        .run_until(async {
            let (host, server) = duplex(64 * 1024);
            let (mut from_host, mut to_host) = split(server);
            let talk = async {
                for line in transcript.lines().filter(|line| !line.starts_with('#')) {
                    let (who, said) = line.split_once(' ').unwrap();
                    let said = bytes(said);
                    match who {
                        "server" => to_host.write_all(&said).await.unwrap(),
                        "host" => {
                            let mut came = vec![0; said.len()];
                            let read = timeout(PATIENCE, from_host.read_exact(&mut came)).await;
                            read.unwrap_or_else(|_| panic!("nothing comes for {line}")).unwrap();
                            assert_eq!(
                                String::from_utf8_lossy(&came),
                                String::from_utf8_lossy(&said),
                                "{line}"
                            );
                        }
                        other => panic!("who is {other}"),
                    }
                }
            };
            let start = async {
                let (reader, writer) = split(host);
                let (settings, dialer) = (Settings::new("x"), agent(AgentDialer::at(&socket)));
                let ready = Ready::default();
                let bridge =
                    Bridge::start_version_1(reader, writer, settings, dialer, b"keys", ready);
                let bridge = bridge.await.unwrap();
                bridge.ended().await;
            };
            tokio::select! {
                () = talk => {}
                () = start => panic!("the bridge ended before the transcript"),
            }
        })
        .await;
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn a_server_that_never_says_ready_is_told_of_after_10_s() {
    LocalSet::new()
        .run_until(async {
            let (host, _server) = duplex(64 * 1024);
            let (reader, writer) = split(host);
            let start = tokio::time::Instant::now();
            let (settings, dialer) = (Settings::new("x"), agent(AgentDialer::at("/nowhere")));
            let started = Bridge::start_version_1(
                reader,
                writer,
                settings,
                dialer,
                b"keys",
                Ready::default(),
            );
            let error = started.await.expect_err("it isn't ready");
            assert!(error.message.contains("sent no READY within 10 s"), "{error}");
            let took = start.elapsed();
            assert!(took >= Duration::from_secs(10) && took < Duration::from_secs(11), "{took:?}");
        })
        .await;
}

#[tokio::test(flavor = "current_thread")]
async fn an_export_over_1_mib_is_refused_with_the_way_out() {
    LocalSet::new()
        .run_until(async {
            let (host, _server) = duplex(64 * 1024);
            let (reader, writer) = split(host);
            let (settings, dialer) = (Settings::new("x"), agent(AgentDialer::at("/nowhere")));
            let export = vec![0; 1024 * 1024];
            let ready = Ready::default();
            let started = Bridge::start_version_1(reader, writer, settings, dialer, &export, ready);
            let error = started.await.expect_err("it is too much");
            assert!(error.message.starts_with("can't send the public keys: "), "{error}");
            assert!(
                error.hints.iter().any(|hint| hint.to_string().contains("--keys")),
                "{error:?}"
            );
        })
        .await;
}

#[tokio::test(flavor = "current_thread")]
async fn nothing_is_ever_sent_as_keys_but_keys() {
    LocalSet::new()
        .run_until(async {
            let (host, mut server) = duplex(64 * 1024);
            let (reader, writer) = split(host);
            let (settings, dialer) = (Settings::new("x"), agent(AgentDialer::at("/nowhere")));
            let ready = Ready::default();
            let started = Bridge::start_version_1(reader, writer, settings, dialer, b"", ready);
            let error = started.await.expect_err("there are no keys");
            assert!(error.message.contains("no public keys to send"), "{error}");
            let mut came = Vec::new();
            server.read_to_end(&mut came).await.unwrap();
            assert_eq!(came, b"");
        })
        .await;
}

#[tokio::test(flavor = "current_thread")]
async fn a_server_of_the_ssh_lane_alone_never_gets_keys_and_is_waited_for_when_it_ends() {
    LocalSet::new()
        .run_until(async {
            let (host, mut server) = duplex(64 * 1024);
            let (reader, writer) = split(host);
            let settings = Settings { lanes: vec![Lane::Ssh], ..Settings::new("x") };
            let none: Option<GpgAgent> = None;
            let started =
                Bridge::start_version_1(reader, writer, settings, none, b"keys", Ready::default());
            let opening = async {
                server.write_all(&bytes("00000005 05 00000000")).await.unwrap();
                // A client, and its question, which is refused without an agent.
                let asked = "0000000e 02 00000001 \"ssh-agent\" 0000000a 01 00000001 00000001 0b";
                server.write_all(&bytes(asked)).await.unwrap();
                let mut came = vec![0; 14];
                server.read_exact(&mut came).await.unwrap();
                assert_eq!(came, bytes("0000000a 01 00000001 00000001 05"));
                server
            };
            let (bridge, mut server) = tokio::join!(started, opening);
            let bridge = bridge.unwrap();
            let ending = async move {
                let mut rest = Vec::new();
                server.read_to_end(&mut rest).await.unwrap();
                assert_eq!(rest, b"", "the end of its input is all that a server is told");
                server.write_all(&bytes("00000005 03 00000001")).await.unwrap();
            };
            let mut stopping = std::pin::pin!(bridge.stop());
            tokio::select! {
                biased;
                _ = &mut stopping => panic!("the server works on"),
                () = ending => {}
            }
            timeout(PATIENCE, stopping).await.expect("the server has ended").unwrap();
        })
        .await;
}
