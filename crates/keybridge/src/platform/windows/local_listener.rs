//! A named pipe of this program's own, at which other processes of it ask something. A file names the pipe:
//! it is where a socket would be, in a private folder, and so nobody else can give us a pipe of theirs.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::windows::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keybridge_link::LocalStream;
use tokio::net::windows::named_pipe::NamedPipeServer;

use super::files::pipe_path;
use super::system_calls::create_private_pipe;

/// What the names of our pipes begin with.
const PREFIX: &str = "keybridge-";

/// How long such a file is: the prefix and 16 bytes in hexadecimal.
const MAX_SIZE: u64 = 64;

/// A client that left before it was accepted.
const NO_DATA: i32 = 232;

/// All instances of the pipe have a client.
const PIPE_BUSY: i32 = 231;

/// Listens at a pipe that a file names.
#[derive(Debug)]
pub(crate) struct LocalListener {
    pipe: PathBuf,
    /// The instance that the next client gets. There is always one, so that the name stays ours.
    next: NamedPipeServer,
}

/// Who has connected: the pipe lets nobody else in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(dead_code, reason = "as on other systems")]
pub(crate) enum PeerUser {
    /// This user.
    Own,
    Root,
    Other,
}

impl LocalListener {
    /// Listens at a path where nothing is, for this user alone.
    pub(crate) fn bind(path: &Path) -> io::Result<Self> {
        let random: [u8; 16] = keybridge_link::random()?;
        let name = format!("{PREFIX}{:032x}", u128::from_be_bytes(random));
        let pipe = pipe_path(&name);
        let next = create_private_pipe(&pipe, true)?;
        let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
        file.write_all(name.as_bytes())?;
        Ok(Self { pipe, next })
    }

    /// Waits for a client. Safe to cancel.
    pub(crate) async fn accept(&mut self) -> io::Result<(LocalStream, PeerUser)> {
        loop {
            match self.next.connect().await {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(NO_DATA) => {
                    self.next.disconnect()?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let next = create_private_pipe(&self.pipe, false)?;
            let stream = LocalStream::Server(std::mem::replace(&mut self.next, next));
            return Ok((stream, PeerUser::Own));
        }
    }
}

/// Connects to the listener at a path.
pub(crate) async fn connect_to_listener(path: &Path) -> io::Result<LocalStream> {
    LocalStream::connect(pipe_at(path)?).await
}

/// The same, for a program that waits for the answer.
pub(crate) fn ask_listener(path: &Path) -> io::Result<impl Read + Write> {
    /// The server learns who we are, and can't act as us.
    const SECURITY_IDENTIFICATION: u32 = 0x0001_0000;
    const PAUSE_WHILE_BUSY: Duration = Duration::from_millis(5);
    let pipe = pipe_at(path)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).security_qos_flags(SECURITY_IDENTIFICATION);
    loop {
        match options.open(&pipe) {
            Err(error) if error.raw_os_error() == Some(PIPE_BUSY) => {
                std::thread::sleep(PAUSE_WHILE_BUSY);
            }
            Ok(file) => return Ok(AnswerReader(file)),
            Err(error) => return Err(error),
        }
    }
}

/// A pipe whose end is the end of a file, and not an error.
struct AnswerReader(fs::File);

impl Read for AnswerReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
            result => result,
        }
    }
}

impl Write for AnswerReader {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// The pipe that a file names.
fn pipe_at(path: &Path) -> io::Result<PathBuf> {
    let mut name = String::new();
    fs::File::open(path)?.take(MAX_SIZE).read_to_string(&mut name)?;
    let is_ours = name
        .strip_prefix(PREFIX)
        .is_some_and(|rest| rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if is_ours {
        return Ok(pipe_path(&name));
    }
    // Also when it is still being written.
    Err(io::Error::new(io::ErrorKind::NotFound, "the file names no pipe of keybridge's"))
}

#[cfg(test)]
mod tests {
    use super::super::files::local_socket_exists;
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn clients_are_served_one_after_the_other_at_the_pipe_that_the_file_names() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        let missing = connect_to_listener(&path).await.unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        let mut listener = LocalListener::bind(&path).unwrap();
        assert!(local_socket_exists(&pipe_at(&path).unwrap()));
        for text in ["one", "two"] {
            let client = async {
                let mut stream = connect_to_listener(&path).await.unwrap();
                stream.write_all(text.as_bytes()).await.unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).await.unwrap();
                answer
            };
            let server = async {
                let (mut stream, peer) = listener.accept().await.unwrap();
                assert_eq!(peer, PeerUser::Own);
                let mut asked = [0; 3];
                stream.read_exact(&mut asked).await.unwrap();
                stream.write_all(&asked).await.unwrap();
            };
            let (answer, ()) = tokio::join!(client, server);
            assert_eq!(answer, text);
        }
        let pipe = pipe_at(&path).unwrap();
        drop(listener);
        assert!(!local_socket_exists(&pipe));
        // The file stays, and shows that the listener was killed.
        assert!(path.exists());
        let gone = connect_to_listener(&path).await.unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    }

    #[tokio::test]
    async fn a_file_that_names_another_pipe_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        for name in ["", "keybridge-", r"keybridge-..\x", "openssh-ssh-agent", &"a".repeat(100)] {
            fs::write(&path, name).unwrap();
            let error = connect_to_listener(&path).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}");
        }
    }
}
