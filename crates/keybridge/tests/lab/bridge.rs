//! The real program, from its start to its end.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::process::Signal;
use serde_json::Value;

use super::{PATIENCE, allocated_by, descriptors_of, eventually, is_alive, signal, text};

/// A bridge that is up. Dropping it kills both programs.
pub struct Bridge {
    child: Child,
    helper: u32,
    ready: Value,
    output: Output,
}

/// How a bridge ended, and all that it has said.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Bridge {
    /// Starts a `keybridge up … --foreground --json`, and waits until it says that it works.
    pub fn start(mut command: Command) -> Self {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (output, lines) = Output::follow(&mut child);
        let Ok(line) = lines.recv_timeout(PATIENCE) else {
            let _ = child.kill();
            let status = child.wait().unwrap();
            let ended = output.join(status);
            panic!("{command:?} isn't up, {status}:\n{}", text(&ended.stderr));
        };
        let ready: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(ready["state"], "ready", "{ready}");
        let helper = helper_of(child.id()).expect("a helper runs");
        Self { child, helper, ready, output }
    }

    /// What the program said when it was up.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// The socket in the target.
    pub fn socket(&self) -> PathBuf {
        self.ready["lanes"]["gpg"]["socket"].as_str().expect("a socket").into()
    }

    /// The process of the host's program.
    pub fn host_pid(&self) -> u32 {
        self.child.id()
    }

    /// The process of the helper.
    pub fn helper_pid(&self) -> u32 {
        self.helper
    }

    /// The file that the helper runs from.
    pub fn helper_program(&self) -> PathBuf {
        std::fs::read_link(format!("/proc/{}/exe", self.helper)).unwrap()
    }

    /// What both programs have allocated.
    pub fn allocated(&self) -> u64 {
        self.pids().map(allocated_by).iter().sum()
    }

    /// How many descriptors both programs have open.
    pub fn descriptors(&self) -> usize {
        self.pids().map(descriptors_of).iter().sum()
    }

    fn pids(&self) -> [u32; 2] {
        [self.host_pid(), self.helper_pid()]
    }

    /// What the program has complained about so far.
    pub fn stderr(&self) -> String {
        text(&self.output.stderr.lock().unwrap())
    }

    /// Ends the bridge as a person or a service manager does; it has to end well.
    pub fn stop(self) -> Ended {
        self.stop_by(Signal::TERM)
    }

    /// Ends the bridge by a signal; it has to end well, and its helper with it.
    pub fn stop_by(self, by: Signal) -> Ended {
        signal(self.child.id(), by);
        let helper = self.helper;
        let ended = self.wait();
        assert!(ended.status.success(), "{}\n{}", ended.status, text(&ended.stderr));
        assert!(!is_alive(helper), "the helper goes on");
        ended
    }

    /// Waits for an end that comes by itself.
    pub fn wait(mut self) -> Ended {
        let mut status = None;
        eventually("the program ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let output = std::mem::take(&mut self.output);
        output.join(status.unwrap())
    }

    /// Kills both programs, without a chance to undo anything.
    pub fn kill(mut self) {
        self.kill_both();
    }

    fn kill_both(&mut self) {
        // Both at once, so that neither sees the other's end: stopped first, then killed.
        for by in [Signal::STOP, Signal::KILL] {
            signal(self.helper, by);
            signal(self.child.id(), by);
        }
        let _ = self.child.wait();
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.kill_both();
        }
    }
}

/// The helper that a program has started.
fn helper_of(pid: u32) -> Option<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().map(|child| child.parse().unwrap()).find(|child: &u32| {
        std::fs::read_to_string(format!("/proc/{child}/comm"))
            .is_ok_and(|name| name.starts_with("keybridge-remot"))
    })
}

/// What a program writes, taken as it comes.
#[derive(Default)]
struct Output {
    stdout: Arc<Mutex<Vec<u8>>>,
    stderr: Arc<Mutex<Vec<u8>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Output {
    /// Follows both streams; the lines of standard output come by the channel too.
    fn follow(child: &mut Child) -> (Self, Receiver<String>) {
        let (lines, receiver) = channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let mut output = Self::default();
        output.readers = vec![
            follow(out, Arc::clone(&output.stdout), move |line| drop(lines.send(text(line)))),
            follow(err, Arc::clone(&output.stderr), |_| {}),
        ];
        (output, receiver)
    }

    fn join(self, status: ExitStatus) -> Ended {
        for reader in self.readers {
            reader.join().unwrap();
        }
        let take = |bytes: &Mutex<Vec<u8>>| std::mem::take(&mut *bytes.lock().unwrap());
        Ended { status, stdout: take(&self.stdout), stderr: take(&self.stderr) }
    }
}

fn follow(
    from: impl Read + Send + 'static,
    into: Arc<Mutex<Vec<u8>>>,
    mut each: impl FnMut(&[u8]) + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut lines = BufReader::new(from);
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            into.lock().unwrap().extend_from_slice(&line);
            each(&line);
            line.clear();
        }
    })
}
