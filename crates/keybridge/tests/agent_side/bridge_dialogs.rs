//! The operations of one bridge, with an agent that keeps each of them waiting.

use std::cell::Cell;
use std::rc::Rc;

use crate::agent_home::local;
use crate::bridge_helper::{Pair, idle, pair_at};
use keybridge::agent::{AgentDialer, GpgAgent};
use keybridge::gnupg::Gnupg;
use keybridge::interface::{CommandInterface, Settings};
use keybridge::keyring::Keyring;
use keybridge_lab::{ScriptedAgent, until};
use keybridge_proto::gate::{AgentSocket, KeyGrip, Policy, Rights, Use};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

const GRIP: &str = "1111111111111111111111111111111111111111";

/// What an agent has to do.
struct Desk {
    under_way: Cell<usize>,
    most: Cell<usize>,
    asked: Cell<usize>,
    /// How many operations may still be answered.
    answers: Semaphore,
    /// It goes on when a client is gone, as gpg-agent 2.2 does.
    is_stubborn: bool,
    /// The answer.
    answer: &'static [u8],
}

/// Answers everything at once but signatures.
async fn serve(socket: UnixStream, desk: Rc<Desk>) {
    let (reader, mut writer) = socket.into_split();
    let mut lines = BufReader::new(reader).lines();
    writer.write_all(b"OK Pleased to meet you\n").await.unwrap();
    while let Ok(Some(line)) = lines.next_line().await {
        if line == "PKSIGN" {
            desk.asked.set(desk.asked.get() + 1);
            desk.under_way.set(desk.under_way.get() + 1);
            desk.most.set(desk.most.get().max(desk.under_way.get()));
            let is_answered = tokio::select! {
                permit = desk.answers.acquire() => {
                    permit.unwrap().forget();
                    true
                }
                // The client is gone.
                _ = lines.next_line(), if !desk.is_stubborn => false,
            };
            desk.under_way.set(desk.under_way.get() - 1);
            if !is_answered || writer.write_all(desk.answer).await.is_err() {
                return;
            }
            continue;
        }
        writer.write_all(b"OK\n").await.unwrap();
    }
}

/// An agent that keeps signatures waiting, and lends one key.
fn desk() -> (Rc<Desk>, ScriptedAgent, GpgAgent) {
    desk_with(false, b"OK\n")
}

fn desk_with(is_stubborn: bool, answer: &'static [u8]) -> (Rc<Desk>, ScriptedAgent, GpgAgent) {
    let desk = Rc::new(Desk {
        under_way: Cell::default(),
        most: Cell::default(),
        asked: Cell::default(),
        answers: Semaphore::new(0),
        is_stubborn,
        answer,
    });
    let scripted = ScriptedAgent::serving({
        let desk = Rc::clone(&desk);
        move |socket| serve(socket, Rc::clone(&desk))
    });
    let rights = Rights { sign: Use::OpenPgp, decrypt: Use::Denied };
    let lent = KeyGrip::parse(GRIP.as_bytes()).map(|keygrip| (keygrip, rights));
    let keyring = Keyring::fixed(lent.into_iter().collect());
    let agent = GpgAgent::new(AgentDialer::at(scripted.path()), keyring);
    (desk, scripted, agent)
}

#[test]
fn a_flood_of_signatures_asks_a_person_four_times_at_once_and_serves_every_client() {
    local(async {
        let (desk, _scripted, agent) = desk();
        let Pair { bridge, helper } = pair_at(agent, |_| {}).await;
        let clients: Vec<_> = (0..20).map(|_| helper.client()).collect();
        for client in &clients {
            assert!(client.line().await.unwrap().starts_with("OK "));
            assert_eq!(client.ask(&format!("SIGKEY {GRIP}")).await, ["OK"]);
            assert!(client.stream.write_all(b"PKSIGN\n").await);
        }
        until("four are asked for", || desk.under_way.get() == 4).await;
        // Others needn't wait, for what asks nobody.
        let other = helper.client();
        assert!(other.line().await.unwrap().starts_with("OK "));
        assert_eq!(other.ask("NOP").await, ["OK"]);
        // Those who wait may hang up.
        let mut clients = clients;
        drop(clients.split_off(10));
        until("ten are left", || bridge.stats().gpg.open == 11).await;
        assert_eq!((desk.most.get(), desk.asked.get()), (4, 4));
        // One that is asked for makes room.
        drop(clients.remove(0));
        until("another one is asked for", || desk.asked.get() == 5).await;
        until("its dialog is closed", || desk.under_way.get() == 4).await;
        desk.most.set(4);
        desk.answers.add_permits(clients.len());
        for client in &clients {
            assert_eq!(client.line().await.unwrap(), "OK");
        }
        assert_eq!((desk.most.get(), desk.asked.get()), (4, 10));
        drop((clients, other));
        idle(&bridge).await;
    });
}

#[test]
fn a_target_that_hangs_up_and_asks_again_lines_up_no_more_than_four_dialogs() {
    local(async {
        let (desk, _scripted, agent) = desk_with(true, b"OK\n");
        let Pair { bridge, helper } = pair_at(agent, |_| {}).await;
        let ask = async || {
            let client = helper.client();
            assert!(client.line().await.unwrap().starts_with("OK "));
            assert_eq!(client.ask(&format!("SIGKEY {GRIP}")).await, ["OK"]);
            assert!(client.stream.write_all(b"PKSIGN\n").await);
            client
        };
        for count in 1..=4 {
            let client = ask().await;
            until("a person is asked", || desk.asked.get() == count).await;
            drop(client);
            until("the client is gone", || bridge.stats().gpg.open == 0).await;
        }
        let fifth = ask().await;
        let other = helper.client();
        assert!(other.line().await.unwrap().starts_with("OK "));
        assert_eq!(other.ask("NOP").await, ["OK"]);
        assert_eq!((desk.asked.get(), desk.under_way.get()), (4, 4));
        desk.answers.add_permits(1);
        until("one dialog makes room for the next", || desk.asked.get() == 5).await;
        desk.answers.add_permits(4);
        assert_eq!(fifth.line().await.unwrap(), "OK");
        drop((fifth, other));
        idle(&bridge).await;
    });
}

#[test]
fn who_hangs_up_does_not_escape_the_pause_after_a_cancelled_dialog() {
    local(async {
        let cancelled = b"ERR 83886179 Operation cancelled <Pinentry>\n";
        let (desk, _scripted, agent) = desk_with(true, cancelled);
        let Pair { bridge, helper } = pair_at(agent, |_| {}).await;
        let client = helper.client();
        assert!(client.line().await.unwrap().starts_with("OK "));
        assert_eq!(client.ask(&format!("SIGKEY {GRIP}")).await, ["OK"]);
        assert!(client.stream.write_all(b"PKSIGN\n").await);
        until("a person is asked", || desk.asked.get() == 1).await;
        drop(client);
        until("the client is gone", || bridge.stats().gpg.open == 0).await;
        desk.answers.add_permits(1);
        until("the person has cancelled", || desk.under_way.get() == 0).await;
        let next = helper.client();
        assert!(next.line().await.unwrap().starts_with("OK "));
        assert_eq!(next.ask(&format!("SIGKEY {GRIP}")).await, ["OK"]);
        assert_eq!(next.ask("PKSIGN").await, ["ERR 67108963 Operation cancelled <GPG Agent>"]);
        assert_eq!(desk.asked.get(), 1);
        drop(next);
        idle(&bridge).await;
    });
}

#[test]
fn the_sessions_of_an_editor_never_ask_a_person_more_than_four_times_at_once() {
    local(async {
        let (desk, _scripted, agent) = desk();
        let settings = Settings {
            // Only the main socket needs no proof.
            policy: Policy { socket: AgentSocket::Main, ..Policy::default() },
            ..Settings::default()
        };
        let interface = Rc::new(CommandInterface::new(Gnupg::new(None), agent, settings));
        let calls: Vec<_> = (0..6)
            .map(|_| {
                let interface = Rc::clone(&interface);
                tokio::task::spawn_local(async move {
                    let id = interface.connect_agent(None).await.unwrap().session_id.to_string();
                    interface.send_commands(&id, &format!("SIGKEY {GRIP}\nPKSIGN")).await.unwrap()
                })
            })
            .collect();
        until("four are asked for", || desk.under_way.get() == 4).await;
        until("all are connected", || interface.sessions() == 6).await;
        desk.answers.add_permits(6);
        for call in calls {
            assert_eq!(call.await.unwrap(), "OK\nOK\n");
        }
        assert_eq!((desk.most.get(), desk.asked.get()), (4, 6));
    });
}
