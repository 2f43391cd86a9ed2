//! Clients that were passed and try to hold up the host: floods, connections that are joined, descriptors
//! whose closing waits.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::agent_home::{Home, local};
use crate::bridge_helper::idle;
use crate::bridge_passed::{Passing, client};
use keybridge::agent::{SshDialer, SshPlaces};
use keybridge::bridge::LinkPath;
use keybridge_lab::{command, short_folder, text};
use keybridge_link::{receive_descriptors, send_descriptors};
use keybridge_proto::Lane;
use keybridge_proto::direct::passed_as;
use keybridge_proto::ssh::KeySelection;
use rustix::net::sockopt::set_socket_linger;

/// Longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(40);

/// Far less than that, also on a busy machine.
const SHORT: Duration = Duration::from_secs(20);

/// A part of a hostile target, in a process of its own, and the helper's end of its connection.
fn hostile(role: &str, folder: &Path) -> (Child, UnixStream) {
    let path = folder.join("S");
    let listener = UnixListener::bind(&path).unwrap();
    let mut child = command(std::env::current_exe().unwrap());
    child.args(["--exact", "bridge_passed_hostile::inside_the_target", "--ignored"]);
    child.env("KEYBRIDGE_TEST_ROLE", role).env("KEYBRIDGE_TEST_SOCKET", &path);
    let child = child.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let (socket, _) = listener.accept().unwrap();
    std::fs::remove_file(path).unwrap();
    (child, socket)
}

#[test]
#[ignore = "part of other tests"]
fn inside_the_target() {
    let path = std::env::var_os("KEYBRIDGE_TEST_SOCKET").unwrap();
    let mut socket = UnixStream::connect(path).unwrap();
    let lingering;
    match std::env::var("KEYBRIDGE_TEST_ROLE").unwrap().as_str() {
        "flood" => {
            let (comments, end) = (b"#\n".repeat(32 * 1024), Instant::now() + SHORT);
            socket.set_write_timeout(Some(SHORT)).unwrap();
            let ended = loop {
                if let Err(error) = socket.write_all(&comments) {
                    break error.kind();
                }
                assert!(Instant::now() < end, "the host reads on");
            };
            assert_ne!(ended, ErrorKind::WouldBlock);
            return;
        }
        "joined" => {
            let (first, second) = UnixStream::pair().unwrap();
            send_descriptors(&socket, b"2", &[first.as_fd(), second.as_fd()]).unwrap();
        }
        "descriptor" => {
            lingering = Lingering::new();
            send_descriptors(&socket, b"#\n", &[lingering.socket.as_fd()]).unwrap();
            drop(lingering.socket);
        }
        other => panic!("{other}"),
    }
    // To be ended by the test.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Runs a part of a test in a process of its own: one that another test starts meanwhile would have copies
/// of its descriptors for a moment, and wait if it closes the last one.
fn alone(part: &str) {
    let mut process = command(std::env::current_exe().unwrap());
    process.args(["--exact", &format!("bridge_passed_hostile::{part}"), "--ignored"]);
    let ended = process.output().unwrap();
    let said = text(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}{}", text(&ended.stderr));
}

/// A socket whose closing waits for its peer.
struct Lingering {
    socket: TcpStream,
    _peer: TcpStream,
}

impl Lingering {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        socket.set_nonblocking(true).unwrap();
        while socket.write(&[0; 4096]).is_ok() {}
        set_socket_linger(&socket, Some(LONG)).unwrap();
        Self { socket, _peer: peer }
    }
}

#[test]
fn a_client_that_floods_holds_up_neither_others_nor_the_end() {
    let (home, folder) = (Home::new(), short_folder("kb"));
    local(async {
        let passing = Passing::new(&home, |_| {}).await;
        let honest = passing.pair.helper.client();
        assert!(honest.line().await.unwrap().starts_with("OK "));
        let (mut flood, socket) = hostile("flood", folder.path());
        let start = Instant::now();
        passing.send(b"g", &[socket.as_fd()]);
        drop(socket);
        while passing.bridge().stats().gpg.bytes_in < 1 << 20 {
            tokio::task::yield_now().await;
        }
        assert_eq!(honest.ask("NOP").await, ["OK"]);
        assert!(start.elapsed() < SHORT / 2, "{:?}", start.elapsed());
        drop((honest, passing));
        let ended = tokio::task::spawn_blocking(move || flood.wait().unwrap()).await.unwrap();
        assert!(ended.success(), "the session outlived its bridge");
    });
}

#[test]
fn clients_that_are_not_served_count_for_the_rate() {
    const PASSED: u32 = 2000;
    let (home, folder) = (Home::new(), short_folder("kb"));
    local(async {
        let passing = Passing::new(&home, |_| {}).await;
        let (mut gone, socket) = client(folder.path());
        gone.kill().unwrap();
        gone.wait().unwrap();
        let start = Instant::now();
        for _ in 0..PASSED {
            while send_descriptors(&passing.to_host, b"g", &[socket.as_fd()]).is_err() {
                tokio::task::yield_now().await;
            }
        }
        // All but a burst and what is in the socket.
        assert!(start.elapsed() > Duration::from_millis(500), "{:?}", start.elapsed());
        assert_eq!(passing.bridge().path(), LinkPath::Passed);
    });
}

#[test]
fn two_clients_that_are_joined_do_not_keep_each_other_busy() {
    let (home, folder) = (Home::new(), short_folder("kb"));
    local(async {
        let lanes = Lane::ALL.to_vec();
        let passing = Passing::new(&home, |settings| settings.lanes = lanes).await;
        // The clients of the ssh lane get a request first, which is refused.
        for (lane, first) in [(Lane::Gpg, &b""[..]), (Lane::Ssh, &[0, 0, 0, 1, 99])] {
            let (mut target, socket) = hostile("joined", folder.path());
            let mut joined = Vec::new();
            while joined.is_empty() {
                let _ = receive_descriptors(&socket, &mut [0], &mut joined);
                tokio::task::yield_now().await;
            }
            rustix::io::write(&joined[0], first).unwrap();
            for end in &joined {
                passing.send(&[passed_as(lane)], &[end.as_fd()]);
            }
            drop(joined);
            while passing.bridge().stats()[lane].total == 0 {
                tokio::task::yield_now().await;
            }
            let ended = tokio::time::timeout(SHORT, idle(passing.bridge())).await;
            target.kill().unwrap();
            target.wait().unwrap();
            assert!(ended.is_ok(), "{:?}", passing.bridge().stats());
        }
    });
}

#[test]
fn descriptors_of_a_client_are_not_waited_for() {
    alone("descriptors_of_a_client");
}

#[test]
#[ignore = "part of another test"]
fn descriptors_of_a_client() {
    let (home, folder) = (Home::new(), short_folder("kb"));
    // They are read with what the client sends, or unread when it is refused.
    for max_sessions in [10, 1] {
        local(async {
            let passing =
                Passing::new(&home, |settings| settings.max_sessions = max_sessions).await;
            let honest = passing.pair.helper.client();
            assert!(honest.line().await.unwrap().starts_with("OK "));
            let (mut target, socket) = hostile("descriptor", folder.path());
            while rustix::io::ioctl_fionread(&socket).unwrap() == 0 {
                tokio::task::yield_now().await;
            }
            let start = Instant::now();
            passing.send(b"g", &[socket.as_fd()]);
            while !has_hung_up(&socket) {
                tokio::task::yield_now().await;
            }
            // The helper may wait, but the host runs on this thread.
            std::thread::spawn(move || drop(socket));
            assert_eq!(honest.ask("NOP").await, ["OK"]);
            assert!(start.elapsed() < SHORT, "{:?}", start.elapsed());
            assert_eq!(passing.bridge().path(), LinkPath::Passed);
            target.kill().unwrap();
            target.wait().unwrap();
        });
    }
}

/// Whether the host has ended a connection.
fn has_hung_up(socket: &UnixStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    poll(&mut polled, Some(&Timespec::default())).unwrap();
    polled[0].revents().contains(PollFlags::HUP)
}

#[test]
fn descriptors_of_a_helper_are_not_waited_for() {
    alone("descriptors_of_a_helper");
}

#[test]
#[ignore = "part of another test"]
fn descriptors_of_a_helper() {
    let home = Home::new();
    let (_end, pipe) = std::io::pipe().unwrap();
    // The last of many, or one that isn't received.
    for in_one_message in [true, false] {
        local(async {
            let passing = Passing::new(&home, |_| {}).await;
            let Lingering { socket, _peer } = Lingering::new();
            let start = Instant::now();
            if in_one_message {
                let mut many: Vec<BorrowedFd<'_>> = vec![pipe.as_fd(); 100];
                many.push(socket.as_fd());
                passing.send(b"g", &many);
            } else {
                passing.send(b"g", &[]);
                passing.send(b"g", &[socket.as_fd()]);
            }
            drop(socket);
            passing.is_over_without_harm(0).await;
            assert!(start.elapsed() < SHORT, "{:?}", start.elapsed());
        });
    }
}

#[test]
fn a_client_is_ended_with_the_bridge_while_an_agent_lists_its_keys() {
    let (home, folder) = (Home::new(), short_folder("kb"));
    let path = folder.path().join("agent");
    // It accepts, and answers nothing.
    let agent = UnixListener::bind(&path).unwrap();
    local(async {
        let places = SshPlaces { setting: Some(path.clone()), ..SshPlaces::new(None) };
        let passing = Passing::new(&home, |settings| {
            settings.lanes = Lane::ALL.to_vec();
            settings.policy.ssh_keys = KeySelection::of_words(["home"]).unwrap();
            settings.ssh = Some(SshDialer::new(places));
        })
        .await;
        let (mut client, socket) = client(folder.path());
        passing.send(b"s", &[socket.as_fd()]);
        let accepting = tokio::task::spawn_blocking(move || agent.accept().unwrap().0);
        let mut asked = accepting.await.unwrap();
        let asking = tokio::task::spawn_blocking(move || {
            asked.read_exact(&mut [0; 5]).unwrap();
            asked
        });
        let asked = asking.await.unwrap();
        drop(passing);
        let ended = async {
            while !has_hung_up(&socket) {
                tokio::task::yield_now().await;
            }
        };
        let ended = tokio::time::timeout(SHORT, ended).await;
        client.kill().unwrap();
        client.wait().unwrap();
        drop(asked);
        assert!(ended.is_ok(), "the session outlived its bridge");
    });
}
