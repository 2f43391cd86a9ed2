//! The side of the person: listens for questions, and asks them at the terminal.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use keybridge_link::LocalStream;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::task::JoinHandle;

use super::terminal::{Answer, Terminal};
use super::{ANSWERED, LIMIT, QUESTION_END, lock_of};
use crate::output::SideBySide;
use crate::platform::{
    LocalListener, PeerUser, parent_of_private_folders, private_temporary_folder,
};
use crate::{Error, ErrorKind, Result};

/// Asks a person at the terminal of this process, for as long as it lives.
#[derive(Debug)]
pub(crate) struct Asker {
    folder: TempDir,
    terminal: Rc<Terminal>,
    task: JoinHandle<()>,
}

impl Asker {
    /// Listens for questions; nothing if this process has no terminal. What is drawn there meanwhile makes
    /// room for them.
    pub(crate) fn open(beside: Option<SideBySide>) -> Result<Option<Self>> {
        let Some(terminal) = Terminal::open() else { return Ok(None) };
        let failed = |error: io::Error| {
            Error::from_source(ErrorKind::Failed, error).context("listening for questions of ssh")
        };
        let folder = private_temporary_folder("keybridge-ask-", &parent_of_private_folders());
        let folder = folder.map_err(failed)?;
        let socket = socket_in(folder.path());
        File::create(lock_of(&socket)).map_err(failed)?;
        let listener = LocalListener::bind(&socket).map_err(failed)?;
        let terminal = Rc::new(terminal);
        let task = tokio::task::spawn_local(listen(listener, Rc::clone(&terminal), beside));
        Ok(Some(Self { folder, terminal, task }))
    }

    /// Where it listens.
    pub(crate) fn socket(&self) -> PathBuf {
        socket_in(self.folder.path())
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.task.abort();
        // A question whose ssh has ended may still be open.
        self.terminal.restore();
    }
}

fn socket_in(folder: &Path) -> PathBuf {
    folder.join("ask")
}

async fn listen(mut listener: LocalListener, terminal: Rc<Terminal>, beside: Option<SideBySide>) {
    // One question at a time: there is one terminal.
    while let Ok((stream, peer)) = listener.accept().await {
        if peer == PeerUser::Own {
            let _withdrawn = beside.as_ref().map(SideBySide::withdraw);
            // One that has gone meanwhile needs no answer.
            let _ = answer(stream, &terminal).await;
        }
    }
}

async fn answer(mut stream: LocalStream, terminal: &Rc<Terminal>) -> io::Result<()> {
    let mut asked = Vec::new();
    BufReader::new((&mut stream).take(LIMIT)).read_until(QUESTION_END, &mut asked).await?;
    if asked.last() == Some(&QUESTION_END) {
        asked.pop();
    }
    let asked = String::from_utf8_lossy(&asked).into_owned();
    let (kind, question) = asked.split_once('\n').unwrap_or(("", &asked));
    let answer = match kind {
        // Only a word to the person, who has to touch a token, say.
        "none" => {
            terminal.say(question);
            Some(Answer::default())
        }
        "confirm" => {
            let answer = terminal.ask(format!("{question} (yes/no) "), true).await;
            answer.filter(|answer| answer.is_yes()).map(|_| Answer::default())
        }
        // The question about an unknown host key says so itself; everything else may be secret.
        _ => terminal.ask(question.to_owned(), question.contains("(yes/no")).await,
    };
    if let Some(answer) = answer {
        stream.write_all(&[ANSWERED]).await?;
        stream.write_all(answer.as_bytes()).await?;
    }
    stream.shutdown().await
}
