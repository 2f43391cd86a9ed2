//! Agents that do what a real one can't be made to do.

use std::future::Future;
use std::path::PathBuf;
use std::rc::Rc;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, spawn_local};

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
