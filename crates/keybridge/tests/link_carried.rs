//! `keybridge link` with the real helper: the test carries the bytes between the two, as an editor
//! does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]
#![allow(clippy::indexing_slicing, reason = "a message that lacks a part fails")]

mod lab;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use lab::{KEYBRIDGE, Lab, PATIENCE, eventually, is_alive, output, run, run_with, text};
use serde_json::{Value, json};

/// A window of an editor: `keybridge link` at one end, the helper at the other, and the test in
/// between.
struct Window {
    link: Child,
    to_link: Arc<Mutex<ChildStdin>>,
    told: Receiver<Value>,
    helper: Arc<Mutex<Option<u32>>>,
}

impl Window {
    fn open(lab: &Lab) -> Self {
        Self::open_with(lab, &[])
    }

    fn open_with(lab: &Lab, arguments: &[&str]) -> Self {
        let mut link = lab
            .keybridge()
            .env("KEYBRIDGE_STATE", lab.at("state"))
            .args(["link", "--target", "vscode:test+remote"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to_link = Arc::new(Mutex::new(link.stdin.take().unwrap()));
        let helper = Arc::new(Mutex::new(None));
        let (tell, told) = channel();
        let carrier = Carrier {
            target: lab.target.path().to_owned(),
            to_link: Arc::clone(&to_link),
            helper: Arc::clone(&helper),
            tell,
        };
        let from_link = link.stdout.take().unwrap();
        std::thread::spawn(move || carrier.carry(from_link));
        Self { link, to_link, told, helper }
    }

    /// The parameters of the next notification of this name; others are passed over.
    fn told(&self, method: &str) -> Value {
        loop {
            let message =
                self.told.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("no {method}"));
            if message["method"] == method {
                return message["params"].clone();
            }
            assert_ne!(message["method"], "ended", "before {method}: {message}");
        }
    }

    fn send(&self, method: &str, params: &Value) {
        write(&self.to_link, &json!({ "jsonrpc": "2.0", "method": method, "params": params }));
    }

    /// Calls, and waits for the answer.
    fn call(&self, method: &str, params: &Value) -> Value {
        let call = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        write(&self.to_link, &call);
        loop {
            let message = self.told.recv_timeout(PATIENCE).unwrap();
            if message["id"] == 7 {
                return message;
            }
        }
    }

    fn helper_pid(&self) -> u32 {
        self.helper.lock().unwrap().unwrap()
    }

    /// Waits for the end of both programs; says why it came, and whether the link's status is good.
    fn ended(mut self) -> (Value, bool) {
        let why = self.told("ended");
        let mut status = None;
        eventually("the link ends", || {
            status = self.link.try_wait().unwrap();
            status.is_some()
        });
        let helper = *self.helper.lock().unwrap();
        if let Some(pid) = helper {
            eventually("the helper ends", || !is_alive(pid));
        }
        (why, status.unwrap().success())
    }

    fn stop(self) {
        self.send("stop", &json!({}));
        assert_eq!(self.ended(), (json!({ "why": "stopped" }), true));
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.link.kill();
        let _ = self.link.wait();
        let pid = *self.helper.lock().unwrap();
        if let Some(pid) = pid {
            lab::signal(pid, rustix::process::Signal::KILL);
        }
    }
}

/// What an editor's two extensions do.
struct Carrier {
    target: PathBuf,
    to_link: Arc<Mutex<ChildStdin>>,
    helper: Arc<Mutex<Option<u32>>>,
    tell: Sender<Value>,
}

impl Carrier {
    fn carry(self, from_link: impl Read) {
        let mut to_helper = None;
        for line in BufReader::new(from_link).lines() {
            let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
            match message["method"].as_str() {
                Some("helper") => to_helper = Some(self.start(&message["params"]["arguments"])),
                Some("bytes") => {
                    let data = message["params"]["data"].as_str().unwrap();
                    assert!(data.len() <= 256 * 1024, "{} characters", data.len());
                    let bytes = BASE64_STANDARD.decode(data).unwrap();
                    // A helper that has ended is told below.
                    let _ = to_helper.as_mut().unwrap().write_all(&bytes);
                }
                Some(_) | None => {}
            }
            let _ = self.tell.send(message);
        }
        // The end of the link is the end of the helper's input.
    }

    fn start(&self, arguments: &Value) -> ChildStdin {
        let arguments: Vec<String> = serde_json::from_value(arguments.clone()).unwrap();
        let mut helper = Command::new(Path::new(KEYBRIDGE).with_file_name("keybridge-remote"))
            .args(arguments)
            .env("GNUPGHOME", &self.target)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        *self.helper.lock().unwrap() = Some(helper.id());
        let stdin = helper.stdin.take().unwrap();
        let stderr = pass_on(helper.stderr.take().unwrap(), Arc::clone(&self.to_link), "complaint");
        let stdout = pass_on(helper.stdout.take().unwrap(), Arc::clone(&self.to_link), "bytes");
        let to_link = Arc::clone(&self.to_link);
        std::thread::spawn(move || {
            stdout.join().unwrap();
            stderr.join().unwrap();
            helper.wait().unwrap();
            write(&to_link, &json!({ "jsonrpc": "2.0", "method": "helperEnded", "params": {} }));
        });
        stdin
    }
}

fn pass_on(
    mut from: impl Read + Send + 'static,
    to: Arc<Mutex<ChildStdin>>,
    method: &'static str,
) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let data = BASE64_STANDARD.encode(&buffer[..count]);
            write(&to, &json!({ "jsonrpc": "2.0", "method": method, "params": { "data": data } }));
        }
    })
}

fn write(to: &Mutex<ChildStdin>, message: &Value) {
    // A link that has ended takes nothing.
    let _ = to.lock().unwrap().write_all(format!("{message}\n").as_bytes());
}

fn signs(lab: &Lab) {
    run_with(&mut lab.target.gpg(["--sign"]), b"through the editor");
}

fn status_of_all(lab: &Lab) -> Value {
    let mut command = lab.keybridge();
    command.env("KEYBRIDGE_STATE", lab.at("state")).args(["status", "--json"]);
    serde_json::from_slice(&run(&mut command)).unwrap()
}

#[test]
fn a_window_has_the_whole_chain_and_leaves_nothing() {
    let lab = Lab::with_key();
    let window = Window::open(&lab);
    let ready = window.told("ready");
    assert_eq!(ready["socket"], lab.target.socket().to_str().unwrap());
    assert_eq!(ready["keys"]["new"], 1);
    assert_eq!(ready["status"]["state"], "ready");
    signs(&lab);
    let sealed = run_with(
        &mut lab.target.gpg([
            "--trust-model",
            "always",
            "--encrypt",
            "-r",
            &lab.host.fingerprint(),
        ]),
        b"sealed",
    );
    assert_eq!(run_with(&mut lab.target.gpg(["--decrypt"]), &sealed), b"sealed");
    eventually("the sessions are counted", || {
        let gpg = &window.told("status")["lanes"]["gpg"];
        gpg["total"].as_u64() >= Some(2) && gpg["open"] == 0
    });
    let all = status_of_all(&lab);
    assert_eq!(all["bridges"][0]["target"], "vscode:test+remote");
    assert_eq!(all["bridges"][0]["state"], "ready");
    window.stop();
    for name in ["S.gpg-agent", "gpg.conf", ".keybridge-lock"] {
        assert!(!lab.target.at(name).exists(), "{name} stays");
    }
}

#[test]
fn keys_are_sent_again_by_name() {
    let lab = Lab::with_key();
    let window = Window::open(&lab);
    window.told("ready");
    for keys in [json!(null), json!(["pairs"]), json!([lab.host.fingerprint()]), json!(["lab@"])] {
        let answer = window.call("sync", &json!({ "keys": keys }));
        let result = &answer["result"];
        assert_eq!((&result["new"], &result["unchanged"]), (&json!(0), &json!(1)), "{answer}");
    }
    let answer = window.call("sync", &json!({ "keys": ["lab@", "nobody@"] }));
    assert_eq!(answer["result"]["unchanged"], 1);
    assert_eq!(answer["result"]["warnings"], json!(["no public key matches nobody@"]));
    window.stop();
}

#[test]
fn a_second_window_shares_the_bridge_and_takes_over() {
    let lab = Lab::with_key();
    let first = Window::open(&lab);
    first.told("ready");
    let second = Window::open(&lab);
    assert_eq!(second.told("shared")["status"]["state"], "ready");
    let answer = second.call("sync", &json!({}));
    assert_eq!(answer["result"]["unchanged"], 1, "{answer}");
    let answer = second.call("sync", &json!({ "keys": ["all"] }));
    assert!(answer["error"]["message"].as_str().unwrap().contains("another window"), "{answer}");
    assert!(second.helper.lock().unwrap().is_none());
    first.stop();
    second.told("ready");
    signs(&lab);
    second.stop();
}

#[test]
fn down_all_ends_the_bridge_of_a_window() {
    let lab = Lab::with_key();
    let window = Window::open(&lab);
    window.told("ready");
    let mut down = lab.keybridge();
    run(down.env("KEYBRIDGE_STATE", lab.at("state")).args(["down", "--all"]));
    assert_eq!(window.ended(), (json!({ "why": "stopped" }), true));
    assert!(!lab.target.socket().exists());
}

#[test]
fn a_helper_that_dies_breaks_the_link_and_a_new_one_works() {
    let lab = Lab::with_key();
    let window = Window::open(&lab);
    window.told("ready");
    lab::signal(window.helper_pid(), rustix::process::Signal::KILL);
    let (why, is_good) = window.ended();
    assert_eq!((&why["why"], is_good), (&json!("broken"), false), "{why}");
    let window = Window::open(&lab);
    window.told("ready");
    signs(&lab);
    window.stop();
}

#[test]
fn the_end_of_the_editor_is_the_end_of_both() {
    let lab = Lab::with_key();
    let mut window = Window::open(&lab);
    window.told("ready");
    // The writer of the pipe is shared with the threads that carry; a new one takes its place.
    let mut stand_in = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
    *window.to_link.lock().unwrap() = stand_in.stdin.take().unwrap();
    stand_in.wait().unwrap();
    eventually("the link ends", || window.link.try_wait().unwrap().is_some());
    let helper = window.helper_pid();
    eventually("the helper ends", || !is_alive(helper));
    assert!(!lab.target.socket().exists());
}

#[test]
fn what_can_not_be_set_up_is_told_with_a_way_out() {
    let lab = Lab::with_key();
    // The agent there has a secret key of its own.
    lab.target.make_key();
    let (why, is_good) = Window::open(&lab).ended();
    assert_eq!((&why["why"], is_good), (&json!("failed"), false), "{why}");
    assert!(why["message"].as_str().unwrap().contains("is in use"), "{why}");
    assert!(why["hints"].to_string().contains("--replace"), "{why}");

    let (why, _) = Window::open_with(&lab, &["--gnupg-home", "/nonexistent/home"]).ended();
    assert!(why["message"].as_str().unwrap().contains("/nonexistent/home"), "{why}");
    assert_eq!(why["kind"], "no-agent");
}

#[test]
fn addresses_of_other_kinds_are_refused() {
    let lab = Lab::empty();
    for target in ["", "vscode:", "local:/x", "web", "vscode\u{1b}"] {
        let output = output(lab.keybridge().args(["link", "--target", target]));
        assert_eq!(output.status.code(), Some(2), "{target}");
        assert!(text(&output.stderr).contains("not the address of an editor's remote"), "{target}");
    }
}

#[test]
fn what_is_no_call_is_passed_over() {
    let lab = Lab::with_key();
    let window = Window::open(&lab);
    for line in ["{", "[]", "7", r#"{"method":"x"}"#, r#"{"method":"bytes"}"#, ""] {
        window.to_link.lock().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }
    window.send("bytes", &json!({ "data": "no base64!" }));
    window.told("ready");
    window.send("complaint", &json!({ "data": "no base64!" }));
    signs(&lab);
    window.stop();
}
