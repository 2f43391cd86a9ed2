//! Finding and dialling a real gpg-agent, behind each kind of socket.

use std::collections::VecDeque;
use std::future::pending;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use crate::agent_home::{Home, gnupg, local};
use keybridge::ErrorKind;
use keybridge::agent::{AgentDialer, AgentStream};
use keybridge::gnupg::Gnupg;
use keybridge_lab::version_answer;
use keybridge_link::{Duplex, pump};
use keybridge_proto::gate::{AgentSocket, KeyGrip, LentKeys, Policy, Rights, Use};
use keybridge_proto::session::{AgentSession, Limits};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinHandle;

/// Dials and asks, as the task of a session does; gives back all that the client gets.
async fn ask_bytes(
    dialer: &AgentDialer,
    socket: AgentSocket,
    lent: LentKeys,
    commands: &str,
) -> Vec<u8> {
    let policy = Policy { socket, ..Policy::default() };
    let mut session = AgentSession::new(policy, Arc::new(lent), Limits::default());
    session.connect_requested(Instant::now());
    let (stream, opening) = dialer.dial().await.unwrap();
    session.agent_connected(opening, Instant::now());
    let mut client = Asking { commands: commands.as_bytes().to_vec().into(), got: Vec::new() };
    pump(&mut client, &mut session, Some(stream), pending(), Duration::ZERO).await;
    client.got
}

/// A client that sends some commands and the end, and takes every answer.
struct Asking {
    commands: VecDeque<u8>,
    got: Vec<u8>,
}

impl Duplex for Asking {
    fn poll_ready(&mut self, _: Option<Interest>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.commands.read(buffer)
    }

    fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.got.extend_from_slice(bytes);
        Ok(bytes.len())
    }
}

async fn ask(dialer: &AgentDialer, socket: AgentSocket, commands: &str) -> String {
    let lent = LentKeys::default();
    String::from_utf8(ask_bytes(dialer, socket, lent, commands).await).unwrap()
}

async fn works(dialer: &AgentDialer) {
    let answer = ask(dialer, AgentSocket::Extra, "GETINFO version\nBYE\n").await;
    assert!(answer.starts_with("OK Pleased to meet you"), "{answer}");
    let end = format!("\n{}OK closing connection\n", version_answer());
    assert!(answer.ends_with(&end), "{answer}");
}

/// Signs through a dialer, as gpg does.
async fn signs(dialer: &AgentDialer, grip: &str) {
    let hash = "AB".repeat(32);
    let commands = format!("SIGKEY {grip}\nSETHASH 8 {hash}\nPKSIGN\n");
    let rights = Rights { sign: Use::OpenPgp, ..Rights::default() };
    let lent = [(KeyGrip::parse(grip.as_bytes()).unwrap(), rights)].into_iter().collect();
    let answer = ask_bytes(dialer, AgentSocket::Extra, lent, &commands).await;
    assert!(answer.windows(7).any(|part| part == b"sig-val"), "{} bytes", answer.len());
}

/// How a TCP relay opens a connection.
#[derive(Clone, Copy)]
enum Handshake {
    Native,
    Cygwin,
}

/// A relay in front of an agent's Unix socket, as an agent on Windows listens.
struct Relay {
    port: u16,
    task: JoinHandle<()>,
}

impl Relay {
    async fn start(agent: PathBuf, handshake: Handshake, nonce: [u8; 16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::task::spawn_local(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::task::spawn_local(relay(stream, agent.clone(), handshake, nonce));
            }
        });
        Self { port, task }
    }

    /// The socket file that leads to it.
    fn write_file(&self, path: &Path, handshake: Handshake, nonce: [u8; 16]) {
        let file = match handshake {
            Handshake::Native => [format!("{}\n", self.port).as_bytes(), &nonce].concat(),
            Handshake::Cygwin => {
                let words: Vec<String> = nonce
                    .chunks(4)
                    .map(|word| format!("{:08X}", u32::from_ne_bytes(word.try_into().unwrap())))
                    .collect();
                format!("!<socket >{} s {}\0", self.port, words.join("-")).into_bytes()
            }
        };
        std::fs::write(path, file).unwrap();
    }
}

async fn relay(mut client: TcpStream, agent: PathBuf, handshake: Handshake, nonce: [u8; 16]) {
    let mut shown = [0; 16];
    if client.read_exact(&mut shown).await.is_err() || shown != nonce {
        return;
    }
    match handshake {
        Handshake::Native => {}
        Handshake::Cygwin => {
            // In two parts, as a stream may bring them.
            for part in nonce.chunks(5) {
                client.write_all(part).await.unwrap();
                client.flush().await.unwrap();
            }
            let mut credentials = [0; 8];
            client.read_exact(&mut credentials).await.unwrap();
            assert_eq!(credentials[..4], std::process::id().to_ne_bytes());
            client.write_all(&[1, 2, 3, 4, 5, 6, 7, 8]).await.unwrap();
        }
    }
    let mut agent = UnixStream::connect(agent).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut agent).await;
}

#[test]
fn an_agent_that_is_not_running_is_found_and_started() {
    let home = Home::new();
    local(async {
        let dialer = AgentDialer::find(gnupg(&home), AgentSocket::Extra).await.unwrap();
        assert_eq!(dialer.path(), home.dirs("agent-extra-socket"));
        works(&dialer).await;
        // It goes away, and is started again by the next dial.
        home.end_agents();
        works(&dialer).await;
        let pid = home.agent_pid();
        home.kill_agent(pid);
        // All who wait start it once.
        let dial = || async { dialer.dial().await.unwrap() };
        let (a, b, c) = tokio::join!(dial(), dial(), dial());
        assert!(matches!((&a.0, &b.0, &c.0), (AgentStream::Local(_), AgentStream::Local(_), _)));
        works(&dialer).await;
    });
}

#[test]
fn the_main_socket_is_taken_only_by_name_and_is_not_taken_for_the_extra_one() {
    let home = Home::new();
    local(async {
        let dialer = AgentDialer::find(gnupg(&home), AgentSocket::Main).await.unwrap();
        assert_eq!(dialer.path(), home.dirs("agent-socket"));
        let refused = ask(&dialer, AgentSocket::Extra, "GETINFO version\n").await;
        assert_eq!(refused, "ERR 67109115 Forbidden <GPG Agent>\n");
        let answer = ask(&dialer, AgentSocket::Main, "GETINFO version\nKILLAGENT\n").await;
        assert!(
            answer
                .ends_with(&format!("\n{}ERR 67109115 Forbidden <GPG Agent>\n", version_answer())),
            "{answer}"
        );
    });
}

#[test]
fn a_redirect_file_is_followed_and_read_again() {
    let home = Home::new();
    home.launch_agent();
    local(async {
        let file = home.file("redirect");
        let dialer = AgentDialer::at(&file);
        let write = |socket: &Path| {
            std::fs::write(&file, format!("%Assuan%\nsocket={}\n", socket.display())).unwrap();
        };
        write(&home.file("nothing"));
        assert!(dialer.dial().await.unwrap_err().is_absence());
        write(&home.dirs("agent-extra-socket"));
        works(&dialer).await;
    });
}

#[test]
fn tcp_sockets_are_opened_with_their_nonces_and_found_again_after_a_restart() {
    let home = Home::with_key("tcp@test");
    let grip = home.keygrip_of("tcp@test");
    home.launch_agent();
    local(async {
        for handshake in [Handshake::Native, Handshake::Cygwin] {
            let file = home.file("socket-file");
            let dialer = AgentDialer::at(&file);
            for nonce in [
                *b"\n\r\0\n\n\n\r\r\0\0\xff\xfe012\n",
                *b"0123456789abcdef",
                *b"\0\0\0\0\n\n\n\n\r\r\r\r%%%%",
            ] {
                // Each time another port and another nonce.
                let relay = Relay::start(home.dirs("agent-extra-socket"), handshake, nonce).await;
                relay.write_file(&file, handshake, nonce);
                works(&dialer).await;
                signs(&dialer, &grip).await;
                let (stream, _) = dialer.dial().await.unwrap();
                let AgentStream::Tcp(stream) = stream else { panic!("{stream:?}") };
                assert!(stream.nodelay().unwrap());
                drop(stream);
                // A wrong nonce is answered by nothing but the end.
                relay.write_file(&file, handshake, *b"ffffffffffffffff");
                let answer = ask(&dialer, AgentSocket::Extra, "NOP\n").await;
                assert_eq!(answer, "ERR 67108941 No agent running <GPG Agent>\n");
                relay.task.abort();
                let _ = relay.task.await;
                relay_is_gone(&dialer).await;
            }
        }
    });
}

/// Waits until nobody listens: a program that another test starts just now holds the port for a
/// moment.
async fn relay_is_gone(dialer: &AgentDialer) {
    loop {
        match dialer.dial().await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => return assert!(error.is_absence(), "{error}"),
        }
    }
}

#[test]
fn a_relay_with_a_main_socket_behind_it_is_refused() {
    let home = Home::new();
    home.launch_agent();
    local(async {
        let (file, nonce) = (home.file("socket-file"), [10; 16]);
        let relay = Relay::start(home.dirs("agent-socket"), Handshake::Native, nonce).await;
        relay.write_file(&file, Handshake::Native, nonce);
        let answer = ask(&AgentDialer::at(&file), AgentSocket::Extra, "NOP\n").await;
        assert_eq!(answer, "ERR 67109115 Forbidden <GPG Agent>\n");
    });
}

#[test]
fn what_is_no_socket_is_told_without_its_content() {
    let home = Home::new();
    local(async {
        let file = home.file("file");
        let dialer = AgentDialer::at(&file);
        for content in [&b""[..], b"MARKMARKMARK", b"80\nMARK", b"!<socket >MARK", b"%MARK"] {
            std::fs::write(&file, content).unwrap();
            let error = dialer.dial().await.unwrap_err();
            assert!(!error.is_absence() && !error.to_string().contains("MARK"), "{error}");
            assert!(error.to_string().contains("file"), "{error}");
        }
        std::fs::write(&file, vec![b'1'; 1 << 20]).unwrap();
        let error = dialer.dial().await.unwrap_err();
        assert!(error.to_string().contains("at most 511 bytes"), "{error}");
        // A pipe that nobody writes to is not waited for.
        std::fs::remove_file(&file).unwrap();
        home.ok("mkfifo", &[file.to_str().unwrap()]);
        assert!(dialer.dial().await.unwrap_err().to_string().contains("got something else"));
    });
}

#[test]
fn a_host_without_gnupg_is_told_what_to_do() {
    local(async {
        let gnupg = Gnupg { gpgconf: "/nonexistent/gpgconf".into(), ..Gnupg::new(None) };
        let error = AgentDialer::find(gnupg, AgentSocket::Extra).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::ProgramMissing);
        assert!(!error.hints.is_empty());
        // A home that doesn't exist.
        let gnupg = Gnupg::new(Some("/nonexistent/home".into()));
        let error = AgentDialer::find(gnupg, AgentSocket::Extra).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoAgent, "{error:?}");
        assert!(error.message.contains("/nonexistent/home"), "{error:?}");
    });
}

#[test]
fn a_full_queue_is_waited_for() {
    let home = Home::new();
    local(async {
        let path = home.file("queue");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let dialer = AgentDialer::at(&path);
        let _first = dialer.dial().await.unwrap();
        let mut second = std::pin::pin!(dialer.dial());
        let soon = tokio::time::timeout(Duration::from_millis(20), &mut second).await;
        assert!(soon.is_err(), "the queue has room");
        listener.accept().unwrap();
        second.await.unwrap();
    });
}
