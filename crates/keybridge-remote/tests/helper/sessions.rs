//! Clients of every kind: only their own session ends or waits.

use std::cell::Cell;
use std::rc::Rc;

use crate::lab::{Client, Home, ScriptedAgent, Setup, agreeable, run, until};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

#[test]
fn past_the_cap_a_client_gets_an_error_at_once() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let mut clients = Vec::new();
        for _ in 0..300 {
            clients.push(Client::connect(&home.socket()).await);
        }
        let (mut served, mut refused) = (Vec::new(), 0);
        for mut client in clients {
            let line = client.line().await;
            if line.starts_with("OK") {
                served.push(client);
            } else {
                assert_eq!(line, "ERR 67109047 Limit reached <GPG Agent>\n");
                assert_eq!(client.line().await, "");
                refused += 1;
            }
        }
        assert_eq!((served.len(), refused), (256, 44));
        for client in &mut served {
            assert_eq!(client.ask("NOP").await, ["OK\n"]);
        }
        // Those that go make room, all at once.
        drop(served);
        until("room again", || helper.log().matches("ended").count() >= 256).await;
        for _ in 0..256 {
            Client::greeted(&home.socket()).await;
        }
        assert!(helper.stop().await.success());
    });
}

#[test]
fn a_setting_caps_the_sessions() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (helper, _) =
            Setup::new(home.path(), &agent.path()).arg("--max-sessions=1").ready().await;
        let first = Client::greeted(&home.socket()).await;
        let mut second = Client::connect(&home.socket()).await;
        assert!(second.line().await.starts_with("ERR 67109047"));
        drop(first);
        until("room again", || helper.log().contains("ended")).await;
        Client::greeted(&home.socket()).await;
        assert!(helper.stop().await.success());
    });
}

/// An agent that counts its connections.
fn counted() -> (ScriptedAgent, Rc<Cell<usize>>) {
    let open = Rc::new(Cell::new(0));
    let agent = ScriptedAgent::serving({
        let open = Rc::clone(&open);
        move |mut socket: UnixStream| {
            let open = Rc::clone(&open);
            async move {
                open.set(open.get() + 1);
                // The client can be gone already.
                let _ = socket.write_all(b"OK\n").await;
                let mut buffer = [0; 1024];
                while let Ok(1..) = socket.read(&mut buffer).await {}
                open.set(open.get() - 1);
            }
        }
    });
    (agent, open)
}

#[test]
fn a_hang_up_closes_the_agents_connection_at_once() {
    run(async {
        let home = Home::new();
        let (agent, open) = counted();
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        // In mid-command; with a command under way that is never answered; with bytes that came
        // early and are not read; after a half close.
        for text in ["PKSI", "PKSIGN\n", "PKSIGN\nNOP\nNOP\n", ""] {
            let asked = || helper.log().matches("PKSIGN (6 bytes)").count();
            let (mut client, before) = (Client::greeted(&home.socket()).await, asked());
            client.send(text).await;
            until("the agent is reached", || open.get() == 1).await;
            if text.contains('\n') {
                until("the command is on its way", || asked() > before).await;
            }
            drop(client);
            until("the agent's connection is closed", || open.get() == 0).await;
        }
        let mut client = Client::greeted(&home.socket()).await;
        client.send("PKSIGN\n").await;
        client.writer.shutdown().await.unwrap();
        until("the agent is reached", || open.get() == 1).await;
        drop(client);
        until("the agent's connection is closed", || open.get() == 0).await;
        assert!(helper.stop().await.success());
    });
}

#[test]
fn a_half_close_still_gets_the_answer() {
    run(async {
        let home = Home::new();
        let go = Rc::new(tokio::sync::Notify::new());
        let agent = ScriptedAgent::serving({
            let go = Rc::clone(&go);
            move |mut socket: UnixStream| {
                let go = Rc::clone(&go);
                async move {
                    socket.write_all(b"OK\n").await.unwrap();
                    let mut buffer = [0; 1024];
                    while let Ok(1..) = socket.read(&mut buffer).await {
                        go.notified().await;
                        socket.write_all(b"D late\nOK\n").await.unwrap();
                    }
                }
            }
        });
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let mut client = Client::greeted(&home.socket()).await;
        // Two commands and the end in one go.
        client.send("GETINFO version\nGETINFO pid\n").await;
        client.writer.shutdown().await.unwrap();
        until("the command is on its way", || helper.log().contains("GETINFO")).await;
        for _ in 0..2 {
            go.notify_one();
            assert_eq!(client.line().await, "D late\n");
            assert_eq!(client.line().await, "OK\n");
        }
        assert_eq!(client.line().await, "");
        assert!(helper.stop().await.success());
    });
}

#[test]
fn silent_and_deaf_clients_hold_nobody_up() {
    run(async {
        let home = Home::new();
        let agent = ScriptedAgent::answering(|line| {
            Some(if line == "FLOOD" {
                format!("{}OK\n", format!("D {}\n", "x".repeat(900)).repeat(2000))
            } else {
                "OK\n".into()
            })
        });
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let silent = Client::greeted(&home.socket()).await;
        let mut deaf = Client::greeted(&home.socket()).await;
        deaf.send("FLOOD\n").await;
        let mut early = Client::connect(&home.socket()).await;
        early.send(&"NOP\n".repeat(3000)).await;
        let mut client = Client::greeted(&home.socket()).await;
        for _ in 0..20 {
            assert_eq!(client.ask("NOP").await, ["OK\n"]);
        }
        for _ in 0..3001 {
            assert_eq!(early.line().await.get(..2), Some("OK"));
        }
        // What the deaf one left is still there, whole.
        for _ in 0..2000 {
            assert_eq!(deaf.line().await.len(), 903);
        }
        assert_eq!(deaf.line().await, "OK\n");
        drop(silent);
        assert!(helper.stop().await.success());
    });
}

#[test]
fn a_deaf_client_does_not_hold_the_stop_up() {
    run(async {
        let home = Home::new();
        let flood = format!("D {}\n", "x".repeat(900)).repeat(5000);
        let agent = ScriptedAgent::answering(move |_| Some(flood.clone()));
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let mut deaf = Client::greeted(&home.socket()).await;
        deaf.send("FLOOD\n").await;
        until("it was asked", || helper.log().contains("D (902 bytes)")).await;
        assert!(helper.stop().await.success());
        assert!(!home.has_socket());
    });
}

#[test]
fn an_agent_that_is_away_is_an_error_and_the_next_client_works() {
    run(async {
        let home = Home::new();
        let agent = agreeable();
        let path = agent.path();
        let away = path.with_extension("away");
        std::fs::rename(&path, &away).unwrap();
        let (helper, _) = Setup::new(home.path(), &path).ready().await;
        let mut client = Client::connect(&home.socket()).await;
        assert_eq!(client.line().await, "ERR 67108941 No agent running <GPG Agent>\n");
        assert_eq!(client.line().await, "");
        std::fs::rename(&away, &path).unwrap();
        let mut client = Client::greeted(&home.socket()).await;
        assert_eq!(client.ask("NOP").await, ["OK\n"]);
        assert!(helper.stop().await.success());
    });
}

#[test]
fn many_clients_come_and_go() {
    run(async {
        let home = Home::new();
        let (agent, open) = counted();
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        for round in 0..1000 {
            let client = Client::connect(&home.socket()).await;
            if round % 3 == 0 {
                drop(client);
            } else {
                let mut client = client;
                assert_eq!(client.line().await, "OK\n");
            }
        }
        until("no session is left", || open.get() == 0).await;
        let descriptors = format!("/proc/{}/fd", helper.pid());
        until("no descriptor is left", || std::fs::read_dir(&descriptors).unwrap().count() < 20)
            .await;
        assert!(helper.stop().await.success());
    });
}
