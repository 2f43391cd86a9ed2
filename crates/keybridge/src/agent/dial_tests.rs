//! Socket files as they are on Windows, with a listener that takes the agent's part.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use keybridge_link::Duplex;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::dial::AgentDialer;
use crate::Error;
use crate::ssh_agent::open;

#[derive(Debug, Clone, Copy)]
enum Form {
    Native,
    Cygwin,
}

/// The path of a socket file that an agent writes at each of its starts.
struct SocketFile {
    _folder: TempDir,
    path: PathBuf,
}

impl SocketFile {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("S.gpg-agent.extra");
        Self { _folder: folder, path }
    }

    fn write(&self, form: Form, port: u16, nonce: [u8; 16]) {
        let content = match form {
            Form::Native => [format!("{port}\n").as_bytes(), &nonce].concat(),
            Form::Cygwin => {
                let (words, _) = nonce.as_chunks();
                let words = words.iter().map(|word| format!("{:08X}", u32::from_ne_bytes(*word)));
                let words = words.collect::<Vec<_>>().join("-");
                format!("!<socket >{port} s {words}\0").into_bytes()
            }
        };
        fs::write(&self.path, content).unwrap();
    }

    async fn dialled(&self) -> io::Result<Vec<u8>> {
        let dialled = AgentDialer::at(&self.path).dial().await.map_err(io::Error::other)?;
        let (mut stream, opening) = dialled;
        open(&mut stream, opening).await?;
        stream.receive_exact(2).await
    }

    /// Why dialling fails, as a person sees it.
    async fn failure(&self) -> String {
        let dialled = AgentDialer::at(&self.path).dial().await;
        let text = Error::from(dialled.unwrap_err()).to_string();
        assert!(text.contains(&self.path.display().to_string()), "{text}");
        text
    }
}

/// Takes the agent's part of a handshake, with the nonce that it was started with.
async fn answer(mut client: TcpStream, form: Form, nonce: [u8; 16]) {
    let mut came = [0; 16];
    client.read_exact(&mut came).await.unwrap();
    assert_eq!(came, nonce);
    if matches!(form, Form::Cygwin) {
        client.write_all(&nonce).await.unwrap();
        let mut identity = [0; 8];
        client.read_exact(&mut identity).await.unwrap();
        assert_eq!(identity[..4], std::process::id().to_ne_bytes());
        client.write_all(&identity).await.unwrap();
    }
    client.write_all(b"OK").await.unwrap();
}

async fn starts_of_an_agent(form: Form) {
    const STARTS: usize = 1000;
    let file = SocketFile::new();
    let mut values = [false; 256];
    for start in 0..STARTS {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let mut nonce: [u8; 16] = keybridge_link::random().unwrap();
        // Every value is among them, also at the beginning and at the end.
        let value = u8::try_from(start % 256).unwrap();
        match start / 256 {
            0 => nonce[0] = value,
            1 => nonce[15] = value,
            2 => nonce = [value; 16],
            _ => {}
        }
        for byte in nonce {
            values[usize::from(byte)] = true;
        }
        file.write(form, listener.local_addr().unwrap().port(), nonce);
        let agent = async {
            let (client, _) = listener.accept().await.unwrap();
            answer(client, form, nonce).await;
        };
        let (came, ()) = tokio::join!(file.dialled(), agent);
        assert_eq!(came.unwrap(), b"OK", "{start}: {nonce:?}");
    }
    assert_eq!(values, [true; 256]);
}

#[tokio::test]
async fn a_thousand_starts_of_an_agent_are_read_right() {
    starts_of_an_agent(Form::Native).await;
}

#[tokio::test]
async fn a_thousand_starts_of_an_agent_of_cygwin_are_read_right() {
    starts_of_an_agent(Form::Cygwin).await;
}

#[tokio::test]
async fn a_file_that_is_wrong_is_named_with_what_was_expected_and_never_its_nonce() {
    const NONCE: &[u8] = b"QZX~QZX~QZX~QZX~QZX";
    let file = SocketFile::new();
    for (start, nonce, expected) in [
        ("", 0, "an empty file"),
        ("4711\n", 15, "16"),
        ("4711\n", 17, "16"),
        ("0\n", 16, "65535"),
        ("70000\n", 16, "65535"),
        ("4711", 16, "port"),
        ("!<socket >4711 s ", 16, "a NUL at the end"),
        ("!<socket >4711 s QZX~QZX~-00000000-00000000-00000000\0", 0, "hexadecimal"),
        ("!<socket >70000 s 00000000-00000000-00000000-00000000\0", 0, "65535"),
    ] {
        fs::write(&file.path, [start.as_bytes(), &NONCE[..nonce]].concat()).unwrap();
        let text = file.failure().await;
        assert!(text.contains(expected), "{start:?} {nonce}: {text}");
        assert!(!text.contains("QZX"), "{text}");
    }
}

#[tokio::test]
async fn a_file_that_vanished_or_is_stale_means_that_no_agent_runs() {
    let file = SocketFile::new();
    let missing = AgentDialer::at(&file.path).dial().await.unwrap_err();
    assert!(missing.is_absence(), "{missing}");
    file.failure().await;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    for form in [Form::Native, Form::Cygwin] {
        file.write(form, port, *b"QZX~QZX~QZX~QZX~");
        let stale = AgentDialer::at(&file.path).dial().await.unwrap_err();
        assert!(stale.is_absence(), "{stale}");
        assert!(!file.failure().await.contains("QZX"));
    }
}

#[tokio::test]
async fn a_listener_of_cygwin_that_does_not_know_the_nonce_is_refused() {
    let file = SocketFile::new();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    file.write(Form::Cygwin, listener.local_addr().unwrap().port(), *b"QZX~QZX~QZX~QZX~");
    let other = async {
        let (mut client, _) = listener.accept().await.unwrap();
        client.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n").await.unwrap();
        let _ = client.read(&mut [0; 16]).await;
    };
    let (came, ()) = tokio::join!(file.dialled(), other);
    let text = came.unwrap_err().to_string();
    assert!(text.contains("nonce") && !text.contains("QZX"), "{text}");
}
