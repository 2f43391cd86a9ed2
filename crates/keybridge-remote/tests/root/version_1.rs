//! The helper under the name that existing hosts start it by. What it says is compared byte for byte with
//! the transcripts in `golden`.

use std::cell::Cell;
use std::collections::HashMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::Rc;

use crate::lab::{Home, User, dial, relay, run, until};
use keybridge_lab::{PATIENCE, until_async};
use keybridge_link::{Link, Notice};
use keybridge_proto::Lane;
use keybridge_proto::mux::{Config, End, Version};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::spawn_local;
use tokio::time::timeout;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// A helper of version 1 at work, and its clients.
struct Run {
    user: User,
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    clients: HashMap<String, UnixStream>,
}

fn socket(user: &User, lane: &str) -> PathBuf {
    user.file(match lane {
        "gpg" => ".gnupg/S.gpg-agent",
        "ssh" => ".ssh/agent.sock",
        other => panic!("{other}"),
    })
}

/// The value of the variable for some lanes.
fn sockets(user: &User, lanes: &[&str]) -> String {
    let object = |lane: &&str| {
        let path = socket(user, lane);
        format!(r#"{{"path": "{}", "type": "{lane}-agent"}}"#, path.display())
    };
    format!("[{}]", lanes.iter().map(object).collect::<Vec<_>>().join(","))
}

/// A helper under the name that existing hosts start it by.
fn helper_of(user: &User, sockets: &str) -> Command {
    let program = user.elsewhere("clawker-socket-server");
    if !program.exists() {
        std::os::unix::fs::symlink(crate::lab::program(), &program).unwrap();
    }
    let mut command = user.command(&program);
    command.env("CLAWKER_REMOTE_SOCKETS", sockets).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

impl Run {
    fn start(user: User, sockets: &str) -> Self {
        let mut child = helper_of(&user, sockets).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { user, child, stdin, stdout, clients: HashMap::new() }
    }

    async fn step(&mut self, step: &str) {
        let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
        match (word, rest.split(' ').collect::<Vec<_>>()[..].as_ref()) {
            ("host", _) => {
                let stdin = self.stdin.as_mut().unwrap();
                stdin.write_all(&bytes(rest)).await.unwrap();
            }
            ("helper", _) => expect(&mut self.stdout, &bytes(rest)).await,
            ("dial", [lane, name]) => {
                let path = socket(&self.user, lane);
                until("a socket", || path.exists()).await;
                self.clients.insert((*name).to_owned(), dial(&path).await);
            }
            ("socket", [lane, state @ ..]) => {
                assert_eq!(socket(&self.user, lane).exists(), *state == ["there"]);
            }
            ("eof", _) => self.stdin = None,
            ("exit", [code]) => {
                let ended = self.child.wait().await.unwrap();
                assert_eq!(ended.code(), Some(code.parse().unwrap()));
                expect_end(&mut self.stdout).await;
            }
            (name, [">", ..]) => {
                self.client(name).write_all(&bytes(&rest[2..])).await.unwrap();
            }
            (name, ["<", ..]) => expect(self.client(name), &bytes(&rest[2..])).await,
            (name, ["ends"]) => expect_end(self.client(name)).await,
            (name, ["closes"]) => drop(self.clients.remove(name).unwrap()),
            _ => panic!("a line that has no meaning"),
        }
    }

    fn client(&mut self, name: &str) -> &mut UnixStream {
        self.clients.get_mut(name).unwrap()
    }
}

async fn expect(stream: &mut (impl AsyncReadExt + Unpin), expected: &[u8]) {
    let mut came = vec![0; expected.len()];
    let read = stream.read_exact(&mut came).await;
    assert!(came == expected, "{} ({read:?})", came.escape_ascii());
}

async fn expect_end(stream: &mut (impl AsyncReadExt + Unpin)) {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty(), "{}", rest.escape_ascii());
}

/// The bytes that a line of a transcript names.
fn bytes(text: &str) -> Vec<u8> {
    let (mut bytes, mut rest) = (Vec::new(), text.trim());
    while !rest.is_empty() {
        let end = match rest.strip_prefix('"') {
            Some(quoted) => quoted.find('"').unwrap() + 2,
            None => rest.find(' ').unwrap_or(rest.len()),
        };
        let token = &rest[..end];
        if let Some(quoted) = token.strip_prefix('"') {
            bytes.extend(quoted.trim_end_matches('"').replace("\\n", "\n").bytes());
        } else {
            let pairs = (0..token.len()).step_by(2).map(|at| &token[at..at + 2]);
            bytes.extend(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()));
        }
        rest = rest[end..].trim_start();
    }
    bytes
}

/// Replays a transcript.
async fn replay(name: &str) -> User {
    let text = std::fs::read_to_string(golden(name)).unwrap();
    let mut steps = text.lines().zip(1..).filter(|(step, _)| !step.starts_with('#'));
    let (first, _) = steps.next().unwrap();
    let user = User::new();
    let asked = match first.split_once(' ').unwrap() {
        ("sockets", lanes) => sockets(&user, &lanes.split(' ').collect::<Vec<_>>()),
        ("sockets-raw", value) => value.to_owned(),
        other => panic!("{other:?}"),
    };
    let mut run = Run::start(user, &asked);
    for (step, number) in steps {
        let taken = timeout(PATIENCE, run.step(step)).await;
        assert!(taken.is_ok(), "{name}:{number}: nothing happens: {step}");
        // A failed test shows how far it came.
        println!("{name}:{number}: {step}");
    }
    run.user
}

#[test]
fn ssh_alone_is_served_without_keys() {
    run(async {
        let user = replay("ssh.txt").await;
        assert!(user.content().is_empty());
    });
}

#[test]
fn both_lanes_are_served_when_the_keys_have_come() {
    run(async {
        assert!(replay("gpg-and-ssh.txt").await.content().is_empty());
    });
}

#[test]
fn a_host_that_sends_no_keys_does_not_hang_the_helper() {
    run(async {
        assert!(replay("no-pubkey.txt").await.content().is_empty());
    });
}

#[test]
fn what_ends_the_helper_is_said_as_plain_text() {
    run(async {
        for name in ["wrong-start.txt", "too-long.txt", "unknown-socket-type.txt"] {
            assert!(replay(name).await.content().is_empty(), "{name}");
        }
    });
}

#[test]
fn gpg_signs_with_the_keys_of_a_version_1_host() {
    run(async {
        let host = Home::with_key("Alice <alice@example.org>").await;
        host.start_agent().await;
        let export = host.gpg(&["--export"]).await.stdout;
        // In time, and when the helper doesn't wait for them any more: it has sent READY by then.
        for are_late in [false, true] {
            let user = User::new();
            let asked = sockets(&user, &["gpg"]);
            let Run { user, mut child, stdin, mut stdout, .. } = Run::start(user, &asked);
            let mut config = Config::new(End::Host, Version::One, &[Lane::Gpg]);
            config.version_1_keys = Some(export.clone());
            let link = Link::new(config).unwrap();
            let mut first = vec![0; if are_late { 9 } else { 0 }];
            stdout.read_exact(&mut first).await.unwrap();
            let ready = Rc::new(Cell::new(false));
            let running = spawn_local({
                let (link, ready, agent) = (link.clone(), Rc::clone(&ready), host.extra_socket());
                async move {
                    let on_notice = |notice| match notice {
                        Notice::Opened(stream, _) => {
                            drop(spawn_local(relay(stream, agent.clone())));
                        }
                        Notice::Ready(payload) => ready.set(payload.is_empty()),
                        other => panic!("{other:?}"),
                    };
                    link.run(&first, stdout, stdin.unwrap(), on_notice).await
                }
            });
            until("READY", || ready.get()).await;
            until("the socket", || socket(&user, "gpg").exists()).await;
            let listed = async || user.run("gpg", &["--list-keys", "alice"]).await.status.success();
            until_async("the keys are imported", listed).await;
            std::fs::write(user.file("text"), "text").unwrap();
            let text = user.file("text").display().to_string();
            let signed = user.run("gpg", &["--batch", "--detach-sign", &text]).await;
            assert!(signed.status.success(), "{signed:?}");
            let verified = host.gpg(&["--verify", &format!("{text}.sig"), &text]).await;
            assert!(verified.status.success(), "{verified:?}");
            running.abort();
            assert!(child.wait().await.unwrap().success());
            assert!(!socket(&user, "gpg").exists() && !user.file(".gnupg/gpg.conf").exists());
        }
    });
}

#[test]
fn late_keys_without_gnupg_are_an_error_and_ssh_goes_on() {
    run(async {
        let user = User::new();
        std::fs::write(user.file(".gnupg"), "a file").unwrap();
        let asked = sockets(&user, &["gpg", "ssh"]);
        let mut run = Run::start(user, &asked);
        run.step("helper 00000005 05 00000000").await;
        run.step("host 00000005 04 00000000").await;
        let mut head = [0; 9];
        run.stdout.read_exact(&mut head).await.unwrap();
        assert_eq!(&head[4..], [6, 0, 0, 0, 0]);
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) - 5;
        let mut text = vec![0; usize::try_from(length).unwrap()];
        run.stdout.read_exact(&mut text).await.unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(".gnupg is not a folder"), "{text}");
        run.step("dial ssh A").await;
        run.step("helper 0000000e 02 00000001 \"ssh-agent\"").await;
        run.step("eof").await;
        run.step("exit 0").await;
    });
}

/// A user who isn't root.
const DEV: u32 = 4711;

#[test]
fn root_leaves_nothing_of_its_own_in_the_home_of_the_user_whom_the_sockets_are_for() {
    run(async {
        let user = User::new();
        user.give_home_to(DEV);
        let asked = sockets(&user, &["gpg", "ssh"]);
        let mut run = Run::start(user, &asked);
        run.step("host 00000005 04 00000000").await;
        run.step("helper 00000005 05 00000000").await;
        for path in ["", ".gnupg", ".gnupg/S.gpg-agent", ".gnupg/gpg.conf", ".ssh/agent.sock"] {
            let metadata = std::fs::symlink_metadata(run.user.file(path)).unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (DEV, DEV), "{path}");
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", run.child.id().unwrap()));
        let status = status.unwrap();
        let ids = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.split_whitespace().map(|id| id.parse().unwrap()).collect::<Vec<u32>>()
        };
        assert_eq!((ids("Uid:"), ids("Gid:")), (vec![DEV; 4], vec![DEV; 4]), "root for good");
        assert_eq!(ids("Groups:"), Vec::<u32>::new());
        run.step("dial ssh A").await;
        run.step("helper 0000000e 02 00000001 \"ssh-agent\"").await;
        run.step("eof").await;
        run.step("exit 0").await;
        assert!(run.user.content().is_empty());
    });
}

#[test]
fn root_follows_no_link_of_a_user_to_the_folder_of_another() {
    run(async {
        let user = User::new();
        user.give_home_to(DEV);
        let precious = user.elsewhere("precious");
        let inner = precious.join("inner");
        std::fs::create_dir_all(&inner).unwrap();
        for owner in [0, DEV + 1] {
            for folder in [&precious, &inner] {
                std::os::unix::fs::chown(folder, Some(owner), Some(owner)).unwrap();
            }
            let way = user.file("way");
            let _ = std::fs::remove_file(&way);
            std::os::unix::fs::symlink(&precious, &way).unwrap();
            std::os::unix::fs::lchown(&way, Some(DEV), Some(DEV)).unwrap();
            for socket in ["way/agent.sock", "way/.ssh/agent.sock", "way/inner/agent.sock"] {
                let path = user.file(socket);
                let asked = format!(r#"[{{"path": "{}", "type": "ssh-agent"}}]"#, path.display());
                let mut child = helper_of(&user, &asked).spawn().unwrap();
                let mut stdout = child.stdout.take().unwrap();
                let message = last_error(&mut child, &mut stdout).await;
                assert!(message.contains("/way"), "{message}");
                assert_eq!(std::fs::read_dir(&precious).unwrap().count(), 1);
                assert_eq!(std::fs::read_dir(&inner).unwrap().count(), 0);
            }
        }
    });
}

#[test]
fn sockets_of_two_users_are_an_error_that_names_both() {
    run(async {
        let user = User::new();
        user.give_home_to(DEV);
        std::fs::create_dir(user.file(".gnupg")).unwrap();
        let asked = sockets(&user, &["gpg", "ssh"]);
        let mut run = Run::start(user, &asked);
        let message = error(&mut run).await;
        let expected = format!("the sockets' folders belong to uid 0 and uid {DEV}");
        assert!(message.starts_with(&expected), "{message}");
    });
}

/// The text of the ERROR that a helper ends with.
async fn error(run: &mut Run) -> String {
    last_error(&mut run.child, &mut run.stdout).await
}

async fn last_error(child: &mut Child, stdout: &mut ChildStdout) -> String {
    let mut said = Vec::new();
    timeout(PATIENCE, stdout.read_to_end(&mut said)).await.unwrap().unwrap();
    assert_eq!(child.wait().await.unwrap().code(), Some(1));
    assert_eq!(&said[4..9], [6, 0, 0, 0, 0]);
    let length = u32::from_be_bytes([said[0], said[1], said[2], said[3]]);
    assert_eq!(usize::try_from(length).unwrap(), said.len() - 4);
    String::from_utf8(said[9..].to_vec()).unwrap()
}

#[test]
fn a_socket_that_cannot_be_had_is_an_error_and_nothing_is_left() {
    run(async {
        let user = User::new();
        user.make_folder();
        std::fs::write(user.socket(), "precious").unwrap();
        let asked = sockets(&user, &["gpg", "ssh"]);
        let mut run = Run::start(user, &asked);
        run.step("host 00000005 04 00000000").await;
        let message = error(&mut run).await;
        let socket = run.user.socket();
        let expected = format!("{} is not a socket; move it away", socket.display());
        assert!(message.starts_with(&expected), "{message}");
        let precious = (socket, Some(b"precious".to_vec()));
        assert_eq!(run.user.content(), [(run.user.file(".ssh"), None), precious]);
    });
}

#[test]
fn signals_end_it_and_undo_everything() {
    run(async {
        for signal in ["TERM", "INT", "HUP"] {
            let user = User::new();
            let asked = sockets(&user, &["ssh"]);
            let mut run = Run::start(user, &asked);
            run.step("helper 00000005 05 00000000").await;
            let pid = run.child.id().unwrap().to_string();
            let sent = run.user.run("kill", &["-s", signal, &pid]).await;
            assert!(sent.status.success());
            run.step("exit 0").await;
            assert!(run.user.content().is_empty(), "{signal}");
        }
    });
}
