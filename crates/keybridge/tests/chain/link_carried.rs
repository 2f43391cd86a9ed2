//! `keybridge link` with the real helper: the test carries the bytes between the two, as an editor
//! does.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use crate::lab::{
    self, KEYBRIDGE, Lab, PATIENCE, eventually, is_alive, output, run, run_with, text,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

/// A window of an editor: `keybridge link` at one end, the helper at the other, and the test in
/// between.
struct Window {
    link: Child,
    to_link: Arc<Mutex<ChildStdin>>,
    told: Receiver<Value>,
    /// The processes that were started for it, in order.
    helpers: Arc<Mutex<Vec<u32>>>,
}

impl Window {
    fn open(lab: &Lab) -> Self {
        Self::open_with(lab, &[])
    }

    fn open_with(lab: &Lab, arguments: &[&str]) -> Self {
        let mut link = lab
            .keybridge()
            .env("KEYBRIDGE_STATE", lab.at("state"))
            .args(["link", "--target", "vscode:test+remote", "--lanes", "gpg"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to_link = Arc::new(Mutex::new(link.stdin.take().unwrap()));
        let helpers = Arc::new(Mutex::new(Vec::new()));
        let (tell, told) = channel();
        let carrier = Carrier {
            target: lab.target.path().to_owned(),
            to_link: Arc::clone(&to_link),
            helpers: Arc::clone(&helpers),
            inputs: HashMap::new(),
            tell,
        };
        let from_link = link.stdout.take().unwrap();
        std::thread::spawn(move || carrier.carry(from_link));
        Self { link, to_link, told, helpers }
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

    /// Waits until the bridge is in a state.
    fn is(&self, state: &str) -> Value {
        loop {
            let status = self.told("status");
            if status["state"] == state {
                return status;
            }
        }
    }

    fn send(&self, method: &str, params: &Value) {
        tell(&self.to_link, method, params);
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

    /// The helper that serves; others only ask.
    fn helper_pid(&self) -> u32 {
        let helpers = self.helpers.lock().unwrap();
        let serves = |pid: &&u32| {
            let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            words.split(|&byte| byte == 0).nth(1) == Some(b"serve")
        };
        *helpers.iter().rfind(serves).unwrap()
    }

    /// Waits for the end of all programs; says why it came, and whether the link's status is good.
    fn ended(mut self) -> (Value, bool) {
        let why = self.told("ended");
        let mut status = None;
        eventually("the link ends", || {
            status = self.link.try_wait().unwrap();
            status.is_some()
        });
        for pid in self.helpers.lock().unwrap().iter() {
            eventually("the helper ends", || !is_alive(*pid));
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
        for pid in self.helpers.lock().unwrap().iter() {
            lab::signal(*pid, rustix::process::Signal::KILL);
        }
    }
}

/// What an editor's two extensions do.
struct Carrier {
    target: PathBuf,
    to_link: Arc<Mutex<ChildStdin>>,
    helpers: Arc<Mutex<Vec<u32>>>,
    inputs: HashMap<u64, ChildStdin>,
    tell: Sender<Value>,
}

impl Carrier {
    fn carry(mut self, from_link: impl Read) {
        for line in BufReader::new(from_link).lines() {
            let message: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let params = &message["params"];
            let process = params["process"].as_u64().unwrap_or_default();
            match message["method"].as_str() {
                Some("run") => self.start(process, &params["arguments"]),
                Some("input") => {
                    let data = params["data"].as_str().unwrap();
                    assert!(data.len() <= 256 * 1024, "{} characters", data.len());
                    let bytes = BASE64_STANDARD.decode(data).unwrap();
                    // A helper that has ended is told by its end.
                    let _ = self.inputs.get_mut(&process).unwrap().write_all(&bytes);
                }
                Some("endInput") => drop(self.inputs.remove(&process)),
                Some(_) | None => {}
            }
            let _ = self.tell.send(message);
        }
        // The end of the link is the end of every helper's input.
    }

    fn start(&mut self, process: u64, arguments: &Value) {
        let arguments: Vec<String> = serde_json::from_value(arguments.clone()).unwrap();
        let mut helper = Command::new(Path::new(KEYBRIDGE).with_file_name("keybridge-remote"))
            .args(arguments)
            .env("GNUPGHOME", &self.target)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        self.helpers.lock().unwrap().push(helper.id());
        self.inputs.insert(process, helper.stdin.take().unwrap());
        let pass_on = |from: Box<dyn Read + Send>, method: &'static str| {
            let to_link = Arc::clone(&self.to_link);
            std::thread::spawn(move || pass_on(from, &to_link, process, method))
        };
        let stderr = pass_on(Box::new(helper.stderr.take().unwrap()), "complaint");
        let stdout = pass_on(Box::new(helper.stdout.take().unwrap()), "output");
        let to_link = Arc::clone(&self.to_link);
        std::thread::spawn(move || {
            stdout.join().unwrap();
            stderr.join().unwrap();
            let code = helper.wait().unwrap().code();
            tell(&to_link, "exited", &json!({ "process": process, "code": code }));
        });
    }
}

fn pass_on(mut from: impl Read, to: &Mutex<ChildStdin>, process: u64, method: &str) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        let data = BASE64_STANDARD.encode(&buffer[..count]);
        tell(to, method, &json!({ "process": process, "data": data }));
    }
}

fn tell(to: &Mutex<ChildStdin>, method: &str, params: &Value) {
    write(to, &json!({ "jsonrpc": "2.0", "method": method, "params": params }));
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
    assert_eq!(ready["lanes"]["gpg"]["socket"], lab.target.socket().to_str().unwrap());
    assert_eq!(ready["state"], "ready");
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
        assert!(!lab.target.file(name).exists(), "{name} stays");
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
    // No more than the setting allows, which is the user's own keys by default.
    let stranger = include_bytes!("../golden/claimed/hostile.pgp");
    lab::run_with(&mut lab.host.gpg(["--import"]), stranger);
    let answer = window.call("sync", &json!({ "keys": ["all"] }));
    assert_eq!((&answer["result"]["new"], &answer["result"]["unchanged"]), (&json!(0), &json!(1)));
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
    assert!(second.helpers.lock().unwrap().is_empty());
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
fn a_helper_that_dies_is_run_again() {
    let lab = Lab::with_key();
    let window = Window::open(&lab);
    window.told("ready");
    lab::signal(window.helper_pid(), rustix::process::Signal::KILL);
    // What was told before the kill may still come.
    eventually("the helper is run again", || window.is("ready")["reconnects"] == 1);
    signs(&lab);
    window.stop();
}

#[test]
fn the_end_of_the_editor_is_the_end_of_both() {
    let lab = Lab::with_key();
    let mut window = Window::open_with(&lab, &["--outlive", "1"]);
    window.told("ready");
    let helper = window.helper_pid();
    // The writer of the pipe is shared with the threads that carry; a new one takes its place.
    let mut stand_in = keybridge_lab::command("true").stdin(Stdio::piped()).spawn().unwrap();
    *window.to_link.lock().unwrap() = stand_in.stdin.take().unwrap();
    stand_in.wait().unwrap();
    eventually("the link ends", || window.link.try_wait().unwrap().is_some());
    // It outlives its link for a second alone here.
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
    assert_eq!(why["kind"], "in-use", "{why}");
    assert!(why["hints"].to_string().contains("--replace"), "{why}");

    let (why, _) = Window::open_with(&lab, &["--gnupg-home", "/nonexistent/home"]).ended();
    assert!(why["message"].as_str().unwrap().contains("/nonexistent/home"), "{why}");
    assert_eq!(why["kind"], "no-agent");
}

#[test]
fn addresses_of_other_kinds_are_refused() {
    let lab = Lab::empty();
    for (target, why) in [
        ("vscode:", "needs an authority"),
        ("local:/x", "not the remote of an editor"),
        ("web", "not the remote of an editor"),
        ("vscode\u{1b}", "not the address of a target"),
    ] {
        let output = output(lab.keybridge().args(["link", "--target", target]));
        assert_eq!(output.status.code(), Some(2), "{target}");
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
    let output = output(lab.keybridge().args(["up", "vscode:ssh-remote+box"]));
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("open a window on it"), "{}", text(&output.stderr));
}

#[test]
fn what_is_no_call_is_passed_over() {
    let lab = Lab::with_key();
    let window = Window::open(&lab);
    for line in ["{", "[]", "7", r#"{"method":"x"}"#, r#"{"method":"output"}"#, ""] {
        window.to_link.lock().unwrap().write_all(format!("{line}\n").as_bytes()).unwrap();
    }
    window.send("output", &json!({ "process": 9, "data": "no base64!" }));
    window.send("exited", &json!({ "process": 9, "code": 0 }));
    window.told("ready");
    window.send("complaint", &json!({ "process": 1, "data": "no base64!" }));
    signs(&lab);
    window.stop();
}
