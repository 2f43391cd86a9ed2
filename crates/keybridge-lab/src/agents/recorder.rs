//! Stands between keybridge and a real gpg-agent, and notes every line that reaches the agent.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::Home;

/// A relay in the place of the agent's restricted socket.
pub struct Recorder {
    lines: Arc<Mutex<Vec<u8>>>,
}

impl Recorder {
    /// Has the agent of a home listen elsewhere, and takes its place. The agent must not run yet, or
    /// is ended.
    pub fn before(home: &Home) -> Self {
        let real = home.file("S.real");
        let line = format!("extra-socket {}\n", real.display());
        let config = home.file("gpg-agent.conf");
        let before = std::fs::read_to_string(&config).unwrap_or_default();
        std::fs::write(config, before + &line).unwrap();
        home.end_agents();
        home.launch_agent();
        Self::between(&home.extra_socket(), real)
    }

    /// Listens at one path, and relays to the listener at another one.
    pub fn between(path: &Path, real: PathBuf) -> Self {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&lines);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, agent) = (client.unwrap(), UnixStream::connect(&real).unwrap());
                let answers = (agent.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || relay(answers.0, answers.1, |_| {}));
                let noted = Arc::clone(&noted);
                std::thread::spawn(move || {
                    let mut own = Vec::new();
                    relay(client, agent, |bytes| {
                        own.extend_from_slice(bytes);
                        // Whole lines alone, so that connections don't mix.
                        if let Some(end) = own.iter().rposition(|&byte| byte == b'\n') {
                            noted.lock().unwrap().extend(own.drain(..=end));
                        }
                    });
                });
            }
        });
        Self { lines }
    }

    /// The lines so far, without their ends. Data is no text.
    pub fn lines(&self) -> Vec<String> {
        let lines = self.lines.lock().unwrap();
        let lines = lines.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect()
    }

    /// Forgets what came so far.
    pub fn clear(&self) {
        self.lines.lock().unwrap().clear();
    }
}

fn relay(mut from: UnixStream, mut to: UnixStream, mut note: impl FnMut(&[u8])) {
    let mut buffer = [0; 4096];
    loop {
        match from.read(&mut buffer) {
            Ok(0) | Err(_) => break,
            Ok(size) => {
                note(&buffer[..size]);
                if to.write_all(&buffer[..size]).is_err() {
                    break;
                }
            }
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Whether a line may reach an agent, as somebody reads the table who hasn't seen the code. The keys
/// are those that are lent.
#[allow(clippy::match_same_arms, reason = "a table reads better row by row")]
pub fn is_allowed(line: &str, lent: &[String]) -> bool {
    let hex = |word: &str| word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_lent = |grip: &str| lent.iter().any(|lent| lent.eq_ignore_ascii_case(grip));
    if line.starts_with("D ") {
        return true;
    }
    let line = line.trim_end_matches('\r');
    let words: Vec<&str> = line.split([' ', '\t']).filter(|word| !word.is_empty()).collect();
    let Some((verb, arguments)) = words.split_first() else { return false };
    match (verb.to_ascii_uppercase().as_str(), arguments) {
        ("RESET" | "BYE" | "NOP" | "END" | "CAN" | "PKSIGN" | "PKDECRYPT", []) => true,
        ("GETINFO", ["version" | "restricted" | "s2k_count"]) => true,
        ("GETINFO", ["cmd_has_option", "GET_PASSPHRASE", "repeat" | "newsymkey"]) => true,
        ("OPTION", [option]) => option.starts_with("agent-awareness="),
        ("PKDECRYPT", [kem]) => ["--kem=PGP", "--kem=PQC-PGP", "--kem=CMS"].contains(kem),
        ("SETKEYDESC", [_]) => true,
        ("SETHASH", ["--inquire"]) => true,
        ("SETHASH", [number, hash]) => number.parse::<u8>().is_ok() && hex(hash),
        ("ISTRUSTED", [fingerprint]) => fingerprint.len() == 40 && hex(fingerprint),
        ("SETKEY" | "SIGKEY", ["--another", grip]) => is_lent(grip),
        ("SETKEY" | "SIGKEY" | "KEYINFO" | "READKEY" | "HAVEKEY", [grip]) => is_lent(grip),
        _ => false,
    }
}
