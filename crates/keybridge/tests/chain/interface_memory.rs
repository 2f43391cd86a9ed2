//! Sessions of an editor that asks for everything and reads nothing.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use crate::lab::{Lab, StandIn, eventually, is_asleep};
use serde_json::{Value, json};

const SESSIONS: usize = 256;

/// What the agent gives to each of them: together twice what is held of all responses.
const RESPONSE: usize = 256 * 1024;

/// One session in so many gets control characters, which are six times as long in JSON.
const ESCAPED: usize = 8;

/// The longest `D` line: 1000 bytes and its end.
const LINE: usize = 1001;

/// Less than all responses and the program's own 15 MiB.
const MOST_MEMORY: u64 = 72 * 1024 * 1024;

/// So many looks in a row at which the program sleeps and has taken nothing more.
const LOOKS: usize = 20;

/// `keybridge rpc`, driven as an editor does it.
struct Editor {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Editor {
    fn start(lab: &Lab) -> Self {
        let mut rpc = lab.keybridge();
        rpc.arg("rpc").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = rpc.spawn().unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Self { process, input, output: BufReader::new(output) }
    }

    fn send(&mut self, id: usize, method: &str, params: &Value) {
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(self.input, "{request}").unwrap();
    }

    fn answer(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// The most memory that the process ever had.
    fn peak(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn sessions_that_ask_for_everything_and_read_nothing_hold_little_and_lose_nothing() {
    let lab = Lab::empty();
    let given = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&given);
    let served = AtomicUsize::new(0);
    let _agent = StandIn::listen(&lab.host.extra_socket(), move |_, peer| {
        let is_escaped = served.fetch_add(1, Ordering::SeqCst).is_multiple_of(ESCAPED);
        let line = format!("D {}\n", if is_escaped { "\u{1}" } else { "x" }.repeat(LINE - 3));
        for _ in 0..RESPONSE / LINE {
            peer.write(&line)?;
            counter.fetch_add(LINE, Ordering::SeqCst);
        }
        peer.write("OK\n")
    });
    let mut editor = Editor::start(&lab);
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        editor.send(number, "connectAgent", &json!({}));
        sessions.push(editor.answer()["result"]["sessionId"].clone());
    }
    for (number, session) in sessions.iter().enumerate() {
        let params = json!({ "sessionId": session, "block": "GETINFO s2k_count" });
        editor.send(number, "sendCommands", &params);
    }
    let (mut last, mut looks) = (0, 0);
    eventually("nothing more is taken from the agent", || {
        let before = std::mem::replace(&mut last, given.load(Ordering::SeqCst));
        let rests = last > 0 && last == before && is_asleep(editor.process.id());
        looks = if rests { looks + 1 } else { 0 };
        looks == LOOKS
    });
    println!("{} MiB of the agent are taken, {} MiB is the peak", last >> 20, editor.peak() >> 20);
    assert!(last < SESSIONS * RESPONSE / 4 * 3, "the agent is read on: {last} bytes");
    assert!(editor.peak() < MOST_MEMORY, "{} MiB", editor.peak() >> 20);

    // An editor that reads again gets everything.
    let size = RESPONSE / LINE * LINE + "OK\n".len();
    let mut answered = vec![false; SESSIONS];
    for _ in 0..SESSIONS {
        let answer = editor.answer();
        let response = answer["result"]["response"].as_str().unwrap();
        assert!(
            response.len() == size
                && (response.ends_with("x\nOK\n") || response.ends_with("\u{1}\nOK\n")),
            "{}",
            response.len()
        );
        answered[usize::try_from(answer["id"].as_u64().unwrap()).unwrap()] = true;
    }
    assert!(answered.iter().all(|&is_answered| is_answered));
    println!("{} MiB is the peak in the end", editor.peak() >> 20);
    assert!(editor.peak() < MOST_MEMORY, "{} MiB", editor.peak() >> 20);
}

#[test]
fn large_requests_have_one_bound_together() {
    let lab = Lab::empty();
    // It reads one line, and never answers.
    let (end, ended) = mpsc::channel::<()>();
    let ended = Mutex::new(ended);
    let _agent = StandIn::listen(&lab.host.extra_socket(), move |_, _| {
        let _ = ended.lock().unwrap().recv();
        Ok(())
    });
    let _end = end;
    let mut editor = Editor::start(&lab);
    let block =
        format!("GETINFO s2k_count\n{}", format!("# {}\n", "x".repeat(997)).repeat(8 * 1024));
    let mut rejected = 0;
    for number in 0..8 {
        editor.send(number, "connectAgent", &json!({}));
        let session = editor.answer()["result"]["sessionId"].clone();
        editor.send(number, "sendCommands", &json!({ "sessionId": session, "block": block }));
        // The next question is read after it, and answered whatever became of it.
        editor.send(100, "checkVersion", &json!({ "version": "0.1.0" }));
        let mut answer = editor.answer();
        if answer["id"] != 100 {
            assert_eq!(
                (&answer["id"], &answer["error"]["code"]),
                (&json!(number), &json!(-32000)),
                "{answer}"
            );
            rejected += 1;
            answer = editor.answer();
        }
        assert_eq!(answer["id"], 100);
    }
    assert!((4..8).contains(&rejected), "{rejected} of 8 are rejected");
    println!("{} MiB is the peak", editor.peak() >> 20);
    assert!(editor.peak() < MOST_MEMORY, "{} MiB", editor.peak() >> 20);
}
