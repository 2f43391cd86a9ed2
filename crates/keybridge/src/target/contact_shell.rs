//! A shell in a target that runs our script.

use std::ffi::OsStr;
use std::io::Cursor;
use std::time::Duration;

use keybridge_proto::{in_single_quotes, last_line, printable};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::target::process::{Reader, Running, StderrTail, Writer};
use crate::target::{Process, Target, TargetCommand, random_bytes, says};
use crate::{Error, ErrorKind, Result};

const SCRIPT: &str = include_str!("contact.sh");

/// Sent before the script, for a profile that waits until a key is pressed.
const EMPTY_LINES: &str = "\n\n\n\n";

/// How much a target may write before its answer and in it: banners and profiles can be long.
const OUTPUT_LIMIT: usize = 64 * 1024;

/// How long an answer may take.
const ANSWER_TIME: Duration = Duration::from_secs(30);

/// How long the copy of the helper may take: it is some MiB, and links can be slow.
const PUT_TIME: Duration = Duration::from_mins(5);

/// How long a shell that has closed its output may take to end.
const END_TIME: Duration = Duration::from_secs(2);

/// A shell that waits for the next line.
pub(crate) struct Shell {
    /// The target's address, for errors.
    name: String,
    stdin: Writer,
    stdout: Reader,
    stderr: StderrTail,
    running: Running,
    /// Received, but not read yet.
    received: Vec<u8>,
}

/// What the script has found: on each line a name, and usually a value.
#[derive(Debug, Default)]
pub(crate) struct Facts(String);

impl Facts {
    /// The value of a fact; empty for one that has none.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let of = |line: &str| match line.split_once(' ') {
            Some((found, _)) if found != name => false,
            Some(_) => true,
            None => line == name,
        };
        let line = self.0.lines().find(|line| of(line))?;
        Some(line.get(name.len() + 1..).unwrap_or_default())
    }
}

/// Where reading lines of a shell stopped.
enum End {
    /// At the awaited line; these are the lines before it.
    Line(String),
    /// At the end of the shell's output.
    Ended,
}

impl Shell {
    /// Starts a shell in a target, which looks for the helper with a hash.
    pub(crate) async fn open(
        target: &Target,
        hash: &str,
        outlives_us: bool,
    ) -> Result<(Self, Facts)> {
        let Process { stdin, stdout, stderr, running } = target.shell(outlives_us).await?;
        let (stderr, received) = (StderrTail::new(stderr), Vec::new());
        let name = target.address().to_string();
        let mut shell = Self { name, stdin, stdout, stderr, running, received };
        // In two halves, because a terminal echoes the script, which must not look like the answer.
        let halves: [[u8; 8]; 2] = [random_bytes()?, random_bytes()?];
        let [first, second] = halves.map(|half| format!("{:016x}", u64::from_be_bytes(half)));
        let marker = format!("{first}{second}");
        let script = format!("{EMPTY_LINES}{SCRIPT}\nlisten {first} {second} '{hash}'\n");
        let time = target.answer_time();
        let facts = {
            let mut talk = std::pin::pin!(shell.begin(&script, &marker));
            loop {
                match tokio::time::timeout(time, &mut talk).await {
                    Err(_) if target.is_asking() => {}
                    facts => break facts,
                }
            }
        };
        match facts {
            Ok(Ok(Some(facts))) => Ok((shell, facts)),
            Ok(Ok(None)) => Err(shell.explain_end(target).await),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(shell.silent(time)),
        }
    }

    /// Sends the script, and reads its first answer; `None` if the shell ends before that.
    async fn begin(&mut self, script: &str, marker: &str) -> Result<Option<Facts>> {
        // If the program doesn't read its input, its output says why.
        let _ = self.stdin.write_all(script.as_bytes()).await;
        let _ = self.stdin.flush().await;
        match self.lines_until(marker).await? {
            End::Line(_) => self.facts().await.map(Some),
            End::Ended => Ok(None),
        }
    }

    /// Calls a function of the script, and returns its facts.
    pub(crate) async fn ask(&mut self, words: &[&str]) -> Result<Facts> {
        self.call(words.iter().map(OsStr::new)).await?;
        let facts = tokio::time::timeout(ANSWER_TIME, self.facts()).await;
        facts.unwrap_or_else(|_| Err(self.silent(ANSWER_TIME)))
    }

    /// Sends the helper for a processor, in place of other versions or beside them; the facts say where it is, or why it couldn't be written.
    pub(crate) async fn put(
        &mut self,
        hash: &str,
        processor: &str,
        program: &[u8],
        keeps_others: bool,
    ) -> Result<Facts> {
        let (size, others) = (program.len().to_string(), if keeps_others { "keep" } else { "" });
        let words = ["put_helper", hash, processor, &size, others];
        self.call(words.map(OsStr::new).into_iter()).await?;
        let name = self.name.clone();
        let Self { stdin, stdout, stderr, received, .. } = self;
        let send = async {
            // If the script stops reading, its answer says why.
            let _ = stdin.write_all(program).await;
            let _ = stdin.flush().await;
            std::future::pending::<std::convert::Infallible>().await
        };
        let answer = stderr.read_during(read_facts(stdout, received));
        let talk = async {
            tokio::select! {
                facts = answer => facts,
                never = send => match never {},
            }
        };
        let slow = || {
            let time = PUT_TIME.as_secs();
            Error::failed(format!("{name}: the helper did not arrive within {time} s"))
        };
        match tokio::time::timeout(PUT_TIME, talk).await {
            Ok(Ok(Some(facts))) => Ok(facts),
            Ok(Ok(None)) => Err(self.lost().await.context("sending the helper")),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(slow()),
        }
    }

    /// Makes the shell execute a program, which gets the shell's streams.
    pub(crate) async fn exec(mut self, command: &TargetCommand) -> Result<Process> {
        let mut words = vec![OsStr::new("start")];
        let command = command.with_env();
        words.extend(command.iter().map(|word| word.as_os_str()));
        self.call(words.into_iter()).await?;
        let Self { stdin, mut stdout, stderr, running, received, .. } = self;
        if !received.is_empty() {
            stdout = Box::pin(Cursor::new(received).chain(stdout));
        }
        Ok(Process { stdin, stdout, stderr: stderr.into_stderr(), running })
    }

    async fn call<'w>(&mut self, words: impl Iterator<Item = &'w OsStr>) -> Result<()> {
        let mut line = Vec::new();
        for word in words {
            quote_into(&mut line, word)?;
        }
        line.push(b'\n');
        let sent = async {
            self.stdin.write_all(&line).await?;
            self.stdin.flush().await
        };
        match sent.await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.lost().await),
        }
    }

    /// Reads an answer to its end.
    async fn facts(&mut self) -> Result<Facts> {
        let Self { stdout, stderr, received, .. } = self;
        match stderr.read_during(read_facts(stdout, received)).await? {
            Some(facts) => Ok(facts),
            None => Err(self.lost().await),
        }
    }

    async fn lines_until(&mut self, last: &str) -> Result<End> {
        let Self { stdout, stderr, received, .. } = self;
        stderr.read_during(read_until(stdout, received, last)).await
    }

    /// Explains why the shell ended before it answered.
    async fn explain_end(mut self, target: &Target) -> Error {
        let code = tokio::time::timeout(END_TIME, self.running.wait()).await;
        let code = code.ok().and_then(Result::ok).flatten();
        let said = self.stderr.text().await;
        let said = said.unwrap_or_else(|| printable(last_line(&self.received)).to_string());
        target.explain_shell(code, &said)
    }

    /// The error for a shell that ended after it had answered.
    async fn lost(&mut self) -> Error {
        let why = self.stderr.last_line().await;
        let why = why.map(|why| format!(": {}", says(&self.name, &why))).unwrap_or_default();
        let message = format!("{}: the connection was lost{why}", self.name);
        Error::new(ErrorKind::NoTarget, message)
    }

    fn silent(&self, time: Duration) -> Error {
        let time = time.as_secs();
        let message = format!("{}: the shell there gave no answer within {time} s", self.name);
        Error::new(ErrorKind::NoTarget, message)
            .hint("a profile there may wait for input: a shell that is not interactive must not")
    }
}

/// The answer of the script, up to the line that ends it; `None` if the shell has ended.
async fn read_facts(stdout: &mut Reader, received: &mut Vec<u8>) -> Result<Option<Facts>> {
    Ok(match read_until(stdout, received, "end").await? {
        End::Line(facts) => Some(Facts(facts)),
        End::Ended => None,
    })
}

/// Reads everything up to the line `last`, which is dropped.
async fn read_until(stdout: &mut Reader, received: &mut Vec<u8>, last: &str) -> Result<End> {
    let mut at = 0;
    loop {
        while let Some(length) =
            received.get(at..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
        {
            let line = received.get(at..at + length).unwrap_or_default();
            let is_last = line.strip_suffix(b"\r").unwrap_or(line) == last.as_bytes();
            let next = at + length + 1;
            if is_last {
                let before = String::from_utf8_lossy(received.get(..at).unwrap_or_default());
                let before = before.replace('\r', "");
                received.drain(..next);
                return Ok(End::Line(before));
            }
            at = next;
        }
        if received.len() > OUTPUT_LIMIT {
            let message = format!("the target wrote {} KiB and no answer", OUTPUT_LIMIT / 1024);
            return Err(Error::failed(message).hint(
                "make its profile print less: a shell that is not interactive must be quiet",
            ));
        }
        match stdout.read_buf(received).await {
            Ok(0) => return Ok(End::Ended),
            Ok(_) => {}
            Err(error) => return Err(Error::failed(error.to_string())),
        }
    }
}

/// Appends a word, quoted for a shell. The script reads one line, so no word may contain a line break.
fn quote_into(line: &mut Vec<u8>, word: &OsStr) -> Result<()> {
    if word.as_encoded_bytes().contains(&b'\n') || word.as_encoded_bytes().contains(&0) {
        return Err(Error::failed("an argument with a line break can't be passed to the target"));
    }
    if !line.is_empty() {
        line.push(b' ');
    }
    line.extend(in_single_quotes(word.as_encoded_bytes()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_found_by_their_whole_name() {
        let facts = Facts("path /a b\npathology x\nterminal\n".to_owned());
        assert_eq!(facts.get("path"), Some("/a b"));
        assert_eq!(facts.get("terminal"), Some(""));
        assert_eq!(facts.get("pat"), None);
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        let mut line = Vec::new();
        for word in ["it's", "$HOME `x`", ""] {
            quote_into(&mut line, OsStr::new(word)).unwrap();
        }
        assert_eq!(line, br"'it'\''s' '$HOME `x`' ''");
        assert!(quote_into(&mut line, OsStr::new("a\nb")).is_err());
    }

    crate::platform::tests_on_unix! {
    #[test]
    fn a_name_that_another_user_made_is_not_a_folder_of_ours() {
        let base = tempfile::tempdir().unwrap();
        let user = crate::platform::user_tag();
        for name in ["-good", "-x\nprojects", "-x y", "-*", "-$(id)"] {
            std::fs::create_dir(base.path().join(format!("keybridge-{user}{name}"))).unwrap();
        }
        let script = format!("{SCRIPT}\nuser=$(id -u)\nfolders\n");
        let mut sh = std::process::Command::new("sh");
        sh.env_remove("HOME").env_remove("XDG_CACHE_HOME").env("TMPDIR", base.path());
        let found = sh.args(["-c", &script]).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        let there =
            found.lines().filter(|line| !line.starts_with("/var/") && !line.starts_with("/dev/"));
        let plain = base.path().join(format!("keybridge-{user}")).display().to_string();
        assert_eq!(there.collect::<Vec<_>>(), [plain.clone(), format!("{plain}-good")]);
    }
    }
}
