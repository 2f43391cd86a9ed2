//! The client: stands where the users of an agent stand, in a target or on the host, and measures
//! what it is asked to. Only the way between it and the agent differs from one subject to the next.

mod connection;

use std::collections::HashMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};
use crate::question::{Answer, Question};
use connection::Connection;

/// Nothing that is measured takes as long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Answers questions until there are no more.
pub(crate) fn run() -> Result<()> {
    let mut client = Client::default();
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let question = serde_json::from_str(&line?).while_doing("a question")?;
        let answer = match client.answer(question) {
            Ok(nanos) => Answer::Took { nanos },
            Err(error) => Answer::Failed { why: error.to_string() },
        };
        serde_json::to_writer(&mut out, &answer)?;
        out.write_all(b"\n")?;
        out.flush()?;
    }
    Ok(())
}

#[derive(Default)]
struct Client {
    kept: HashMap<String, Vec<Connection>>,
}

impl Client {
    fn answer(&mut self, question: Question) -> Result<Vec<u64>> {
        match question {
            Question::Open { name, socket, clients } => {
                let opened =
                    (0..clients).map(|_| Connection::open(&socket)).collect::<Result<_>>()?;
                self.kept.insert(name, opened);
                Ok(Vec::new())
            }
            Question::Close { name } => {
                for connection in self.kept.remove(&name).into_iter().flatten() {
                    connection.close();
                }
                Ok(Vec::new())
            }
            Question::RoundTrips { name, count } => {
                let kept = self.kept_under(&name)?;
                let mut trip = || {
                    kept.iter_mut().try_for_each(Connection::send_small)?;
                    kept.iter_mut().try_for_each(Connection::receive_small)
                };
                std::iter::repeat_with(|| timed(&mut trip)).take(count).collect()
            }
            Question::Bulk { name, way, bytes, keygrip } => match self.kept_under(&name)? {
                [connection] => Ok(vec![timed(|| connection.bulk(way, bytes, &keygrip))?]),
                _ => Err(Error::new("bulk goes over one connection")),
            },
            Question::Run { socket, words, env, input } => {
                if let Some(socket) = socket {
                    wait_for_listener(&socket)?;
                }
                Ok(vec![run_program(&words, &env, &input)?])
            }
        }
    }

    fn kept_under(&mut self, name: &str) -> Result<&mut [Connection]> {
        let kept = self.kept.get_mut(name);
        kept.map(Vec::as_mut_slice)
            .ok_or_else(|| Error::new(format!("no connection is kept under {name}")))
    }
}

fn run_program(words: &[String], env: &[(String, String)], input: &str) -> Result<u64> {
    let (program, arguments) = words.split_first().ok_or_else(|| Error::new("no program"))?;
    let mut command = Command::new(program);
    command.args(arguments).envs(env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    timed(|| {
        let mut child = command.spawn().while_doing(program)?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(input.as_bytes())?;
        }
        let output = child.wait_with_output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Error::new(format!("{program}: {}: {}", output.status, said.trim())))
    })
}

/// Waits until somebody listens, without a connection: one that takes a single one would be used up.
fn wait_for_listener(socket: &Path) -> Result<()> {
    // The flag of a socket that takes connections.
    const LISTENS: &str = " 00010000 ";
    let path = format!(" {}", socket.display());
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        let sockets = std::fs::read_to_string("/proc/net/unix")?;
        if sockets.lines().any(|line| line.ends_with(&path) && line.contains(LISTENS)) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(Error::new(format!("nobody listens at {}", socket.display())))
}

/// How long something takes, in nanoseconds.
fn timed(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let start = Instant::now();
    work()?;
    Ok(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
