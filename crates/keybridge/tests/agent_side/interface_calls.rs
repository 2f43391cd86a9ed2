//! The command interface against a real gpg-agent, and against stand-ins where a real one can't be
//! made to behave so.

use std::future::Future;
use std::rc::Rc;

use crate::agent_home::{Home, agent, gnupg, lent_by, local};
use keybridge::agent::AgentDialer;
use keybridge::interface::{CallError, CommandInterface, Settings};
use keybridge_lab::version_answer;
use keybridge_proto::Operation;
use keybridge_proto::permission::Rules;
use keybridge_proto::session::agent::State;
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use uuid::Uuid;

async fn interface(home: &Home) -> CommandInterface {
    CommandInterface::new(gnupg(home), agent(home).await, Settings::default())
}

async fn connect(interface: &CommandInterface) -> String {
    interface.connect_agent(None).await.unwrap().session_id.to_string()
}

/// A stand-in agent: greets, says that it is restricted, then does what `serve` does.
async fn stand_in<F: Future<Output = ()> + 'static>(
    home: &Home,
    serve: impl Fn(BufReader<UnixStream>) -> F + 'static,
) -> CommandInterface {
    let path = home.file("stand-in");
    let listener = UnixListener::bind(&path).unwrap();
    let serve = Rc::new(serve);
    tokio::task::spawn_local(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let serve = Rc::clone(&serve);
            tokio::task::spawn_local(async move {
                let mut stream = BufReader::new(stream);
                stream.get_mut().write_all(b"OK stand-in\n").await.unwrap();
                assert_eq!(line(&mut stream).await, "GETINFO restricted\n");
                stream.get_mut().write_all(b"OK\n").await.unwrap();
                serve(stream).await;
            });
        }
    });
    CommandInterface::new(
        gnupg(home),
        lent_by(home, AgentDialer::at(path)).await,
        Settings::default(),
    )
}

/// A line that the agent itself refuses: no hash has this number.
fn odd_hash() -> String {
    format!("SETHASH 999 {}", "AB".repeat(32))
}

async fn line(stream: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    line
}

#[test]
fn a_session_is_greeted_and_its_commands_are_answered() {
    let home = Home::with_key("calls@test");
    let grip = home.keygrip_of("calls@test");
    local(async {
        let interface = interface(&home).await;
        let connected = interface.connect_agent(None).await.unwrap();
        assert!(connected.greeting.starts_with("OK Pleased to meet you"), "{connected:?}");
        assert!(connected.greeting.ends_with('\n'));
        let id = connected.session_id.to_string();
        for (block, response) in [
            ("GETINFO version", version_answer().as_str()),
            ("GETINFO version\n", &version_answer()),
            (&format!("HAVEKEY {grip}"), "OK\n"),
            (
                "HAVEKEY 0000000000000000000000000000000000000000",
                "ERR 67108881 No secret key <GPG Agent>\n",
            ),
            (&odd_hash(), "ERR 67108948 Unsupported algorithm <GPG Agent>\n"),
            ("NOSUCHCOMMAND", "ERR 67109115 Forbidden <GPG Agent>\n"),
            (
                "NOP\nGETINFO version\nFOO\nNOP\n",
                &format!("OK\n{}ERR 67109115 Forbidden <GPG Agent>\nOK\n", version_answer()),
            ),
            ("GET_PASSPHRASE x", "ERR 67109115 Forbidden <GPG Agent>\n"),
            ("# nothing", ""),
            ("", ""),
        ] {
            assert_eq!(interface.send_commands(&id, block).await.unwrap(), response, "{block}");
        }
        interface.disconnect_agent(&id).await.unwrap();
        assert_eq!(interface.sessions(), 0);
    });
}

#[test]
fn a_signature_is_made_in_full() {
    let home = Home::with_key("sign@test");
    let grip = home.keygrip_of("sign@test");
    local(async {
        let interface = interface(&home).await;
        let id = connect(&interface).await;
        let hash = "AB".repeat(32);
        for command in
            ["RESET", &format!("SIGKEY {grip}"), "SETKEYDESC test", &format!("SETHASH 8 {hash}")]
        {
            assert_eq!(interface.send_commands(&id, command).await.unwrap(), "OK\n", "{command}");
        }
        let response = interface.send_commands(&id, "PKSIGN").await.unwrap();
        assert!(response.starts_with("D (7:sig-val(5:eddsa"), "{response:?}");
        assert!(response.ends_with("\nOK\n"), "{response:?}");
    });
}

#[test]
fn what_a_person_would_have_to_be_asked_is_refused() {
    let home = Home::with_key("sign@test");
    let grip = home.keygrip_of("sign@test");
    local(async {
        let ask = [Operation::Sign].into_iter().collect();
        let settings = Settings { rules: Rules { ask, ..Rules::default() }, ..Settings::default() };
        let interface = CommandInterface::new(gnupg(&home), agent(&home).await, settings);
        let id = connect(&interface).await;
        for command in [&format!("SIGKEY {grip}"), &format!("SETHASH 8 {}", "AB".repeat(32))] {
            assert_eq!(interface.send_commands(&id, command).await.unwrap(), "OK\n");
        }
        let refused = interface.send_commands(&id, "PKSIGN").await.unwrap();
        assert!(refused.contains("Not confirmed"), "{refused}");
    });
}

#[test]
fn an_inquiry_is_returned_and_answered_by_the_next_call() {
    let home = Home::with_decrypting_key("inquiry@test");
    let grip = home.decrypting_keygrip("inquiry@test");
    local(async {
        let interface = interface(&home).await;
        let id = connect(&interface).await;
        assert_eq!(interface.send_commands(&id, &format!("SETKEY {grip}")).await.unwrap(), "OK\n");
        for end in ["D \u{ff}\u{0}x\nEND", "CAN"] {
            let asked = interface.send_commands(&id, "PKDECRYPT").await.unwrap();
            assert!(asked.ends_with("INQUIRE CIPHERTEXT\n"), "{asked:?}");
            // A part of the data ends nothing.
            assert_eq!(interface.send_commands(&id, "D abc").await.unwrap(), "");
            let answer = interface.send_commands(&id, end).await.unwrap();
            assert!(answer.starts_with("ERR "), "{answer:?}");
        }
        assert_eq!(interface.send_commands(&id, "NOP").await.unwrap(), "OK\n");
    });
}

#[test]
fn a_second_call_is_rejected_and_the_first_goes_on() {
    let home = Home::new();
    local(async {
        let interface = interface(&home).await;
        let id = connect(&interface).await;
        let pid = home.agent_pid();
        // The agent hangs, so the first call is under way.
        home.signal_agent(pid, Signal::STOP);
        let second = async {
            let error = interface.send_commands(&id, "NOP").await.unwrap_err();
            let CallError::NotReady { state, .. } = error else { panic!("{error}") };
            assert!(matches!(state, State::SendingToAgent | State::WaitingForAgent), "{state:?}");
            assert!(error.to_string().contains(&format!("{state:?}")), "{error}");
            home.signal_agent(pid, Signal::CONT);
        };
        let (first, ()) = tokio::join!(interface.send_commands(&id, "GETINFO version"), second);
        assert_eq!(first.unwrap(), version_answer());
        assert_eq!(interface.send_commands(&id, "NOP").await.unwrap(), "OK\n");
    });
}

#[test]
fn wrong_ids_are_rejected_by_name() {
    let home = Home::new();
    local(async {
        let interface = interface(&home).await;
        let id = connect(&interface).await;
        interface.disconnect_agent(&id).await.unwrap();
        let gone = CallError::UnknownId(id.parse().unwrap());
        assert_eq!(interface.send_commands(&id, "NOP").await, Err(gone.clone()));
        assert_eq!(interface.disconnect_agent(&id).await, Err(gone));
        let unknown = Uuid::new_v4();
        let error = interface.send_commands(&unknown.to_string(), "NOP").await.unwrap_err();
        assert_eq!(error, CallError::UnknownId(unknown));
        let braced = format!("{{{unknown}}}");
        for id in ["", "x", "0", &braced, &unknown.simple().to_string(), "é".repeat(36).as_str()] {
            let malformed = CallError::MalformedId { size: id.chars().count() };
            assert_eq!(interface.send_commands(id, "NOP").await, Err(malformed.clone()));
            assert_eq!(interface.connect_agent(Some(id)).await, Err(malformed));
        }
        // An id of the caller's own is taken once.
        let own = Uuid::new_v4().to_string();
        assert_eq!(interface.connect_agent(Some(&own)).await.unwrap().session_id.to_string(), own);
        let error = interface.connect_agent(Some(&own)).await.unwrap_err();
        assert_eq!(error, CallError::IdInUse(own.parse().unwrap()));
        assert_eq!(interface.send_commands(&own, "NOP").await.unwrap(), "OK\n");
        let error = interface.send_commands(&own, "\u{100}").await.unwrap_err();
        assert_eq!(error, CallError::NotLatin1 { code: 0x100 });
    });
}

#[test]
fn three_sessions_at_once_do_not_disturb_each_other() {
    let home = Home::with_key("three@test");
    let grip = home.keygrip_of("three@test");
    local(async {
        let interface = interface(&home).await;
        let (a, b, c) = tokio::join!(connect(&interface), connect(&interface), connect(&interface));
        assert_eq!(interface.sessions(), 3);
        for _ in 0..20 {
            let set = format!("SIGKEY {grip}");
            let odd = odd_hash();
            let answers = tokio::join!(
                interface.send_commands(&a, "GETINFO version"),
                interface.send_commands(&b, &set),
                interface.send_commands(&c, &odd),
            );
            assert_eq!(answers.0.unwrap(), version_answer());
            assert_eq!(answers.1.unwrap(), "OK\n");
            assert!(answers.2.unwrap().starts_with("ERR 67108948 "));
        }
        interface.disconnect_agent(&b).await.unwrap();
        assert_eq!(interface.send_commands(&a, "NOP").await.unwrap(), "OK\n");
        assert_eq!(interface.send_commands(&c, "NOP").await.unwrap(), "OK\n");
    });
}

#[test]
fn disconnecting_resolves_whether_the_agent_closes_early_or_late() {
    let home = Home::new();
    local(async {
        // It closes at once, without its OK.
        let early = stand_in(&home, |mut stream| async move {
            assert_eq!(line(&mut stream).await, "BYE\n");
        })
        .await;
        let id = connect(&early).await;
        early.disconnect_agent(&id).await.unwrap();
        assert_eq!(early.sessions(), 0);
        drop(early);
    });
    std::fs::remove_file(home.file("stand-in")).unwrap();
    local(async {
        // It says OK and waits for us to close.
        let late = stand_in(&home, |mut stream| async move {
            assert_eq!(line(&mut stream).await, "BYE\n");
            stream.get_mut().write_all(b"OK closing connection\n").await.unwrap();
            assert_eq!(line(&mut stream).await, "");
        })
        .await;
        let id = connect(&late).await;
        late.disconnect_agent(&id).await.unwrap();
        assert_eq!(late.sessions(), 0);
        let error = late.disconnect_agent(&id).await.unwrap_err();
        assert!(matches!(error, CallError::UnknownId(_)), "{error}");
    });
}

#[test]
fn calls_are_rejected_when_the_agent_dies() {
    let home = Home::new();
    local(async {
        let interface = interface(&home).await;
        let (busy, idle) = (connect(&interface).await, connect(&interface).await);
        let pid = home.agent_pid();
        home.signal_agent(pid, Signal::STOP);
        let killing = async {
            home.kill_agent(pid);
        };
        let (result, ()) = tokio::join!(interface.send_commands(&busy, "GETINFO version"), killing);
        let error = result.unwrap_err();
        assert!(matches!(error, CallError::Ended { .. }), "{error}");
        assert!(interface.send_commands(&idle, "NOP").await.is_err());
        assert_eq!(interface.sessions(), 0);
        // The agent is started again for the next one.
        let id = connect(&interface).await;
        assert_eq!(interface.send_commands(&id, "NOP").await.unwrap(), "OK\n");
    });
}

/// A session with a stand-in that answers `PKDECRYPT` in its own way, with a lent key in force.
async fn decrypting(
    home: &Home,
    decrypt: impl AsyncFn(&mut BufReader<UnixStream>) + 'static,
) -> (CommandInterface, String) {
    let decrypt = Rc::new(decrypt);
    let interface = stand_in(home, move |mut stream| {
        let decrypt = Rc::clone(&decrypt);
        async move {
            loop {
                let asked = line(&mut stream).await;
                if asked == "PKDECRYPT\n" {
                    decrypt(&mut stream).await;
                }
                if asked.is_empty() || stream.get_mut().write_all(b"OK\n").await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    let id = connect(&interface).await;
    let set = format!("SETKEY {}", home.decrypting_keygrip("bulk@test"));
    assert_eq!(interface.send_commands(&id, &set).await.unwrap(), "OK\n");
    (interface, id)
}

#[test]
fn ten_mebibytes_go_through_a_call() {
    const SIZE: usize = 10 << 20;
    let home = Home::with_decrypting_key("bulk@test");
    local(async {
        let interface = interface(&home).await;
        let id = connect(&interface).await;
        let line = format!("#{}\n", "x".repeat(990));
        let block = format!("{}GETINFO version\n", line.repeat(SIZE / line.len() + 1));
        assert_eq!(interface.send_commands(&id, &block).await.unwrap(), version_answer());
    });
    local(async {
        // Takes as much as it gets, says how much that was, and gives as much.
        let (interface, id) = decrypting(&home, async |stream| {
            stream.get_mut().write_all(b"INQUIRE CIPHERTEXT\n").await.unwrap();
            let mut taken = 0;
            loop {
                let mut line = Vec::new();
                stream.read_until(b'\n', &mut line).await.unwrap();
                if line == b"END\n" {
                    break;
                }
                taken += line.len();
            }
            let answer = format!("S TAKEN {taken}\n");
            stream.get_mut().write_all(answer.as_bytes()).await.unwrap();
            let data = [b"D ", vec![0xff; 998].as_slice(), b"\n"].concat();
            for _ in 0..=SIZE / 1000 {
                stream.get_mut().write_all(&data).await.unwrap();
            }
        })
        .await;
        let data = format!("D {}\n", "\u{ff}".repeat(998)).repeat(SIZE / 1000);
        for _ in 0..2 {
            let asked = interface.send_commands(&id, "PKDECRYPT").await.unwrap();
            assert_eq!(asked, "INQUIRE CIPHERTEXT\n");
            let response = interface.send_commands(&id, &format!("{data}END\n")).await.unwrap();
            let taken = format!("S TAKEN {}\n", data.chars().count());
            assert!(
                response.starts_with(&taken),
                "{}",
                response.chars().take(40).collect::<String>()
            );
            assert!(response.chars().count() > SIZE && response.ends_with("\u{ff}\nOK\n"));
        }
    });
}

#[test]
fn a_response_over_the_bound_is_rejected_and_the_session_goes_on() {
    let home = Home::with_decrypting_key("bulk@test");
    local(async {
        let (interface, id) = decrypting(&home, async |stream| {
            let data = [b"D ", vec![b'x'; 998].as_slice(), b"\n"].concat().repeat(64);
            for _ in 0..=(64 << 20) / data.len() {
                stream.get_mut().write_all(&data).await.unwrap();
            }
        })
        .await;
        let error = interface.send_commands(&id, "PKDECRYPT").await.unwrap_err();
        assert_eq!(error, CallError::ResponseTooLarge);
        assert_eq!(interface.send_commands(&id, "NOP").await.unwrap(), "OK\n");
    });
}

#[test]
fn sessions_are_capped_and_an_unrestricted_socket_is_refused() {
    let home = Home::new();
    local(async {
        let settings = Settings { max_sessions: 2, ..Settings::default() };
        let interface = CommandInterface::new(gnupg(&home), agent(&home).await, settings);
        let first = connect(&interface).await;
        connect(&interface).await;
        let error = interface.connect_agent(None).await.unwrap_err();
        assert_eq!(error, CallError::TooManySessions { limit: 2 });
        interface.disconnect_agent(&first).await.unwrap();
        connect(&interface).await;

        let main = lent_by(&home, AgentDialer::at(home.socket())).await;
        let interface = CommandInterface::new(gnupg(&home), main, Settings::default());
        let error = interface.connect_agent(None).await.unwrap_err();
        assert!(error.to_string().contains("expected a restricted socket"), "{error}");
        assert_eq!(interface.sessions(), 0);
        let nowhere = lent_by(&home, AgentDialer::at(home.file("nothing"))).await;
        let interface = CommandInterface::new(gnupg(&home), nowhere, Settings::default());
        let error = interface.connect_agent(None).await.unwrap_err();
        assert!(error.to_string().contains("can't be reached"), "{error}");
    });
}
