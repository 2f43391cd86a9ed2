//! The control socket of a window's bridge: `keybridge status` and `down --all` find it there, and so
//! do the other windows of its remote.

use std::rc::Rc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use super::window::Window;
use crate::Result;
use crate::supervisor::control::{self, Answer, Question};
use crate::supervisor::serve::{is_ours, listen};
use crate::supervisor::state::StateFolder;

/// What those who asked for the end may take to read that it has come.
const FAREWELL_TIME: Duration = Duration::from_secs(2);

/// Answers questions until the window's bridge is over.
pub(super) struct Control(JoinHandle<()>);

impl Control {
    pub(super) fn listen(folder: &StateFolder, window: &Rc<Window>) -> Result<Self> {
        let listener = listen(folder)?;
        Ok(Self(tokio::task::spawn_local(serve(listener, Rc::clone(window)))))
    }

    /// Waits until everybody is answered.
    pub(super) async fn finish(mut self) {
        if tokio::time::timeout(FAREWELL_TIME, &mut self.0).await.is_err() {
            self.0.abort();
        }
    }
}

async fn serve(listener: UnixListener, window: Rc<Window>) {
    let mut asked = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) if is_ours(&stream) => {
                    asked.spawn_local(answer(stream, Rc::clone(&window)));
                }
                Ok(_) => tracing::warn!("another user tried the control socket"),
                Err(error) => {
                    tracing::error!(%error, "the control socket");
                    break;
                }
            },
            Some(_) = asked.join_next() => {}
            _ = window.ended() => break,
        }
    }
    drop(listener);
    while asked.join_next().await.is_some() {}
}

async fn answer(mut stream: UnixStream, window: Rc<Window>) {
    let answering = async {
        let Some(question) = control::receive(&mut stream).await? else { return Ok(()) };
        let answer = match question {
            Question::Status | Question::Wait => Answer::Status(window.status()),
            Question::Sync => window.sync(None).await.map_or_else(Answer::Failed, |changes| {
                let number = |name: &str| {
                    changes.get(name).and_then(|value| value.as_u64()?.try_into().ok()).unwrap_or(0)
                };
                Answer::Synced {
                    new: number("new"),
                    updated: number("updated"),
                    unchanged: number("unchanged"),
                }
            }),
            Question::Stop => {
                window.ask_stop();
                window.ended().await
            }
        };
        control::send(&mut stream, &answer).await
    };
    if let Err(error) = answering.await {
        let _: std::io::Error = error;
        tracing::debug!(%error, "a question on the control socket");
    }
}
