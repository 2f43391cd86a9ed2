//! Clients that sign all the time in a container, and what they have noted.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use crate::lab::{eventually, make_private};

const SCRIPT: &str = include_str!("sign.sh");

/// How long a client rests between two signatures: there are those of other tests too.
const PAUSE: Duration = Duration::from_secs(1);

/// How long it rests after one that failed: a return is to be seen soon.
const PAUSE_AFTER_A_FAILURE: Duration = Duration::from_millis(500);

/// The clients of one container. They and the test share a folder.
pub struct Signers {
    folder: PathBuf,
    clients: usize,
}

/// One signature that was tried.
#[derive(Debug, Clone)]
pub struct Turn {
    pub client: usize,
    /// The text that was to be signed; no other turn has it.
    pub name: String,
    pub start: SystemTime,
    pub end: SystemTime,
    /// What gpg said, if it failed.
    pub complaint: Option<String>,
}

impl Turn {
    pub fn is_ok(&self) -> bool {
        self.complaint.is_none()
    }

    pub fn time(&self) -> Duration {
        self.end.duration_since(self.start).unwrap_or_default()
    }
}

impl Signers {
    /// Makes the folder that the clients of a container to be started will work in.
    pub fn new(folder: PathBuf, clients: usize) -> Self {
        make_private(&folder);
        fs::write(folder.join("sign.sh"), SCRIPT).unwrap();
        Self { folder, clients }
    }

    /// How many there are.
    pub fn clients(&self) -> usize {
        self.clients
    }

    /// What mounts the folder into a container.
    pub fn volume(&self) -> String {
        format!("{}:/signers", self.folder.display())
    }

    /// The container's first process.
    pub fn command(&self) -> Vec<String> {
        let milliseconds = |time: Duration| time.as_millis().to_string();
        vec![
            "bash".to_owned(),
            "/signers/sign.sh".to_owned(),
            self.clients.to_string(),
            milliseconds(PAUSE),
            milliseconds(PAUSE_AFTER_A_FAILURE),
        ]
    }

    /// Lets them sign, now and whenever their container is started.
    pub fn go(&self) {
        fs::write(self.folder.join("go"), "").unwrap();
    }

    /// Has them finish what they do. They have to run.
    pub fn rest(&self) {
        let _ = fs::remove_file(self.folder.join("go"));
        eventually("every client rests", || {
            (0..self.clients).all(|client| self.log(client).ends_with("rest\n"))
        });
    }

    /// Where the signature of a turn is.
    pub fn signature(&self, turn: &Turn) -> PathBuf {
        self.folder.join(format!("{}.asc", turn.name))
    }

    /// All that was tried so far, in the order of its end for each client. What was cut short with its
    /// container has left no note.
    pub fn turns(&self) -> Vec<Turn> {
        (0..self.clients).flat_map(|client| self.turns_of(client)).collect()
    }

    /// Whether every client has a signature that it began after a moment.
    pub fn have_signed_since(&self, moment: SystemTime) -> bool {
        let has_signed = |client| {
            let turns = self.turns_of(client);
            turns.iter().any(|turn| turn.is_ok() && turn.start >= moment)
        };
        (0..self.clients).all(has_signed)
    }

    /// What the clients did last, for the text of a failure: those with the same words together.
    pub fn last_words(&self) -> String {
        let mut words = BTreeMap::<String, Vec<String>>::new();
        for client in 0..self.clients {
            let turns = self.turns_of(client);
            let Some(turn) = turns.last() else {
                words.entry("nothing yet".to_owned()).or_default().push(client.to_string());
                continue;
            };
            let said = turn.complaint.clone().unwrap_or_else(|| "ok".to_owned());
            let ago = turn.end.elapsed().unwrap_or_default();
            let who = format!("{client} (took {:.1?}, {ago:.1?} ago)", turn.time());
            words.entry(said).or_default().push(who);
        }
        let lines = words.iter().map(|(said, who)| format!("{said}\n    {}", who.join(", ")));
        lines.collect::<Vec<_>>().join("\n")
    }

    fn turns_of(&self, client: usize) -> Vec<Turn> {
        let log = self.log(client);
        // The last line may be half written.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        whole.lines().filter(|line| *line != "rest").map(|line| parse(client, line)).collect()
    }

    fn log(&self, client: usize) -> String {
        fs::read_to_string(self.folder.join(format!("{client}.log"))).unwrap_or_default()
    }
}

fn parse(client: usize, line: &str) -> Turn {
    let fields: Vec<&str> = line.splitn(4, ' ').collect();
    let [name, start, end, said] = fields[..] else { panic!("a client noted {line:?}") };
    let complaint = (said != "ok").then(|| said.to_owned());
    Turn { client, name: name.to_owned(), start: moment(start), end: moment(end), complaint }
}

/// Seconds and microseconds, as a shell writes them.
fn moment(text: &str) -> SystemTime {
    let micros: u64 = text.replace('.', "").parse().unwrap();
    SystemTime::UNIX_EPOCH + Duration::from_micros(micros)
}
