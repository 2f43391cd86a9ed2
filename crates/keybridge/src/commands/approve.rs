//! `keybridge approve [TARGET]`.

use std::future::pending;
use std::io::IsTerminal;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use keybridge_link::Input;
use keybridge_proto::permission::PersonsWord;
use keybridge_proto::printable_json;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::asking::{Asked, Console, Ended, Key};
use crate::config::Options;
use crate::output::{print_line, terminal_size};
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
    /// Print the questions as lines of JSON, and read answers from standard input until its end:
    /// `{"target": "docker://web", "id": 7, "word": "once"}`, or for-a-while, or no
    #[arg(long)]
    json: bool,
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
        let manager = BridgeManager::new(Options::default())?;
        let only = match self.target.as_deref().map(str::parse::<TargetAddress>).transpose()? {
            Some(address) => Some(manager.folder(&address).await?),
            None => None,
        };
        let keyboard = if self.json { None } else { Some(Keyboard::open()?) };
        let mut signals = Signals::new()?;
        let (tell, told) = mpsc::channel(MOST_WAITING);
        tokio::task::spawn_local(follow_all(manager, only, tell.clone()));
        let asking = async {
            match keyboard {
                Some(keyboard) => at_terminal(keyboard, told, tell).await,
                None => over_pipes(told, tell).await,
            }
        };
        tokio::select! {
            () = signals.received() => Ok(()),
            ended = asking => ended,
        }
    }
}

/// Asks at the terminal until the person has enough of it.
async fn at_terminal(
    mut keyboard: Keyboard,
    mut told: mpsc::Receiver<News>,
    tell: mpsc::Sender<News>,
) -> Result<()> {
    keyboard.await_keys()?;
    keyboard.say("questions of your bridges are asked here; [q] quits\n");
    let mut bridges = Followed::default();
    let mut console = Console::new(terminal_size().map_or(80, |(columns, _)| columns));
    let mut settled = Instant::now();
    loop {
        if let Some(text) = console.show() {
            keyboard.say(&text);
            settled = Instant::now() + SETTLING;
        }
        tokio::select! {
            () = sleep_until(settled.into()), if console.is_settling() => {
                keyboard.await_keys()?;
                keyboard.say(&console.open());
            }
            Some(news) = told.recv() => {
                bridges.note(&news);
                keyboard.say(&shown(&mut console, news));
            }
            key = keyboard.key() => {
                let Some(key) = key else { return Ok(()) };
                match console.key(key) {
                    Key::Nothing => {}
                    Key::Quit => return Ok(()),
                    Key::Show(text) => keyboard.say(&text),
                    Key::Answer { target, id, word } => bridges.answer(&target, id, word, &tell),
                }
            }
        }
    }
}

/// A line for a program that asks.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Line {
    Follows { target: String },
    Asked { target: String, question: Box<Asked> },
    Ended { target: String, id: u64, how: Ended },
    Left { target: String },
    Failed { error: Error },
}

/// A line of such a program.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    target: String,
    id: u64,
    word: PersonsWord,
}

/// The longest line of such a program.
const LONGEST_LINE: u64 = 64 * 1024;

/// Has a program ask, until standard input ends.
async fn over_pipes(mut told: mpsc::Receiver<News>, tell: mpsc::Sender<News>) -> Result<()> {
    let failed = |error: std::io::Error| Error::failed("reading standard input").caused_by(error);
    let mut input = BufReader::new(Input::open().map_err(failed)?);
    let (said, mut saying) = mpsc::channel(MOST_WAITING);
    // A task of its own: a line that is half read must not be lost to news.
    tokio::task::spawn_local(async move {
        let mut line = Vec::new();
        while (&mut input).take(LONGEST_LINE).read_until(b'\n', &mut line).await? > 0 {
            if said.send(serde_json::from_slice::<Said>(&line)).await.is_err() {
                break;
            }
            line.clear();
        }
        std::io::Result::Ok(())
    });
    let mut bridges = Followed::default();
    loop {
        tokio::select! {
            Some(news) = told.recv() => {
                bridges.note(&news);
                let line = serde_json::to_string(&Line::from(news)).unwrap_or_default();
                print_line(&printable_json(&line));
            }
            line = saying.recv() => match line {
                None => return Ok(()),
                Some(Ok(Said { target, id, word })) => {
                    bridges.answer(&target.parse()?, id, word, &tell);
                }
                Some(Err(error)) => {
                    return Err(Error::new(ErrorKind::Usage, "not an answer").caused_by(error));
                }
            },
        }
    }
}

impl From<News> for Line {
    fn from(news: News) -> Self {
        match news {
            News::Follows(target, _) => Self::Follows { target: target.to_string() },
            News::Question(target, QuestionNews::Asked(question)) => {
                Self::Asked { target: target.to_string(), question }
            }
            News::Question(target, QuestionNews::Ended(id, how)) => {
                Self::Ended { target: target.to_string(), id, how }
            }
            News::Left(target) => Self::Left { target: target.to_string() },
            News::Failed(error) => Self::Failed { error },
        }
    }
}

/// The bridges that are followed.
#[derive(Default)]
struct Followed(Vec<(TargetAddress, StateFolder)>);

impl Followed {
    fn note(&mut self, news: &News) {
        if let News::Follows(target, folder) = news {
            self.0.retain(|(one, _)| one != target);
            self.0.push((target.clone(), folder.clone()));
        }
    }

    /// Sends an answer, while other questions can be asked.
    fn answer(
        &self,
        target: &TargetAddress,
        id: u64,
        word: PersonsWord,
        tell: &mpsc::Sender<News>,
    ) {
        let found = self.0.iter().find(|(one, _)| one == target);
        let folder = found.map(|(_, folder)| folder.clone());
        tokio::task::spawn_local(send(target.clone(), folder, id, word, tell.clone()));
    }
}

/// Sends an answer. The bridge tells what becomes of the question.
async fn send(
    target: TargetAddress,
    folder: Option<StateFolder>,
    id: u64,
    word: PersonsWord,
    tell: mpsc::Sender<News>,
) {
    let sent = match folder {
        Some(folder) => answer(&folder, id, word).await,
        None => Err(Error::new(ErrorKind::NoTarget, format!("{target} doesn't ask here"))),
    };
    if let Err(error) = sent {
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
                .hint("--json is for programs")
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
