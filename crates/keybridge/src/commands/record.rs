//! `keybridge record [TARGET]`.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use clap::Args;
use keybridge_proto::permission::Decided;
use keybridge_proto::session::Outcome;
use keybridge_proto::{printable_json, printable_up_to};

use super::logs::{LOOK_AGAIN, Log};
use crate::config::Options;
use crate::output::print_line;
use crate::record::{Journal, Line, Signed, Verified, What, record_folder};
use crate::supervisor::{BridgeManager, utc};
use crate::target::TargetAddress;
use crate::{Error, Result};

/// Show what was done with your keys, and check that this is all
#[derive(Debug, Args)]
pub(crate) struct Record {
    /// Only this target
    target: Option<String>,
    /// Only what is newer: 30m, 2h, 7d, or a date such as 2026-11-20 (UTC)
    #[arg(long, value_name = "WHEN")]
    since: Option<Since>,
    /// Keep showing new lines, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Print the lines themselves, which are JSON
    #[arg(long)]
    json: bool,
    /// Check that no line was changed or removed
    #[arg(long, conflicts_with_all = ["target", "since", "follow", "json"])]
    verify: bool,
}

/// A moment as the lines have it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Since(String);

impl FromStr for Since {
    type Err = &'static str;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "expected 30m, 2h, 7d, or a date such as 2026-11-20";
        let is_date = word.len() >= 10
            && word.bytes().zip(b"dddd-dd-ddTdd:dd:ddZ".iter()).all(|(byte, form)| match form {
                b'd' => byte.is_ascii_digit(),
                form => byte == *form,
            })
            && word.len() <= 20;
        if is_date {
            return Ok(Self(word.to_owned()));
        }
        let ago = time_in(word).ok_or(EXPECTED)?;
        let since = SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH);
        Ok(Self(utc(since)))
    }
}

/// A time in a number and a unit: `30s`, `15m`, `1h`, `2d`.
fn time_in(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return None,
    };
    // `parse` takes a sign.
    let is_number = number.bytes().all(|digit| digit.is_ascii_digit());
    let number: u64 = number.parse().ok().filter(|_| is_number)?;
    Some(Duration::from_secs(number.saturating_mul(seconds)))
}

/// Which lines are shown.
struct Shown {
    address: Option<TargetAddress>,
    id: Option<String>,
    since: Option<Since>,
    as_json: bool,
}

impl Record {
    pub(crate) async fn run(self) -> Result<()> {
        let journal = Journal::new(record_folder());
        if self.verify {
            return verify(&journal);
        }
        let address: Option<TargetAddress> = self.target.as_deref().map(str::parse).transpose()?;
        let id = match &address {
            // It may be gone by now.
            Some(address) => {
                let manager = BridgeManager::new(Options::default())?;
                manager.folder(address).await.ok().map(|folder| folder.id())
            }
            None => None,
        };
        let shown = Shown { address, id, since: self.since, as_json: self.json };
        let failed = |error: io::Error| Error::failed("can't read the record").caused_by(error);
        let mut last = 0;
        // The newest file is opened first, so that no line is missed if another one is begun.
        let mut log = Log::open(journal.newest()).ok();
        let mut text = journal.read_older().map_err(failed)?;
        loop {
            if log.is_none() {
                log = Log::open(journal.newest()).ok();
            }
            if let Some(log) = &mut log {
                text.extend(log.news().map_err(failed)?);
            }
            let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
            let lines: Vec<u8> = text.drain(..end).collect();
            let lines = shown.lines(&lines, &mut last);
            if io::stdout().write_all(lines.as_bytes()).is_err() || !self.follow {
                return Ok(());
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

impl Shown {
    /// The lines that are shown, of those that come after the last one.
    fn lines(&self, text: &[u8], last: &mut u64) -> String {
        let mut shown = String::new();
        for text in text.split(|&byte| byte == b'\n').filter(|text| !text.is_empty()) {
            let Ok(line) = serde_json::from_slice::<Line>(text) else {
                shown.push_str("(a line that can't be read; keybridge record --verify)\n");
                continue;
            };
            // A file that was renamed meanwhile is read twice.
            if line.n <= *last {
                continue;
            }
            *last = line.n;
            if !self.has(&line) {
                continue;
            }
            let _ = if self.as_json {
                writeln!(shown, "{}", printable_json(&String::from_utf8_lossy(text)))
            } else {
                writeln!(shown, "{}", for_people(&line))
            };
        }
        shown
    }

    fn has(&self, line: &Line) -> bool {
        let is_its = self.address.as_ref().is_none_or(|address| {
            self.id.as_ref() == Some(&line.id) || address.may_mean(&line.target)
        });
        is_its && self.since.as_ref().is_none_or(|Since(since)| line.time >= *since)
    }
}

/// A line for people. What it has may be somebody else's by now. What the target has chosen comes last: it
/// can't push out what the host says, nor look like it.
fn for_people(line: &Line) -> String {
    /// An address can have a path.
    const TARGET: usize = 200;
    let (time, target) = (cut(&line.time), printable_up_to(&line.target, TARGET));
    let said = match &line.what {
        What::Operation { operations, key, signed, decided, result, ms, .. } => format!(
            "{operations}: {}{}, key {}, {ms} ms{}",
            outcome(*result),
            by(decided.as_ref()),
            cut(key),
            what(signed),
        ),
        What::LeftOut { not_done, unwritten } => {
            let counts =
                [(*not_done, "that weren't done"), (*unwritten, "that couldn't be written")];
            let counts = counts.iter().filter(|(count, _)| *count > 0);
            let counts: Vec<String> = counts.map(|(count, why)| format!("{count} {why}")).collect();
            format!("without a line of their own: {}", counts.join(", "))
        }
    };
    format!("{time}  {target}  {said}")
}

fn what(signed: &Signed) -> String {
    /// As git abbreviates it in a large repository.
    const ID: usize = 12;
    let id = |id: &Option<String>| {
        id.as_ref().map_or(String::new(), |id| format!(" {}", cut(id.get(..ID).unwrap_or(id))))
    };
    match signed {
        Signed::Commit { id: object, title, author, .. } => {
            format!(":{} {} of {}", id(object), quoted(title), quoted(&author.to_string()))
        }
        Signed::Tag { id: object, name, title, tagger, .. } => {
            let (name, title) = (quoted(name), quoted(title));
            format!(":{} {name} {title} of {}", id(object), quoted(&tagger.to_string()))
        }
        Signed::Login { user, host: Some(host) } => {
            format!(": as {} at {}", quoted(user), cut(host))
        }
        Signed::Login { user, host: None } => {
            format!(": as {} at a server that is unknown", quoted(user))
        }
        Signed::Message { namespace } => format!(": for {}", quoted(namespace)),
        Signed::Hash | Signed::SessionKey | Signed::Data => String::new(),
    }
}

/// Text of a target, whose end nothing in it can pretend to be.
fn quoted(text: &str) -> String {
    format!("“{}”", cut(&text.replace('“', "\\u{201c}").replace('”', "\\u{201d}")))
}

fn cut(text: &str) -> String {
    const SHOWN: usize = 80;
    printable_up_to(text, SHOWN)
}

const fn outcome(result: Outcome) -> &'static str {
    match result {
        Outcome::Succeeded => "done",
        Outcome::Cancelled => "cancelled",
        Outcome::Failed => "failed",
        Outcome::Refused => "refused",
        Outcome::Abandoned => "given up by the client",
    }
}

fn by(decided: Option<&Decided>) -> String {
    match decided {
        Some(Decided::Settings) => " (settings)".to_owned(),
        Some(Decided::Person(way)) => format!(" (a person said yes, by {})", cut(way)),
        Some(Decided::EarlierYes) => " (an earlier yes)".to_owned(),
        Some(Decided::Refused(refusal)) => format!(" ({refusal})"),
        None => String::new(),
    }
}

fn verify(journal: &Journal) -> Result<()> {
    let verified = journal
        .verify()
        .map_err(|error| Error::failed("can't read the record").caused_by(error))?;
    let Verified { lines, removed, last, uncovered } = verified
        .map_err(|broken| Error::failed(format!("the record isn't as it was written: {broken}")))?;
    print_line(&format!("{lines} lines, all as they were written; the last hash is {last}"));
    if removed > 0 {
        print_line(&format!("{removed} older ones were removed to make room"));
    }
    if uncovered > 0 {
        print_line(&format!("the newest {uncovered} came after the last hash that was kept"));
    }
    print_line(
        &"It can't show what a program did that runs with your own rights: it can rewrite all of this.",
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use keybridge_proto::Lane;
    use keybridge_proto::permission::Person;

    use super::*;

    #[test]
    fn a_target_can_neither_push_out_nor_forge_what_the_host_says() {
        let person = || Person { name: "Ada”, key 0".repeat(40), email: String::new() };
        let title = format!("Fix” of Ada: done\n\u{202e}{}", "x".repeat(2000));
        let (author, committer) = (person(), person());
        let line = Line {
            n: 1,
            time: "2026-11-20T00:00:00Z".to_owned(),
            target: "docker://web".to_owned(),
            id: "17".to_owned(),
            what: What::Operation {
                lane: Lane::Git,
                operations: [keybridge_proto::Operation::Commit].into_iter().collect(),
                key: "A".repeat(40),
                signed: Signed::Commit { id: None, title, author, committer },
                decided: Some(Decided::Settings),
                result: Outcome::Failed,
                ms: 7,
            },
            prev: String::new(),
        };
        let shown = for_people(&line);
        let host = format!(
            "2026-11-20T00:00:00Z  docker://web  commit: failed (settings), key {}, 7 ms: “Fix\\u{{201d}} of",
            "A".repeat(40)
        );
        assert!(shown.starts_with(&host), "{shown}");
        assert_eq!((shown.matches('“').count(), shown.matches('”').count()), (2, 2), "{shown}");
        assert!(shown.len() < 400 && shown.ends_with('”'), "{shown}");
        assert!(!shown.contains(['\n', '\u{202e}']), "{shown}");
    }

    #[test]
    fn a_moment_is_a_time_ago_or_a_date() {
        for date in ["2026-11-20", "2026-11-20T10", "2026-11-20T10:00:00Z"] {
            assert_eq!(date.parse(), Ok(Since(date.to_owned())));
        }
        let ago = |word: &str| word.parse::<Since>().unwrap().0;
        assert!(ago("2d") < ago("2h") && ago("2h") < ago("30m") && ago("30m") < ago("0s"));
        assert_eq!(ago("999999999999999999d"), "1970-01-01T00:00:00Z");
        for word in ["", "h", "2", "2w", "-2h", "2026-11", "2026-11-20x", "20.11.2026", "ü"] {
            assert!(word.parse::<Since>().is_err(), "{word}");
        }
    }
}
