//! A person at a terminal: `script` makes a real one.

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

use super::{PATIENCE, command, text};

/// A program at a terminal of its own, and a person who reads and types there. Dropping it takes the terminal
/// away.
pub struct AtTerminal {
    child: Child,
    stdin: ChildStdin,
    shown: mpsc::Receiver<Vec<u8>>,
    read: String,
}

impl AtTerminal {
    /// Starts a program.
    pub fn start(program: &Command) -> Self {
        let words = std::iter::once(program.get_program()).chain(program.get_args());
        let words: Vec<_> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        let mut script = command("script");
        script.args(["--quiet", "--return", "--flush", "--command", &words.join(" "), "/dev/null"]);
        script
            .env_clear()
            .envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        script.env("SHELL", "/bin/sh");
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let (tell, shown) = mpsc::channel();
        let mut stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut part = [0; 1024];
            while let Ok(count @ 1..) = stdout.read(&mut part) {
                if tell.send(part[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { stdin: child.stdin.take().unwrap(), child, shown, read: String::new() }
    }

    /// Waits until something is shown that wasn't there before, and types a line.
    #[track_caller]
    pub fn answer(&mut self, question: &str, line: &str) {
        self.wait_for(question);
        self.type_line(line);
    }

    /// Waits until something is shown that wasn't there before.
    #[track_caller]
    pub fn wait_for(&mut self, wanted: &str) {
        let from = self.read.len();
        while !self.read[from..].contains(wanted) {
            let Ok(part) = self.shown.recv_timeout(PATIENCE) else {
                panic!("{wanted} is not shown: {}", self.read)
            };
            self.read.push_str(&text(&part));
        }
    }

    /// Types a line.
    pub fn type_line(&mut self, line: &str) {
        self.type_keys(line);
        self.type_keys("\n");
    }

    /// Types something that is no line, or not yet.
    pub fn type_keys(&mut self, keys: &str) {
        self.stdin.write_all(keys.as_bytes()).unwrap();
    }

    /// All that was shown until now.
    pub fn shown_so_far(&mut self) -> &str {
        while let Ok(part) = self.shown.try_recv() {
            self.read.push_str(&text(&part));
        }
        &self.read
    }

    /// Waits for the end; gives back the exit status and all that was shown.
    pub fn ended(mut self) -> (i32, String) {
        while let Ok(part) = self.shown.recv_timeout(PATIENCE) {
            self.read.push_str(&text(&part));
        }
        (self.child.wait().unwrap().code().unwrap(), std::mem::take(&mut self.read))
    }
}

impl Drop for AtTerminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
