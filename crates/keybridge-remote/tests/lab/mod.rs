//! A host in the test's own process, with the real helper at the other end of two pipes.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a panic is how a test fails"
)]

pub mod ssh;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::future::Future;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::rc::Rc;
use std::time::Duration;

use keybridge_link::{Link, LinkEnd, Notice, Stream, await_start};
use keybridge_proto::Lane;
use keybridge_proto::mux::{self, Config, Cookie, End, Version};
use keybridge_proto::report::{Failure, KeysHead, Ready};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, LocalSet, spawn_local};
use tokio::time::timeout;

/// A test that takes longer hangs.
const TEST_TIME: Duration = Duration::from_mins(1);

/// A client whose bridge is down has its error by then.
pub const AT_ONCE: Duration = Duration::from_secs(1);

const COOKIE: [u8; 16] = [7; 16];

/// Runs a test on one thread.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        timeout(TEST_TIME, test).await.expect("the test hangs");
    });
}

/// Waits until something holds; a test that waits for ever is ended by its own limit.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// A GnuPG home with a short path. Its agent ends with it.
pub struct Home(TempDir);

impl Home {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("kb").tempdir_in("/tmp").unwrap();
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        Self(folder)
    }

    /// A home with a key of this name that signs and decrypts.
    pub async fn with_key(name: &str) -> Self {
        let home = Self::new();
        let made = home
            .gpg(&["--batch", "--passphrase", "", "--quick-gen-key", name, "default", "default"])
            .await;
        assert!(made.status.success(), "{made:?}");
        home
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    pub fn socket(&self) -> PathBuf {
        self.file("S.gpg-agent")
    }

    pub fn extra_socket(&self) -> PathBuf {
        self.file("S.gpg-agent.extra")
    }

    pub fn has_socket(&self) -> bool {
        std::fs::symlink_metadata(self.socket()).is_ok_and(|file| file.file_type().is_socket())
    }

    pub async fn gpg(&self, arguments: &[&str]) -> Output {
        self.gpg_with_input(arguments, b"").await
    }

    pub async fn gpg_with_input(&self, arguments: &[&str], input: &[u8]) -> Output {
        self.run("gpg", arguments, input).await
    }

    pub async fn run(&self, program: &str, arguments: &[&str], input: &[u8]) -> Output {
        let mut child = Command::new(program)
            .args(arguments)
            .env("GNUPGHOME", self.path())
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let write = async {
            let _ = stdin.write_all(input).await;
            drop(stdin);
        };
        let ((), output) = tokio::join!(write, child.wait_with_output());
        output.unwrap()
    }

    /// Starts this home's own agent.
    pub async fn start_agent(&self) {
        let started = self.run("gpgconf", &["--launch", "gpg-agent"], b"").await;
        assert!(started.status.success(), "{started:?}");
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What a test has put at the path may never answer.
        let _ = std::process::Command::new("timeout")
            .args(["3", "gpgconf", "--kill", "gpg-agent"])
            .env("GNUPGHOME", self.path())
            .stderr(Stdio::null())
            .status();
    }
}

/// News of the helper.
#[derive(Debug)]
pub enum News {
    Ready(Ready),
    Failed(Failure),
    Ended(LinkEnd),
}

/// The helper and the host's end of its link.
pub struct Helper {
    pub child: Child,
    pub link: Link,
    news: mpsc::UnboundedReceiver<News>,
    log: Rc<RefCell<String>>,
    running: JoinHandle<()>,
    silence: Rc<Notify>,
}

/// How a helper is started.
pub struct Setup {
    command: Command,
    agent: PathBuf,
    ssh_agent: PathBuf,
    reads_log: bool,
}

impl Setup {
    /// A helper for this home whose streams lead to the socket of an agent.
    pub fn new(home: &Path, agent: &Path) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_keybridge-remote")), home, agent)
    }

    /// The same as another user.
    pub fn as_uid(uid: u32, program: &Path, home: &Path, agent: &Path) -> Self {
        let mut command = Command::new("setpriv");
        command
            .arg(format!("--reuid={uid}"))
            .arg(format!("--regid={uid}"))
            .arg("--clear-groups")
            .arg(program);
        Self::of(command, home, agent)
    }

    fn of(mut command: Command, home: &Path, agent: &Path) -> Self {
        command.env("GNUPGHOME", home);
        Self::with_lanes(command, "gpg", agent, Path::new("/nonexistent"))
    }

    /// A helper that a command starts, whose streams lead to these agents.
    pub fn with_lanes(mut command: Command, lanes: &str, gpg: &Path, ssh: &Path) -> Self {
        command
            .args(["serve", "--mux", "2", "--log", "trace", "--lanes", lanes, "--cookie"])
            .arg(Cookie::new(COOKIE).hex())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        Self { command, agent: gpg.to_owned(), ssh_agent: ssh.to_owned(), reads_log: true }
    }

    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Self {
        self.command.arg(argument);
        self
    }

    /// Has the helper stay for so long when its link is lost.
    pub fn outliving(self, seconds: u64) -> Self {
        self.arg(format!("--outlive={seconds}"))
    }

    /// Has the helper belong to a bridge.
    pub fn of_bridge(self, token: &str) -> Self {
        self.arg(format!("--bridge={token}"))
    }

    /// There is no program on its path.
    pub fn without_programs(self) -> Self {
        self.env("PATH", Some(OsStr::new("/nonexistent")))
    }

    /// Nobody reads the log, and nobody closes it.
    pub fn with_unread_log(mut self) -> Self {
        self.reads_log = false;
        self
    }

    pub fn env(mut self, name: &str, value: Option<&OsStr>) -> Self {
        match value {
            Some(value) => self.command.env(name, value),
            None => self.command.env_remove(name),
        };
        self
    }

    /// Starts it, sends no keys, and waits for READY.
    pub async fn ready(self) -> (Helper, Ready) {
        let mut helper = self.spawn().await;
        helper.send_keys(b"", b"").await;
        let ready = helper.ready().await;
        (helper, ready)
    }

    /// Starts it and waits for the error that it has to give.
    pub async fn failure(self) -> Failure {
        let mut helper = self.spawn().await;
        let failure = match helper.news().await {
            News::Failed(failure) => failure,
            other => panic!("{other:?}; {}", helper.log()),
        };
        assert_eq!(helper.child.wait().await.unwrap().code(), Some(1));
        failure
    }

    pub async fn spawn(mut self) -> Helper {
        let mut child = self.command.spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let mut stdout = child.stdout.take().unwrap();
        let log = Rc::new(RefCell::new(String::new()));
        if self.reads_log {
            spawn_local(collect(child.stderr.take().unwrap(), Rc::clone(&log)));
        }
        let first = await_start(&mut stdout, &Cookie::new(COOKIE)).await.unwrap();
        let link = Link::new(Config::new(End::Host, Version::Two, &Lane::ALL)).unwrap();
        let (sender, news) = mpsc::unbounded_channel();
        let silence = Rc::new(Notify::new());
        let running = spawn_local({
            let (link, gpg, ssh) = (link.clone(), self.agent, self.ssh_agent);
            let silence = Rc::clone(&silence);
            async move {
                let run = link.run(&first, stdout, stdin, |notice| match notice {
                    Notice::Opened(stream, lane) => {
                        let agent = match lane {
                            Lane::Gpg => gpg.clone(),
                            Lane::Ssh => ssh.clone(),
                        };
                        spawn_local(relay(stream, agent));
                    }
                    Notice::Ready(payload) => {
                        let _ = sender.send(News::Ready(Ready::decode(&payload)));
                    }
                    Notice::Error(payload) => {
                        let _ = sender.send(News::Failed(Failure::decode(&payload)));
                    }
                    Notice::Hello(_)
                    | Notice::KeysEnd
                    | Notice::Pong(_)
                    | Notice::Stop
                    | Notice::Direct(_) => {}
                });
                let mut run = std::pin::pin!(run);
                tokio::select! {
                    end = &mut run => {
                        let _ = sender.send(News::Ended(end));
                    }
                    () = silence.notified() => std::future::pending().await,
                }
            }
        });
        Helper { child, link, news, log, running, silence }
    }
}

impl Helper {
    pub fn log(&self) -> String {
        self.log.borrow().clone()
    }

    /// The log, to be read after the helper's end.
    pub fn log_handle(&self) -> Rc<RefCell<String>> {
        Rc::clone(&self.log)
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.child.id().unwrap()).unwrap()
    }

    pub async fn news(&mut self) -> News {
        self.news.recv().await.unwrap()
    }

    pub async fn ready(&mut self) -> Ready {
        match self.news().await {
            News::Ready(ready) => ready,
            other => panic!("{other:?}; {}", self.log()),
        }
    }

    /// Sends a series of keys.
    pub async fn send_keys(&self, ownertrust: &[u8], export: &[u8]) {
        let head = KeysHead { ownertrust: u32::try_from(ownertrust.len()).unwrap() }.encode();
        self.send_raw_keys(&[&head, ownertrust, export].concat()).await;
    }

    pub async fn send_raw_keys(&self, bytes: &[u8]) {
        assert!(self.link.keys().write_all(bytes).await);
        self.link.with_mux(mux::Link::end_keys).unwrap();
    }

    /// Says STOP and waits for the end.
    pub async fn stop(mut self) -> ExitStatus {
        self.link.with_mux(mux::Link::stop).unwrap();
        self.child.wait().await.unwrap()
    }

    /// Ends the link, and waits for the helper's end.
    pub async fn hang_up(mut self) -> ExitStatus {
        self.running.abort();
        self.child.wait().await.unwrap()
    }

    /// Ends the link alone.
    pub fn cut(&self) {
        self.running.abort();
    }

    /// The host neither reads nor writes any more, and nobody is told.
    pub fn silence(&self) {
        self.silence.notify_one();
    }

    pub async fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().await.unwrap();
        assert!(sent.success(), "{name}");
    }

    pub async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

async fn collect(mut stderr: tokio::process::ChildStderr, log: Rc<RefCell<String>>) {
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
        log.borrow_mut().push_str(&String::from_utf8_lossy(&buffer[..count]));
    }
}

/// Carries one stream to the agent's socket and back.
pub async fn relay(stream: Stream, agent: PathBuf) {
    let Ok(socket) = UnixStream::connect(agent).await else { return };
    let (mut reader, mut writer) = socket.into_split();
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let mut bytes = Vec::new();
        stream.read(|piece| {
            bytes.extend_from_slice(piece);
            piece.len()
        });
        if writer.write_all(&bytes).await.is_err() || stream.is_closed() {
            return;
        }
        tokio::select! {
            () = stream.changed() => {}
            read = reader.read(&mut buffer) => {
                let Ok(count @ 1..) = read else { break };
                if !stream.write_all(&buffer[..count]).await {
                    return;
                }
            }
        }
    }
    stream.finish();
    while !stream.is_closed() {
        stream.changed().await;
    }
}

/// A client that speaks Assuan line by line.
pub struct Client {
    reader: BufReader<tokio::net::unix::OwnedReadHalf>,
    pub writer: tokio::net::unix::OwnedWriteHalf,
}

impl Client {
    pub async fn connect(path: &Path) -> Self {
        let (reader, writer) = UnixStream::connect(path).await.unwrap().into_split();
        Self { reader: BufReader::new(reader), writer }
    }

    /// Connects and gives the whole of what it is told, which must come at once.
    pub async fn turned_away(path: &Path) -> String {
        let told = async {
            let mut client = Self::connect(path).await;
            let line = client.line().await;
            assert_eq!(client.line().await, "", "after {line}");
            line
        };
        timeout(AT_ONCE, told).await.expect("a client that is turned away waits")
    }

    /// Connects and takes the greeting.
    pub async fn greeted(path: &Path) -> Self {
        let mut client = Self::connect(path).await;
        let greeting = client.line().await;
        assert!(greeting.starts_with("OK"), "{greeting}");
        client
    }

    /// The next line; empty at the end.
    pub async fn line(&mut self) -> String {
        let mut line = Vec::new();
        // A reset after the last line is an end like any other.
        let _ = self.reader.read_until(b'\n', &mut line).await;
        String::from_utf8(line).unwrap()
    }

    pub async fn send(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).await.unwrap();
    }

    /// Sends a command and gives the lines up to OK, ERR or INQUIRE.
    pub async fn ask(&mut self, command: &str) -> Vec<String> {
        self.send(&format!("{command}\n")).await;
        let mut lines = Vec::new();
        loop {
            let line = self.line().await;
            let complete = ["OK", "ERR", "INQUIRE"].iter().any(|word| line.starts_with(word));
            let end = line.is_empty();
            lines.push(line);
            if complete || end {
                return lines;
            }
        }
    }
}

/// An agent that does what a test wants.
pub struct ScriptedAgent {
    folder: TempDir,
    listening: JoinHandle<()>,
}

impl ScriptedAgent {
    /// Greets every client and answers each line; `None` is no answer at all.
    pub fn answering(answer: impl Fn(&str) -> Option<String> + 'static) -> Self {
        let answer = Rc::new(answer);
        Self::serving(move |socket| {
            let answer = Rc::clone(&answer);
            async move {
                let (reader, mut writer) = socket.into_split();
                let mut lines = BufReader::new(reader).lines();
                writer.write_all(b"OK Pleased to meet you\n").await.unwrap();
                while let Ok(Some(line)) = lines.next_line().await {
                    if let Some(text) = answer(&line)
                        && writer.write_all(text.as_bytes()).await.is_err()
                    {
                        return;
                    }
                }
            }
        })
    }

    pub fn serving<F: Future<Output = ()> + 'static>(
        serve: impl Fn(UnixStream) -> F + 'static,
    ) -> Self {
        let folder = tempfile::Builder::new().prefix("kba").tempdir_in("/tmp").unwrap();
        let listener = UnixListener::bind(folder.path().join("S")).unwrap();
        let listening = spawn_local(async move {
            while let Ok((socket, _)) = listener.accept().await {
                spawn_local(serve(socket));
            }
        });
        Self { folder, listening }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("S")
    }
}

impl Drop for ScriptedAgent {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// An agent that says OK to everything.
pub fn agreeable() -> ScriptedAgent {
    ScriptedAgent::answering(|_| Some("OK\n".into()))
}
