//! Agents in the task of a test, that do what a real one can't be made to do.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, spawn_local};

use crate::short_folder;

/// An agent that does what a test wants.
pub struct ScriptedAgent {
    path: PathBuf,
    listening: JoinHandle<()>,
    _folder: Option<TempDir>,
}

impl ScriptedAgent {
    /// Greets every client and answers each line; `None` is no answer at all.
    pub fn answering(answer: impl Fn(&str) -> Option<String> + 'static) -> Self {
        Self::serving(talk(answer))
    }

    /// The same at another name in the folder of a socket, whose place it can take then.
    pub fn answering_beside(
        socket: &Path,
        answer: impl Fn(&str) -> Option<String> + 'static,
    ) -> Self {
        Self::listen(socket.with_extension("beside"), None, talk(answer))
    }

    /// Serves every connection in a way of its own.
    pub fn serving<F: Future<Output = ()> + 'static>(
        serve: impl Fn(UnixStream) -> F + 'static,
    ) -> Self {
        let folder = short_folder("kba");
        Self::listen(folder.path().join("S"), Some(folder), serve)
    }

    fn listen<F: Future<Output = ()> + 'static>(
        path: PathBuf,
        folder: Option<TempDir>,
        serve: impl Fn(UnixStream) -> F + 'static,
    ) -> Self {
        let listener = UnixListener::bind(&path).unwrap();
        let listening = spawn_local(async move {
            while let Ok((socket, _)) = listener.accept().await {
                spawn_local(serve(socket));
            }
        });
        Self { path, listening, _folder: folder }
    }

    /// Where it listens.
    pub fn path(&self) -> PathBuf {
        self.path.clone()
    }
}

impl Drop for ScriptedAgent {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Greets a client and answers each line.
fn talk(
    answer: impl Fn(&str) -> Option<String> + 'static,
) -> impl Fn(UnixStream) -> Pin<Box<dyn Future<Output = ()>>> {
    let answer = Rc::new(answer);
    move |socket| {
        let answer = Rc::clone(&answer);
        Box::pin(async move {
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
        })
    }
}

/// An agent that says OK to everything.
pub fn agreeable() -> ScriptedAgent {
    ScriptedAgent::answering(|_| Some("OK\n".into()))
}
