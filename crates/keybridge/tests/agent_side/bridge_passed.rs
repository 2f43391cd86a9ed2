//! Clients whose connections the helper passes, and helpers that pass something else.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::agent_home::{Home, gnupg, local, without_keys};
use crate::bridge_helper::{Pair, idle, pair_at};
use keybridge::agent::AgentDialer;
use keybridge::bridge::{Bridge, DirectConnection, LinkPath, PassedClients, Settings};
use keybridge_lab::{command, short_folder};
use keybridge_link::{Notice, send_descriptors};
use keybridge_proto::Lane;
use keybridge_proto::direct::{DirectOffer, Proof};
use keybridge_proto::gate::AgentSocket;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, socketpair};
use tokio::io::AsyncReadExt;

/// A bridge whose helper may pass clients.
pub struct Passing {
    pub pair: Pair,
    /// Over which they are passed.
    pub to_host: OwnedFd,
    /// The helper's end of the direct path.
    link_end: OwnedFd,
}

impl Passing {
    pub async fn new(home: &Home, change: impl FnOnce(&mut Settings)) -> Self {
        Self::of_users(home, change, vec![rustix::process::getuid().as_raw()]).await
    }

    async fn of_users(home: &Home, change: impl FnOnce(&mut Settings), users: Vec<u32>) -> Self {
        // Without keys, so that no gpg is started meanwhile: until it runs, a new process has a copy of each
        // descriptor, and waits if it closes the last one.
        let dialer = AgentDialer::find(gnupg(home), AgentSocket::Extra).await.unwrap();
        let mut pair = pair_at(without_keys(dialer), change).await;
        let (mut host, helper) = tokio::net::UnixStream::pair().unwrap();
        let link_end = helper.as_fd().try_clone_to_owned().unwrap();
        let (clients, to_host) = PassedClients::new(users).unwrap();
        pair.bridge.go_direct(async move |_, _| {
            // The helper says that it is ready.
            host.read_exact(&mut [0]).await.unwrap();
            Ok(DirectConnection { socket: host, clients: Some(clients), callers: None })
        });
        while !matches!(pair.helper.notices.recv().await.unwrap(), Notice::Direct(_)) {}
        pair.helper.link.may_go_direct(helper, None).unwrap();
        let offer = DirectOffer { helper: Proof::new([1; 16]), socket: b"/S".to_vec() };
        let offer = offer.encode().unwrap();
        pair.helper.link.with_mux(|mux| mux.direct(&offer)).unwrap();
        let passing = Self { pair, to_host, link_end };
        passing.is(LinkPath::Passed).await;
        passing
    }

    pub fn bridge(&self) -> &Bridge {
        &self.pair.bridge
    }

    /// Waits until the bridge takes this path.
    async fn is(&self, path: LinkPath) {
        while self.bridge().path() != path {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        assert_eq!(send_descriptors(&self.to_host, bytes, descriptors).unwrap(), bytes.len());
    }

    /// Nothing is passed any more, no session has begun, and the link goes on.
    pub async fn is_over_without_harm(&self, sessions: u64) {
        self.is(LinkPath::Direct).await;
        assert_eq!(self.bridge().stats().gpg.total, sessions);
        let client = self.pair.helper.client();
        assert!(client.line().await.unwrap().starts_with("OK "));
        assert_eq!(client.ask("NOP").await, ["OK"]);
    }
}

/// A real client, in a process of its own, that sends what it is given and shows what comes.
fn connect(socket: &Path) -> Child {
    let mut client = command("gpg-connect-agent");
    client.arg("--raw-socket").arg(socket).stdin(Stdio::piped()).stdout(Stdio::piped());
    client.spawn().unwrap()
}

/// A client and the helper's end of its connection.
pub fn client(folder: &Path) -> (Child, UnixStream) {
    let path = folder.join("S");
    let listener = UnixListener::bind(&path).unwrap();
    let client = connect(&path);
    let (socket, _) = listener.accept().unwrap();
    std::fs::remove_file(path).unwrap();
    (client, socket)
}

/// Sends a client commands; returns what was answered until its end.
async fn ask(client: Child, commands: &'static str) -> String {
    let asking = tokio::task::spawn_blocking(move || {
        let mut client = client;
        // A client that was refused may have ended already; what it was told says so.
        let _ = client.stdin.take().unwrap().write_all(commands.as_bytes());
        let mut shown = String::new();
        client.stdout.take().unwrap().read_to_string(&mut shown).unwrap();
        client.wait().unwrap();
        shown
    });
    asking.await.unwrap()
}

#[test]
fn a_client_that_is_passed_is_served_and_counted() {
    let (home, folder) = (Home::with_key("passed@test"), short_folder("kb"));
    local(async {
        let passing = Passing::new(&home, |_| {}).await;
        let (client, socket) = client(folder.path());
        passing.send(b"g", &[socket.as_fd()]);
        // The helper keeps a duplicate, and has reads and writes wait.
        socket.set_nonblocking(false).unwrap();
        let shown = ask(client, "NOP\nGETINFO restricted\nKILLAGENT\n/bye\n").await;
        assert_eq!(shown, "OK\nOK\nERR 67109115 Forbidden <GPG Agent>\n");
        idle(passing.bridge()).await;
        let stats = passing.bridge().stats()[Lane::Gpg];
        assert_eq!((stats.open, stats.total), (0, 1));
        assert!(stats.bytes_in > 30 && stats.bytes_out > 40, "{stats:?}");
        // The connection is ended, though the helper holds it.
        assert_eq!((&socket).read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(passing.bridge().path(), LinkPath::Passed);
    });
}

#[test]
fn a_client_that_is_gone_or_was_served_is_no_session() {
    let (home, folder) = (Home::new(), short_folder("kb"));
    local(async {
        let passing = Passing::new(&home, |_| {}).await;
        let (mut gone, socket) = client(folder.path());
        gone.kill().unwrap();
        gone.wait().unwrap();
        passing.send(b"g", &[socket.as_fd()]);
        let (served, socket) = client(folder.path());
        passing.send(b"g", &[socket.as_fd()]);
        ask(served, "/bye\n").await;
        idle(passing.bridge()).await;
        passing.send(b"g", &[socket.as_fd()]);
        let (next, socket) = client(folder.path());
        passing.send(b"g", &[socket.as_fd()]);
        assert_eq!(ask(next, "NOP\n/bye\n").await, "OK\n");
        assert_eq!(passing.bridge().stats().gpg.total, 2);
    });
}

#[test]
fn past_the_cap_a_passed_client_is_told_so() {
    let (home, folder) = (Home::new(), short_folder("kb"));
    local(async {
        let passing = Passing::new(&home, |settings| settings.max_sessions = 1).await;
        let (mut first, socket) = client(folder.path());
        passing.send(b"g", &[socket.as_fd()]);
        let (second, socket) = client(folder.path());
        passing.send(b"g", &[socket.as_fd()]);
        assert_eq!(ask(second, "NOP\n").await, "");
        assert_eq!(passing.bridge().stats().gpg.open, 1);
        first.kill().unwrap();
        first.wait().unwrap();
        idle(passing.bridge()).await;
    });
}

#[test]
fn the_end_of_the_bridge_is_the_end_of_a_passed_client() {
    let (home, folder) = (Home::new(), short_folder("kb"));
    local(async {
        let passing = Passing::new(&home, |_| {}).await;
        let (client, socket) = client(folder.path());
        passing.send(b"g", &[socket.as_fd()]);
        while passing.bridge().stats().gpg.bytes_out == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(passing);
        ask(client, "").await;
        assert_eq!((&socket).read(&mut [0; 8]).unwrap(), 0);
    });
}

#[test]
fn what_is_no_connection_of_a_client_ends_the_passing() {
    let home = Home::new();
    let (tcp, datagram) =
        (TcpListener::bind("127.0.0.1:0").unwrap(), UnixDatagram::pair().unwrap());
    let folder = short_folder("kb");
    let listener = UnixListener::bind(folder.path().join("S")).unwrap();
    let stream = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let (unix, none) = (AddressFamily::UNIX, SocketFlags::empty());
    let packets = socketpair(unix, SocketType::SEQPACKET, none, None).unwrap();
    let unconnected = socket_with(unix, SocketType::STREAM, none, None).unwrap();
    let mine = UnixStream::pair().unwrap();
    let bad: Vec<OwnedFd> = vec![
        File::open("/etc/passwd").unwrap().into(),
        File::open("/").unwrap().into(),
        listener.into(),
        tcp.into(),
        stream.into(),
        datagram.0.into(),
        packets.0,
        unconnected,
        // Its other end is in the host's process.
        mine.0.into(),
    ];
    for bad in bad {
        local(async {
            let passing = Passing::new(&home, |_| {}).await;
            passing.send(b"g", &[bad.as_fd()]);
            passing.is_over_without_harm(0).await;
        });
    }
}

#[test]
fn the_ends_of_the_link_are_no_clients() {
    let home = Home::new();
    local(async {
        let passing = Passing::new(&home, |_| {}).await;
        passing.send(b"g", &[passing.link_end.as_fd()]);
        passing.is_over_without_harm(0).await;
        let passing = Passing::new(&home, |_| {}).await;
        passing.send(b"g", &[passing.to_host.as_fd()]);
        passing.is_over_without_harm(0).await;
    });
}

#[test]
fn a_message_of_another_form_ends_the_passing_and_all_of_it_is_closed() {
    let (home, folder) = (Home::new(), short_folder("kb"));
    local(async {
        let (first, second) = (client(folder.path()), client(folder.path()));
        let (mut end, pipe) = std::io::pipe().unwrap();
        let many = [pipe.as_fd(); 8];
        let no_descriptors: &[BorrowedFd<'_>] = &[];
        let both = [first.1.as_fd(), second.1.as_fd()];
        for (bytes, descriptors) in
            [(&b"g"[..], no_descriptors), (b"g", &both), (b"x", &both[..1]), (b"g", &many)]
        {
            let passing = Passing::new(&home, |_| {}).await;
            passing.send(bytes, descriptors);
            passing.is_over_without_harm(0).await;
        }
        // The first byte has a client, the second one none.
        let passing = Passing::new(&home, |_| {}).await;
        passing.send(b"gg", &both[..1]);
        passing.is(LinkPath::Direct).await;
        for (mut client, _) in [first, second] {
            client.kill().unwrap();
            client.wait().unwrap();
        }
        idle(passing.bridge()).await;
        passing.is_over_without_harm(1).await;
        drop(pipe);
        assert_eq!(end.read(&mut [0; 8]).unwrap(), 0, "the host holds none of them");
    });
}

#[test]
fn a_connection_is_served_once() {
    let (home, folder) = (Home::new(), short_folder("kb"));
    local(async {
        let passing = Passing::new(&home, |_| {}).await;
        let (client, socket) = client(folder.path());
        passing.send(b"g", &[socket.as_fd()]);
        passing.send(b"g", &[socket.as_fd()]);
        passing.is(LinkPath::Direct).await;
        // The first session goes on.
        assert_eq!(ask(client, "NOP\n/bye\n").await, "OK\n");
        idle(passing.bridge()).await;
        passing.is_over_without_harm(1).await;
    });
}

#[test]
fn a_client_of_another_user_is_no_session() {
    let (home, folder) = (Home::new(), short_folder("kb"));
    local(async {
        let passing = Passing::of_users(&home, |_| {}, vec![4711]).await;
        let (client, socket) = client(folder.path());
        passing.send(b"g", &[socket.as_fd()]);
        drop(socket);
        assert_eq!(ask(client, "").await, "");
        assert_eq!(passing.bridge().stats().gpg.total, 0);
        assert_eq!(passing.bridge().path(), LinkPath::Passed);
    });
}

#[test]
fn a_burst_of_thousands_leaves_nothing_behind() {
    const CLIENTS: usize = 10_000;
    let (home, folder) = (Home::new(), short_folder("kb"));
    local(async {
        let passing = Passing::new(&home, |settings| settings.max_sessions = 20).await;
        let honest = passing.pair.helper.client();
        assert!(honest.line().await.unwrap().starts_with("OK "));
        let path = folder.path().join("S");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let script = "for (1..$ARGV[1]) { IO::Socket::UNIX->new(Peer => $ARGV[0]) or die $! }";
        let mut flood = command("perl");
        flood.args(["-MIO::Socket::UNIX", "-e", script]).arg(&path).arg(CLIENTS.to_string());
        let mut flood = flood.spawn().unwrap();
        for _ in 0..CLIENTS {
            let (socket, _) = listener.accept().await.unwrap();
            // As fast as they are taken.
            while send_descriptors(&passing.to_host, b"g", &[socket.as_fd()]).is_err() {
                tokio::task::yield_now().await;
            }
        }
        assert!(flood.wait().unwrap().success());
        assert_eq!(honest.ask("NOP").await, ["OK"]);
        drop(honest);
        idle(passing.bridge()).await;
        let (client, socket) = client(short_folder("kb").path());
        passing.send(b"g", &[socket.as_fd()]);
        assert_eq!(ask(client, "NOP\n/bye\n").await, "OK\n");
    });
}
