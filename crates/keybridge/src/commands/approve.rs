//! `keybridge approve [TARGET]`.

use std::future::pending;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use keybridge_proto::permission::PersonsWord;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::asking::{Console, Key};
use crate::config::Options;
use crate::output::terminal_size;
use crate::platform::{Signals, TerminalDevice, TerminalModes};
use crate::supervisor::BridgeManager;
use crate::supervisor::control::{QuestionNews, Questions, answer};
use crate::supervisor::state::StateFolder;
use crate::target::TargetAddress;
use crate::{Error, ErrorKind, Result};

/// Answer the questions of bridges at this terminal, until q: what the settings ask, and what was decided
#[derive(Debug, Args)]
pub(crate) struct Approve {
    /// Only the questions of this target
    target: Option<String>,
}

/// How often new bridges are looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long a question stands there before keys count: longer than a key takes that was meant for another one.
const SETTLING: Duration = Duration::from_millis(300);

/// How much news and how many keys wait at most.
const MOST_WAITING: usize = 64;

/// What has become of bridges and their questions.
#[derive(Debug)]
enum News {
    /// The questions of a bridge are asked here.
    Follows(TargetAddress, StateFolder),
    /// Of one that is followed.
    Question(TargetAddress, QuestionNews),
    /// A bridge isn't followed any more.
    Left(TargetAddress),
    /// Something doesn't work.
    Failed(Error),
}

impl Approve {
    pub(crate) async fn run(self) -> Result<()> {
        let mut keyboard = Keyboard::open()?;
        let manager = BridgeManager::new(Options::default())?;
        let only = match self.target.as_deref().map(str::parse::<TargetAddress>).transpose()? {
            Some(address) => Some(manager.folder(&address).await?),
            None => None,
        };
        let mut signals = Signals::new()?;
        let (tell, mut told) = mpsc::channel(MOST_WAITING);
        tokio::task::spawn_local(follow_all(manager, only, tell.clone()));
        keyboard.await_keys()?;
        keyboard.say("questions of your bridges are asked here; [q] quits\n");
        let mut followed: Vec<(TargetAddress, StateFolder)> = Vec::new();
        let mut console = Console::new(terminal_size().map_or(80, |(columns, _)| columns));
        let mut settled = Instant::now();
        loop {
            if let Some(text) = console.show() {
                keyboard.say(&text);
                settled = Instant::now() + SETTLING;
            }
            tokio::select! {
                () = signals.received() => return Ok(()),
                () = sleep_until(settled.into()), if console.is_settling() => {
                    keyboard.await_keys()?;
                    keyboard.say(&console.open());
                }
                Some(news) = told.recv() => {
                    if let News::Follows(target, folder) = &news {
                        followed.retain(|(one, _)| one != target);
                        followed.push((target.clone(), folder.clone()));
                    }
                    keyboard.say(&shown(&mut console, news));
                }
                key = keyboard.key() => {
                    let Some(key) = key else { return Ok(()) };
                    match console.key(key) {
                        Key::Nothing => {}
                        Key::Quit => return Ok(()),
                        Key::Show(text) => keyboard.say(&text),
                        Key::Answer { target, id, word } => {
                            let bridge = followed.iter().find(|(one, _)| *one == target);
                            if let Some((_, folder)) = bridge {
                                let send = send(folder.clone(), id, word, tell.clone());
                                tokio::task::spawn_local(send);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Sends an answer. The bridge tells what becomes of the question.
async fn send(folder: StateFolder, id: u64, word: PersonsWord, tell: mpsc::Sender<News>) {
    if let Err(error) = answer(&folder, id, word).await {
        let _ = tell.send(News::Failed(error)).await;
    }
}

/// What is shown of news.
fn shown(console: &mut Console, news: News) -> String {
    match news {
        News::Follows(target, _) => format!("{target} asks here\n"),
        News::Question(target, QuestionNews::Asked(asked)) => console.asked(target, *asked),
        News::Question(target, QuestionNews::Ended(id, how)) => console.ended(&target, id, &how),
        News::Left(target) => console.left(&target) + &format!("{target} asks here no more\n"),
        News::Failed(error) => format!("{error}\n"),
    }
}

/// Follows every bridge that is up, or one.
async fn follow_all(manager: BridgeManager, only: Option<StateFolder>, tell: mpsc::Sender<News>) {
    let mut tasks = JoinSet::new();
    let mut followed: Vec<StateFolder> = Vec::new();
    loop {
        let is_wanted = |folder: &StateFolder| only.as_ref().is_none_or(|only| only == folder);
        for folder in manager.alive().filter(is_wanted) {
            if !followed.contains(&folder) {
                followed.push(folder.clone());
                tasks.spawn_local(follow(folder, tell.clone()));
            }
        }
        let ended = async {
            match tasks.join_next().await {
                Some(ended) => ended.ok(),
                None => pending().await,
            }
        };
        tokio::select! {
            ended = ended => followed.retain(|folder| Some(folder) != ended.as_ref()),
            () = sleep(LOOK_AGAIN) => {}
        }
    }
}

/// Follows a bridge as long as it is up.
async fn follow(folder: StateFolder, tell: mpsc::Sender<News>) -> StateFolder {
    let mut said = None;
    while folder.is_alive() {
        if let Err(error) = follow_once(&folder, &tell).await
            && said.as_ref() != Some(&error)
        {
            said = Some(error.clone());
            let _ = tell.send(News::Failed(error)).await;
        }
        sleep(LOOK_AGAIN).await;
    }
    folder
}

async fn follow_once(folder: &StateFolder, tell: &mpsc::Sender<News>) -> Result<()> {
    let noted = folder.target().unwrap_or_default();
    let target: TargetAddress = noted.parse()?;
    let mut questions = Questions::follow(folder)
        .await
        .map_err(|error| error.context(format!("{target} asks elsewhere")))?;
    let _ = tell.send(News::Follows(target.clone(), folder.clone())).await;
    let ended = loop {
        match questions.next().await {
            Ok(Some(news)) => {
                let _ = tell.send(News::Question(target.clone(), news)).await;
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    let _ = tell.send(News::Left(target)).await;
    ended
}

/// The terminal that a person sits at. It is given back as it was.
struct Keyboard {
    device: Arc<TerminalDevice>,
    before: TerminalModes,
    typed: mpsc::Receiver<(Instant, u8)>,
    /// Keys from before don't count.
    since: Instant,
}

impl Keyboard {
    fn open() -> Result<Self> {
        let is_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        let no_terminal = || {
            Error::new(ErrorKind::Usage, "keybridge approve needs a terminal, and a person at it")
        };
        let device = TerminalDevice::open().filter(|_| is_terminal).ok_or_else(no_terminal)?;
        let before = device.modes().map_err(|error| no_terminal().caused_by(error))?;
        let device = Arc::new(device);
        let (tell, typed) = mpsc::channel(MOST_WAITING);
        let read_from = Arc::clone(&device);
        // A thread of its own, which ends with the process: a read of a terminal can't be cancelled.
        std::thread::spawn(move || {
            let mut key = [0; 8];
            while let Ok(count @ 1..) = read_from.read(&mut key) {
                for &key in key.get(..count).unwrap_or_default() {
                    if tell.blocking_send((Instant::now(), key)).is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Self { device, before, typed, since: Instant::now() })
    }

    /// Waits for keys from now on. Those that were typed before are forgotten.
    fn await_keys(&mut self) -> Result<()> {
        let failed = |error| Error::failed("can't read keys of the terminal").caused_by(error);
        self.device.await_keys(&self.before).map_err(failed)?;
        self.since = Instant::now();
        Ok(())
    }

    /// The next key; nothing if the terminal is gone.
    async fn key(&mut self) -> Option<u8> {
        loop {
            let (at, key) = self.typed.recv().await?;
            if at >= self.since {
                return Some(key);
            }
        }
    }

    /// Shows a text.
    fn say(&self, text: &str) {
        // A terminal that is gone has no more keys.
        let _ = self.device.write(text);
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        self.device.restore(&self.before);
    }
}
