//! The bridge between a helper in the same process and a real gpg-agent.

use crate::agent_home::{Home, gnupg, lent_by, local, without_keys};
use crate::bridge_helper::{Client, Pair, idle, pair, pair_at};
use keybridge::agent::AgentDialer;
use keybridge::bridge::BridgeEnd;
use keybridge::keys::{Form, KeyFilter, PublicKeys, export};
use keybridge_lab::{gpg_version, until};
use keybridge_link::Notice;
use keybridge_proto::Lane;
use keybridge_proto::report::KeyChanges;
use rustix::process::Signal;

/// What the agent answers to `GETINFO version`, before its OK.
fn version_line() -> String {
    format!("D {}", gpg_version())
}

const NO_AGENT: &str = "ERR 67108941 No agent running <GPG Agent>";

#[test]
fn a_client_is_greeted_and_answered() {
    let home = Home::with_key("bridge@test");
    local(async {
        let Pair { bridge, helper } = pair(&home, |_| {}).await;
        let user = bridge.ready().user.as_ref().unwrap().to_string();
        assert_eq!(user, "test says: dev\\u{1b}[31m (uid 7)", "it is no name");
        let client = helper.client();
        assert!(client.line().await.unwrap().starts_with("OK Pleased to meet you"));
        assert_eq!(client.ask("GETINFO version").await, [version_line(), "OK".into()]);
        let grip = home.keygrip_of("bridge@test");
        assert_eq!(client.ask(&format!("HAVEKEY {grip}")).await, ["OK"]);
        assert_eq!(client.ask("KILLAGENT").await, ["ERR 67109115 Forbidden <GPG Agent>"]);
        assert_eq!(client.ask("GET_PASSPHRASE x").await, ["ERR 67109115 Forbidden <GPG Agent>"]);
        assert_eq!(bridge.stats().gpg.open, 1);
        assert_eq!(client.ask("BYE").await, ["OK closing connection"]);
        assert_eq!(client.line().await, None);
        drop(client);
        idle(&bridge).await;
        let stats = bridge.stats()[Lane::Gpg];
        assert_eq!((stats.open, stats.total), (0, 1));
        assert!(stats.bytes_in > 90 && stats.bytes_out > 100, "{stats:?}");
    });
}

#[test]
fn the_end_of_a_clients_input_is_not_its_end() {
    let home = Home::with_key("eof@test");
    local(async {
        let Pair { bridge, helper } = pair(&home, |_| {}).await;
        let client = helper.client();
        assert!(client.stream.write_all(b"NOP\nGETINFO version\n").await);
        client.stream.finish();
        let mut lines = Vec::new();
        while let Some(line) = client.line().await {
            lines.push(line);
        }
        assert_eq!(lines[1..], ["OK", &version_line(), "OK"]);
        drop(client);
        idle(&bridge).await;
    });
}

#[test]
fn sixty_four_clients_at_once_are_served() {
    let home = Home::with_key("many@test");
    local(async {
        let Pair { bridge, helper } = pair(&home, |_| {}).await;
        let clients: Vec<Client> = (0..64).map(|_| helper.client()).collect();
        for client in &clients {
            assert!(client.line().await.unwrap().starts_with("OK "));
        }
        assert_eq!(bridge.stats().gpg.open, 64);
        for _ in 0..3 {
            for client in &clients {
                assert!(client.stream.write_all(b"GETINFO version\n").await);
            }
            for client in clients.iter().rev() {
                assert_eq!(client.line().await.unwrap(), version_line());
                assert_eq!(client.line().await.unwrap(), "OK");
            }
        }
        drop(clients);
        idle(&bridge).await;
    });
}

#[test]
fn an_agent_that_dies_in_mid_command_is_told_and_the_next_client_works() {
    let home = Home::new();
    local(async {
        let Pair { bridge, helper } = pair(&home, |_| {}).await;
        let client = helper.client();
        assert!(client.line().await.unwrap().starts_with("OK "));
        let pid = home.agent_pid();
        // The agent hangs, so the command is under way when it dies.
        home.signal_agent(pid, Signal::STOP);
        assert!(client.stream.write_all(b"GETINFO version\n").await);
        until("the command is under way", || bridge.stats().gpg.bytes_in > 0).await;
        home.kill_agent(pid);
        assert_eq!(client.line().await.unwrap(), NO_AGENT);
        assert_eq!(client.line().await, None);
        let next = helper.client();
        assert!(next.line().await.unwrap().starts_with("OK "));
        assert_eq!(next.ask("NOP").await, ["OK"]);
        assert_ne!(home.agent_pid(), pid);
    });
}

#[test]
fn an_agent_that_is_away_is_told_and_works_when_it_is_back() {
    let home = Home::new();
    local(async {
        // This dialer starts nothing.
        let dialer = AgentDialer::at(home.extra_socket());
        let Pair { bridge, helper } = pair_at(lent_by(&home, dialer).await, |_| {}).await;
        let client = helper.client();
        assert_eq!(client.line().await.unwrap(), NO_AGENT);
        assert_eq!(client.line().await, None);
        home.launch_agent();
        assert!(helper.client().line().await.unwrap().starts_with("OK "));
        drop(bridge);
    });
}

#[test]
fn a_socket_that_is_not_restricted_is_refused() {
    let home = Home::new();
    home.launch_agent();
    local(async {
        let dialer = AgentDialer::at(home.socket());
        let Pair { bridge: _bridge, helper } = pair_at(without_keys(dialer), |_| {}).await;
        let client = helper.client();
        assert_eq!(client.line().await.unwrap(), "ERR 67109115 Forbidden <GPG Agent>");
        assert_eq!(client.line().await, None);
    });
}

#[test]
fn keys_are_sent_and_what_they_changed_is_told() {
    let home = Home::with_key("keys@test");
    local(async {
        let keys = export(&gnupg(&home), &KeyFilter::Pairs, Form::Binary).await.unwrap();
        let Pair { bridge, mut helper } = pair(&home, |_| {}).await;
        let changes = KeyChanges { new: 1, updated: 2, unchanged: 3, ownertrust: 4 };
        for _ in 0..3 {
            let helping = async {
                let series = helper.take_keys().await;
                helper.ready(changes);
                series
            };
            let (result, series) = tokio::join!(bridge.sync(&keys), helping);
            assert_eq!(result.unwrap(), changes);
            let head = format!("{{\"ownertrust\":{}}}\n", keys.ownertrust.len());
            let whole = [head.as_bytes(), &keys.ownertrust, &keys.export].concat();
            assert_eq!(series, whole);
        }
        // More than any window.
        let large = PublicKeys { export: vec![7; 5 << 20], ..PublicKeys::default() };
        let helping = async {
            let series = helper.take_keys().await;
            helper.ready(changes);
            series.len()
        };
        let (result, size) = tokio::join!(bridge.sync(&large), helping);
        assert_eq!((result.unwrap(), size), (changes, (5 << 20) + 17));
    });
}

#[test]
fn stop_has_the_helper_end() {
    let home = Home::new();
    local(async {
        let Pair { bridge, mut helper } = pair(&home, |_| {}).await;
        let client = helper.client();
        assert!(client.line().await.unwrap().starts_with("OK "));
        let ended = bridge.ended();
        let helping = async {
            assert!(matches!(helper.notices.recv().await, Some(Notice::Stop)));
            helper.task.abort();
        };
        let (result, ()) = tokio::join!(bridge.stop(), helping);
        result.unwrap();
        assert_eq!(ended.await, BridgeEnd::Stopped);
        idle(&bridge).await;
    });
}

#[test]
fn a_bridge_that_is_dropped_ends_its_link() {
    let home = Home::new();
    local(async {
        let Pair { bridge, mut helper } = pair(&home, |_| {}).await;
        let client = helper.client();
        assert!(client.line().await.unwrap().starts_with("OK "));
        let ended = bridge.ended();
        drop(bridge);
        assert_eq!(ended.await, BridgeEnd::Stopped);
        while helper.notices.recv().await.is_some() {}
        assert!(client.stream.is_closed());
    });
}
