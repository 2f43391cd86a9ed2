//! The helper's end of a bridge, in the same process as the bridge.

use std::cell::RefCell;
use std::path::Path;

use crate::agent_home::{Home, agent, without_keys};
use keybridge::Result;
use keybridge::agent::{AgentDialer, GpgAgent};
use keybridge::bridge::{Bridge, Settings};
use keybridge::keys::PublicKeys;
use keybridge::ssh_agent::SshDialer;
use keybridge_lab::until;
use keybridge_link::{Link, Notice, Stream};
use keybridge_proto::mux::{Config, Cookie, End, Version};
use keybridge_proto::report::{KeyChanges, Ready, Report, User};
use keybridge_proto::ssh;
use keybridge_proto::{Lane, PerLane};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

pub fn cookie() -> Cookie {
    Cookie::new(*b"0123456789abcdef")
}

/// The helper's end of a link, with what it was told.
pub struct Helper {
    pub link: Link,
    pub notices: mpsc::UnboundedReceiver<Notice>,
    pub task: tokio::task::JoinHandle<()>,
}

pub type Io = (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>);

pub fn pipes() -> (Io, Io) {
    let (host, helper) = tokio::io::duplex(64 * 1024);
    (tokio::io::split(host), tokio::io::split(helper))
}

impl Helper {
    /// Writes a banner and the start line, and runs the link. What a series of keys holds is read
    /// and reported with READY.
    pub async fn start((reader, mut writer): Io) -> Self {
        writer.write_all(b"Welcome!\n").await.unwrap();
        writer.write_all(&cookie().start_line()).await.unwrap();
        let mut config = Config::new(End::Helper, Version::Two, &Lane::ALL);
        config.max_streams = 10_000;
        let link = Link::new(config).unwrap();
        let (sender, notices) = mpsc::unbounded_channel();
        let task = tokio::task::spawn_local({
            let link = link.clone();
            async move {
                link.run(&[], reader, writer, |notice| {
                    let _ = sender.send(notice);
                })
                .await;
            }
        });
        Self { link, notices, task }
    }

    /// Reads a series of keys, and reports.
    pub async fn take_keys(&mut self) -> Vec<u8> {
        let stream = self.link.keys();
        let mut keys = Vec::new();
        loop {
            let ended = tokio::select! {
                notice = self.notices.recv() => match notice.unwrap() {
                    Notice::KeysEnd => true,
                    Notice::Hello(_) => false,
                    other => panic!("{other:?}"),
                },
                () = stream.changed() => false,
            };
            stream.read(|bytes| {
                keys.extend_from_slice(bytes);
                bytes.len()
            });
            if ended {
                self.link.with_mux(keybridge_proto::mux::Endpoint::keys_done);
                return keys;
            }
        }
    }

    pub fn ready(&self, keys: KeyChanges) {
        self.ready_with(&Lane::ALL, keys);
    }

    /// The same, for a target that has these lanes.
    pub fn ready_with(&self, lanes: &[Lane], keys: KeyChanges) {
        let socket = |lane| lanes.contains(&lane).then(|| format!("/run/S.{lane}-agent"));
        let ready = Ready {
            user: Some(User { name: Some("dev\u{1b}[31m".into()), uid: 7 }),
            sockets: PerLane::from_fn(socket),
            keys: Some(keys),
            ..Ready::default()
        };
        // As a helper sends it that bounds nothing.
        let report = serde_json::to_vec(&Report::Ready(ready)).unwrap();
        self.link.with_mux(|mux| mux.ready(&report)).unwrap();
    }

    pub fn client(&self) -> Client {
        self.client_of(Lane::Gpg)
    }

    pub fn client_of(&self, lane: Lane) -> Client {
        Client { stream: self.link.open(lane).unwrap(), came: RefCell::default() }
    }

    /// Listens as the helper does for clients of the ssh lane: bytes in, bytes out.
    pub fn listen_ssh(&self, path: &Path) {
        let listener = UnixListener::bind(path).unwrap();
        let link = self.link.clone();
        tokio::task::spawn_local(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::task::spawn_local(relay(socket, link.open(Lane::Ssh).unwrap()));
            }
        });
    }
}

/// Moves bytes between a client's socket and its stream until either ends.
async fn relay(socket: UnixStream, stream: Stream) {
    let (mut reader, mut writer) = socket.into_split();
    let mut buffer = [0; 4096];
    loop {
        let mut came = Vec::new();
        stream.read(|bytes| {
            came.extend_from_slice(bytes);
            bytes.len()
        });
        if !came.is_empty() && writer.write_all(&came).await.is_err() {
            return;
        }
        if stream.is_finished() || stream.is_closed() {
            return;
        }
        tokio::select! {
            read = reader.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(count) => assert!(stream.write_all(&buffer[..count]).await),
            },
            () = stream.changed() => {}
        }
    }
}

/// A client in the target.
pub struct Client {
    pub stream: Stream,
    pub came: RefCell<Vec<u8>>,
}

impl Client {
    /// The next line, or nothing if the stream is at its end.
    pub async fn line(&self) -> Option<String> {
        loop {
            self.stream.read(|bytes| {
                self.came.borrow_mut().extend_from_slice(bytes);
                bytes.len()
            });
            if let Some(line) = self.take_line() {
                return Some(line);
            }
            if self.stream.is_finished() || self.stream.is_closed() {
                return None;
            }
            self.stream.changed().await;
        }
    }

    pub fn take_line(&self) -> Option<String> {
        let mut came = self.came.borrow_mut();
        let end = came.iter().position(|&byte| byte == b'\n')?;
        let line: Vec<u8> = came.drain(..=end).collect();
        Some(String::from_utf8(line).unwrap().trim_end().to_owned())
    }

    /// The next frame of the ssh lane, or nothing if the stream is at its end.
    pub async fn frame(&self) -> Option<Vec<u8>> {
        loop {
            self.stream.read(|bytes| {
                self.came.borrow_mut().extend_from_slice(bytes);
                bytes.len()
            });
            if let Some(frame) = self.take_frame() {
                return Some(frame);
            }
            if self.stream.is_finished() || self.stream.is_closed() {
                return None;
            }
            self.stream.changed().await;
        }
    }

    pub fn take_frame(&self) -> Option<Vec<u8>> {
        let mut came = self.came.borrow_mut();
        let (_, size) = ssh::Frame::parse(&came).unwrap()?;
        Some(came.drain(..size).collect())
    }

    /// Sends a request of the ssh lane and waits for its answer.
    pub async fn request(&self, frame: &[u8]) -> Option<Vec<u8>> {
        assert!(self.stream.write_all(frame).await);
        self.frame().await
    }

    pub async fn ask(&self, command: &str) -> Vec<String> {
        assert!(self.stream.write_all(format!("{command}\n").as_bytes()).await);
        let mut lines = Vec::new();
        while let Some(line) = self.line().await {
            let is_last = ["OK", "ERR", "INQUIRE"].iter().any(|word| line.starts_with(word));
            lines.push(line);
            if is_last {
                break;
            }
        }
        lines
    }
}

pub struct Pair {
    pub bridge: Bridge,
    pub helper: Helper,
}

pub async fn pair(home: &Home, change: impl FnOnce(&mut Settings)) -> Pair {
    pair_at(agent(home).await, change).await
}

pub async fn pair_at(agent: GpgAgent, change: impl FnOnce(&mut Settings)) -> Pair {
    let ((reader, writer), theirs) = pipes();
    let mut settings = Settings::new("test");
    change(&mut settings);
    let cookie = cookie();
    let keys = PublicKeys::default();
    let starting = Bridge::start(reader, writer, &cookie, settings, agent, &keys);
    let helping = async {
        let mut helper = Helper::start(theirs).await;
        assert_eq!(helper.take_keys().await, b"{\"ownertrust\":0}\n");
        helper.ready(KeyChanges::default());
        helper
    };
    let (bridge, helper) = tokio::join!(starting, helping);
    Pair { bridge: bridge.unwrap(), helper }
}

/// A bridge with both lanes, where nobody listens at the gpg agent's socket.
pub async fn ssh_pair(ssh: SshDialer, change: impl FnOnce(&mut Settings)) -> Pair {
    let agent = without_keys(AgentDialer::at("/nonexistent/S.gpg-agent.extra"));
    pair_at(agent, |settings| {
        settings.lanes = Lane::ALL.to_vec();
        settings.ssh = Some(ssh);
        change(settings);
    })
    .await
}

pub async fn start_alone(io: Io) -> Result<Bridge> {
    let agent = without_keys(AgentDialer::at("/nonexistent/S.gpg-agent.extra"));
    Bridge::start(io.0, io.1, &cookie(), Settings::new("t"), agent, &PublicKeys::default()).await
}

/// Waits until the bridge carries nothing.
pub async fn idle(bridge: &Bridge) {
    let is_idle = || bridge.stats().gpg.open + bridge.stats().ssh.open == 0;
    until("the bridge carries nothing", is_idle).await;
}
