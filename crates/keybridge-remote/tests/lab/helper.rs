//! The real helper, and the host's end of its link.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::rc::Rc;

use keybridge_link::{Link, LinkEnd, Notice, Stream, await_start};
use keybridge_proto::Lane;
use keybridge_proto::git::{Answer, Request, frame_size};
use keybridge_proto::mux::{self, Config, Cookie, End, Version};
use keybridge_proto::report::{Failure, KeysHeader, ProbeResult, Ready, Report};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::sync::{Notify, mpsc};
use tokio::task::{JoinHandle, spawn_local};

const COOKIE: [u8; 16] = [7; 16];

/// News of the helper.
#[derive(Debug)]
pub enum News {
    Ready(Ready),
    Answers(Vec<ProbeResult>),
    Failed(Failure),
    Ended(LinkEnd),
}

/// The helper and the host's end of its link.
pub struct Helper {
    pub child: Child,
    pub link: Link,
    news: mpsc::UnboundedReceiver<News>,
    log: Rc<RefCell<String>>,
    git_requests: Rc<RefCell<Vec<Request>>>,
    running: JoinHandle<()>,
    silence: Rc<Notify>,
}

/// How a helper is started.
pub struct Setup {
    command: Command,
    agent: PathBuf,
    ssh_agent: PathBuf,
    git_answer: Option<Answer>,
    reads_log: bool,
}

impl Setup {
    /// A helper for this home whose streams lead to the socket of an agent.
    pub fn new(home: &Path, agent: &Path) -> Self {
        Self::of(Command::new(super::program()), home, agent)
    }

    /// The same as another user.
    pub fn as_uid(uid: u32, program: &Path, home: &Path, agent: &Path) -> Self {
        let mut command = Command::from(keybridge_lab::command("setpriv"));
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
        let (agent, ssh_agent) = (gpg.to_owned(), ssh.to_owned());
        Self { command, agent, ssh_agent, git_answer: None, reads_log: true }
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

    /// What the host says to each request of git. Without it, it says nothing.
    pub fn answering(mut self, answer: Answer) -> Self {
        self.git_answer = Some(answer);
        self
    }

    /// GnuPG's sockets are in this home, also where there is a `/run/user`. `folder` is for a script.
    pub fn with_sockets_in(self, home: &Path, folder: &Path) -> Self {
        let gpgconf = keybridge_lab::program("gpgconf");
        let script = format!(
            "#!/bin/sh\n{} \"$@\" | sed 's|^agent-socket:.*|agent-socket:{}/S.gpg-agent|'\n",
            gpgconf.display(),
            home.display()
        );
        keybridge_lab::write_program(&folder.join("gpgconf"), script);
        let path = std::env::var("PATH").unwrap();
        self.env("PATH", Some(format!("{}:{path}", folder.display()).as_ref()))
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
        let git_requests = Rc::default();
        let running = spawn_local({
            let (link, gpg, ssh) = (link.clone(), self.agent, self.ssh_agent);
            let (answer, requests) = (self.git_answer, Rc::clone(&git_requests));
            let silence = Rc::clone(&silence);
            async move {
                let run = link.run(&first, stdout, stdin, |notice| match notice {
                    Notice::Opened(stream, lane) => {
                        match lane {
                            Lane::Gpg => spawn_local(relay(stream, gpg.clone())),
                            Lane::Ssh => spawn_local(relay(stream, ssh.clone())),
                            Lane::Git => {
                                let (answer, requests) = (answer.clone(), Rc::clone(&requests));
                                spawn_local(answer_git(stream, answer, requests))
                            }
                        };
                    }
                    Notice::Ready(payload) => {
                        let news = match Report::decode(&payload).unwrap() {
                            Report::Ready(ready) => News::Ready(ready),
                            Report::Answers(answers) => News::Answers(answers),
                        };
                        let _ = sender.send(news);
                    }
                    Notice::Error(payload) => {
                        let _ = sender.send(News::Failed(Failure::decode(&payload)));
                    }
                    Notice::Hello(_) | Notice::KeysEnd | Notice::Stop => {}
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
        Helper { child, link, news, log, git_requests, running, silence }
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

    /// What git has wanted to be signed.
    pub fn git_requests(&self) -> Vec<Request> {
        self.git_requests.borrow().clone()
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

    pub async fn answers(&mut self) -> Vec<ProbeResult> {
        match self.news().await {
            News::Answers(answers) => answers,
            other => panic!("{other:?}; {}", self.log()),
        }
    }

    /// Sends a series of keys.
    pub async fn send_keys(&self, ownertrust: &[u8], export: &[u8]) {
        let head = KeysHeader { ownertrust: u32::try_from(ownertrust.len()).unwrap() }.encode();
        self.send_raw_keys(&[&head, ownertrust, export].concat()).await;
    }

    pub async fn send_raw_keys(&self, bytes: &[u8]) {
        assert!(self.link.keys().write_all(bytes).await);
        self.link.with_mux(mux::Endpoint::end_keys).unwrap();
    }

    /// Says STOP and waits for the end.
    pub async fn stop(mut self) -> ExitStatus {
        self.link.with_mux(mux::Endpoint::stop).unwrap();
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

    pub fn signal(&self, with: Signal) {
        keybridge_lab::signal(self.pid().cast_unsigned(), with);
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

/// Answers a request of git, if there is an answer, and waits for the end.
async fn answer_git(stream: Stream, answer: Option<Answer>, requests: Rc<RefCell<Vec<Request>>>) {
    let mut frame = Vec::new();
    while frame_size(&frame).unwrap().is_none_or(|size| size > frame.len()) {
        if stream.is_closed() {
            return;
        }
        stream.changed().await;
        stream.read(|piece| {
            frame.extend_from_slice(piece);
            piece.len()
        });
    }
    requests.borrow_mut().push(Request::decode(&frame).unwrap());
    if let Some(answer) = answer {
        stream.write_all(&answer.encode().unwrap()).await;
        stream.finish();
    }
    while !stream.is_closed() {
        stream.changed().await;
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
