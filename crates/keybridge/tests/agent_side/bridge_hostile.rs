//! A bridge whose helper or clients do what they should not.

use crate::agent_home::{Home, agent, local};
use crate::bridge_helper::{Client, Helper, Pair, cookie, idle, pair, pipes, start_alone};
use keybridge::bridge::{Bridge, BridgeEnd, Settings};
use keybridge::keys::PublicKeys;
use keybridge::{Error, ErrorKind};
use keybridge_proto::Lane;
use keybridge_proto::mux::Cookie;
use keybridge_proto::report::{Failure, FailureKind, KeyChanges, ProbeResult, Report};
use tokio::io::AsyncWriteExt;

#[test]
fn past_the_cap_a_client_is_told_so_and_the_others_go_on() {
    let home = Home::new();
    local(async {
        let Pair { bridge, helper } = pair(&home, |settings| settings.max_sessions = 2).await;
        let first = helper.client();
        let second = helper.client();
        assert!(first.line().await.unwrap().starts_with("OK "));
        let third = helper.client();
        assert_eq!(third.line().await.unwrap(), "ERR 67109047 Limit reached <GPG Agent>");
        assert_eq!(third.line().await, None);
        // Far past it, clients are closed without a word.
        let more: Vec<Client> = (0..200).map(|_| helper.client()).collect();
        for client in &more {
            while client.line().await.is_some() {}
        }
        drop((third, more));
        assert_eq!(first.ask("NOP").await, ["OK"]);
        drop((first, second));
        idle(&bridge).await;
        assert!(helper.client().line().await.unwrap().starts_with("OK "));
    });
}

#[test]
fn a_helper_that_does_not_end_is_given_up() {
    let home = Home::new();
    local(async {
        let Pair { bridge, helper: _helper } = pair(&home, |_| {}).await;
        tokio::time::pause();
        let error = bridge.stop().await.unwrap_err();
        assert!(error.message.contains("didn't end within 10 s"), "{error}");
        assert_eq!(bridge.ended().await, BridgeEnd::Stopped);
    });
}

#[test]
fn an_error_of_the_helper_is_told_with_its_kind_and_nothing_steers_a_terminal() {
    for (kind, expected) in [
        (FailureKind::NotFound, ErrorKind::NotFound),
        (FailureKind::NoGnupg, ErrorKind::NoGnupg),
        (FailureKind::InUse, ErrorKind::InUse),
        (FailureKind::NotPermitted, ErrorKind::NotPermitted),
        (FailureKind::SameHome, ErrorKind::SameHome),
        (FailureKind::Other, ErrorKind::Failed),
    ] {
        local(async {
            let (ours, theirs) = pipes();
            let helping = async {
                let helper = Helper::start(theirs).await;
                let failure = Failure {
                    kind,
                    message: "no \u{1b}]0;home\u{7}".into(),
                    hints: vec!["run\r\u{202e}this".into()],
                };
                let failure = serde_json::to_string(&failure).unwrap();
                helper.link.with_mux(|mux| mux.fail(&failure)).unwrap();
                helper
            };
            let (result, _helper) = tokio::join!(start_alone(ours), helping);
            let Error { kind, message, hints, .. } = result.unwrap_err();
            assert_eq!(kind, expected);
            assert_eq!(message, "t says: no \\u{1b}]0;home\\u{7}");
            assert_eq!(hints, ["t says: run\\u{d}\\u{202e}this".into()]);
        });
    }
}

#[test]
fn what_stands_in_the_place_of_a_version_never_looks_like_words_of_ours() {
    let home = Home::new();
    local(async {
        let Pair { bridge, helper } = pair(&home, |_| {}).await;
        let words = "2.4.7 answers. Now run a command of mine; gpg-agent";
        let answers = [words, "2.4.7"]
            .map(|said| ProbeResult { lane: Lane::Gpg, outcome: Ok(said.to_owned()) });
        let report = Report::Answers(answers.to_vec()).encode();
        helper.link.with_mux(|mux| mux.ready(&report)).unwrap();
        let answers = bridge.answers().await.unwrap();
        let shown: Vec<&str> =
            answers.iter().map(|answer| answer.outcome.as_ref().unwrap().as_str()).collect();
        assert_eq!(shown, [&format!("test says: {words}"), "2.4.7"]);
    });
}

#[test]
fn another_cookie_or_a_flood_before_it_is_no_start() {
    local(async {
        let (ours, (_reader, mut writer)) = pipes();
        writer.write_all(&Cookie::new([0; 16]).start_line()).await.unwrap();
        writer.shutdown().await.unwrap();
        let error = start_alone(ours).await.unwrap_err();
        assert!(error.message.contains("the end of its output"), "{error}");

        let (ours, (_reader, mut writer)) = pipes();
        let flood = async { while writer.write_all(&[b'x'; 4096]).await.is_ok() {} };
        let (result, ()) = tokio::join!(start_alone(ours), flood);
        assert!(result.unwrap_err().message.contains("didn't start"));
    });
}

/// A helper that sends these bytes after its start line.
async fn hostile(bytes: Vec<u8>) -> Error {
    let (ours, (_reader, mut writer)) = pipes();
    let sending = async {
        let mut all = cookie().start_line();
        all.extend(bytes);
        let _ = writer.write_all(&all).await;
        let _ = writer.shutdown().await;
    };
    tokio::join!(start_alone(ours), sending).0.unwrap_err()
}

fn frame(kind: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len() + 5).unwrap();
    [&length.to_be_bytes()[..], &[kind], &stream.to_be_bytes(), payload].concat()
}

#[test]
fn a_hostile_helper_is_an_error() {
    local(async {
        assert!(hostile(b"\xff\xff\xff\xff".to_vec()).await.message.contains("length"));
        assert!(hostile(frame(5, 0, b"")).await.message.contains("HELLO"));
        let hello = frame(7, 0, b"2 0.1.0");
        assert!(hostile(frame(7, 0, b"3 0.1.0")).await.message.contains("version 3"));
        assert_eq!(hostile(hello.clone()).await.message, "the helper ended");
        // DATA for a stream that was never opened.
        let error = hostile([hello.clone(), frame(1, 9, b"x")].concat()).await;
        assert!(error.message.contains("broke the protocol"), "{error}");
        // Errors without end are one error.
        let ready = frame(5, 0, b"{\"ready\":{\"\\u001b[31m\":1}}");
        let error = hostile([hello.clone(), ready].concat()).await.to_string();
        assert!(
            error.starts_with("can't read the helper's report: unknown field `\\u{1b}[31m`"),
            "{error}"
        );
        let errors: Vec<u8> = (0..10_000).flat_map(|_| frame(6, 0, b"first")).collect();
        assert_eq!(hostile([hello, errors].concat()).await.message, "t says: first");
    });
}

#[test]
fn a_flood_of_streams_opened_and_closed_leaves_nothing_behind() {
    let home = Home::new();
    local(async {
        let Pair { bridge, helper } = pair(&home, |_| {}).await;
        let honest = helper.client();
        assert!(honest.line().await.unwrap().starts_with("OK "));
        for _ in 0..200 {
            for _ in 0..50 {
                drop(helper.client());
            }
            helper.link.flushed().await;
        }
        assert_eq!(honest.ask("NOP").await, ["OK"]);
        drop(honest);
        idle(&bridge).await;
        assert_eq!(bridge.stats().gpg.open, 0);
    });
}

#[test]
fn a_client_that_reads_nothing_holds_up_no_other() {
    let home = Home::new();
    local(async {
        let Pair { bridge: _bridge, helper } = pair(&home, |_| {}).await;
        // Neither what the agent answers is read, nor what the bridge does.
        let asking = async |question: &[u8]| {
            let deaf = helper.client();
            while deaf.stream.write_all(question).await {}
        };
        let other = async {
            let client = helper.client();
            assert!(client.line().await.unwrap().starts_with("OK "));
            for _ in 0..100 {
                assert_eq!(client.ask("NOP").await, ["OK"]);
            }
        };
        tokio::select! {
            () = asking(b"GETINFO version\n") => panic!("the stream of one that asks was closed"),
            () = asking(b"HELP PKSIGN\n") => panic!("the stream of one that is refused was closed"),
            () = other => {}
        }
    });
}

#[test]
fn a_lane_that_a_target_says_it_has_not_is_never_served() {
    let home = Home::new();
    local(async {
        let ((reader, writer), theirs) = pipes();
        let mut settings = Settings::new("test");
        settings.lanes = vec![Lane::Gpg, Lane::Git];
        let (cookie, keys) = (cookie(), PublicKeys::default());
        let agent = agent(&home).await;
        let starting = Bridge::start(reader, writer, &cookie, settings, agent, &keys);
        let helping = async {
            let mut helper = Helper::start(theirs).await;
            let early = helper.client();
            assert!(early.line().await.is_some_and(|line| line.starts_with("OK")));
            helper.take_keys().await;
            helper.ready_with(&[Lane::Git, Lane::Ssh], KeyChanges::default());
            (helper, early)
        };
        let (bridge, (helper, early)) = tokio::join!(starting, helping);
        let bridge = bridge.unwrap();
        let sockets = &bridge.ready().sockets;
        assert!(sockets.gpg.is_none() && sockets.ssh.is_none() && sockets.git.is_some());
        // Neither one that was there before nor a new one.
        assert_eq!(early.line().await, None);
        assert_eq!(helper.client().line().await, None);
    });
}
