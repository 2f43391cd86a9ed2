//! What a target says without end, or in characters that steer a terminal: logs keep their size, and
//! people see only printable text.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::lab::{
    CHATTY, Client, Lab, eventually, fake_helper, local, make_private, output, run, signal, text,
};
use rustix::process::Signal;
use serde_json::Value;

/// What the folder of all bridges may hold.
const MOST_STATE: u64 = 2 * 1024 * 1024;

/// Some hundred kilobytes of the log if each is a line of it.
const QUESTIONS: usize = 5000;

/// How many links of a helper that complains are made.
const LINKS: usize = 6;

/// A host, and a bridge to a second home on it, in the background.
struct Scene {
    lab: Lab,
}

impl Scene {
    fn new() -> Self {
        Self { lab: Lab::with_key() }
    }

    fn keybridge(&self, words: &[&str]) -> Command {
        let mut command = self.lab.keybridge();
        command.env("KEYBRIDGE_STATE", self.state()).args(words);
        command
    }

    fn state(&self) -> PathBuf {
        self.lab.at("state")
    }

    fn target(&self) -> String {
        local(self.lab.target.path())
    }

    /// `keybridge up` with a helper that is not ours. What it says is in files.
    fn up_with_helper(&self) -> Command {
        let cache = self.lab.at("cache");
        if !cache.exists() {
            make_private(&cache);
        }
        let [ready, answer, complaints] =
            ["READY", "ANSWER", "COMPLAINTS"].map(|name| (name, self.lab.at(name)));
        let words =
            [&ready, &answer, &complaints].map(|(name, path)| (*name, path.to_str().unwrap()));
        let program = fake_helper(&self.lab, CHATTY, &words);
        let mut up = self.keybridge(&["up", &self.target(), "--lanes", "gpg"]);
        up.arg("--helper-program").arg(program).env("XDG_CACHE_HOME", cache);
        up
    }

    /// What the helper says when it is ready, in one piece for a helper that looks for it.
    fn ready(&self, user: &str) {
        let socket = self.lab.target.path().join("S");
        let socket = socket.display();
        let text = format!("user {user}\ngnupg 2.2.40\ngpg-socket {socket}\nkeys 0 0 0 0\n");
        fs::rename(self.lab.file("READY.new", text), self.lab.at("READY")).unwrap();
    }

    /// The processes of bridges, whatever became of their parents.
    fn bridges(&self) -> Vec<u32> {
        let setting = format!("KEYBRIDGE_STATE={}", self.state().display());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
        let words = |pid: u32, what: &str| {
            let words = fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
            text(&words).split('\0').map(str::to_owned).collect::<Vec<_>>()
        };
        pids.filter(|&pid| {
            words(pid, "cmdline").get(1).is_some_and(|verb| verb == "serve")
                && words(pid, "cmdline")[0].ends_with("/keybridge")
                && words(pid, "environ").contains(&setting)
        })
        .collect()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // What a test that failed has left.
        let _ = self.keybridge(&["down", "--all"]).output();
        for pid in self.bridges() {
            signal(pid, Signal::KILL);
        }
    }
}

/// The size of all files in a folder.
fn size(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let size_of = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path()),
        Ok(found) => found.len(),
        Err(_) => 0,
    };
    entries.map(size_of).sum()
}

/// Whether a terminal shows these bytes as they are.
fn is_printable(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    text.split('\n').all(|line| keybridge_proto::printable_json(line) == line)
}

#[test]
fn a_loop_of_questions_leaves_the_log_small() {
    let scene = Scene::new();
    run(&mut scene.keybridge(&["up", &scene.target()]));
    let before = size(&scene.state());
    let mut client = Client::greeted(&scene.lab.target.path().join("S.gpg-agent"));
    let grip = &scene.lab.host.keygrips()[0];
    for _ in 0..QUESTIONS / 100 {
        client.send(format!("KEYINFO {grip}\n").repeat(100));
        for _ in 0..100 {
            assert!(text(&client.response()).ends_with("OK\n"));
        }
    }
    drop(client);
    // Sessions that break are no better.
    for _ in 0..500 {
        let mut client = Client::greeted(&scene.lab.target.path().join("S.gpg-agent"));
        client.send("x".repeat(2000) + "\n");
        client.rest();
    }
    let grown = size(&scene.state()) - before;
    println!("the state folder has grown by {grown} bytes");
    assert!(grown < 16 * 1024, "the state folder has grown by {grown} bytes");
    run(&mut scene.keybridge(&["down", &scene.target()]));
}

#[test]
fn a_helper_that_complains_and_ends_again_and_again_leaves_the_log_small() {
    let scene = Scene::new();
    scene.ready("nobody");
    scene.lab.file("COMPLAINTS", format!("WARN {}\n", "x".repeat(4000)).repeat(1500));
    let mut most = 0;
    for _ in 0..LINKS {
        // The first one makes the bridge, and each further one another link at once.
        output(&mut scene.up_with_helper());
        most = most.max(size(&scene.state()));
    }
    println!("the state folder had {most} bytes");
    assert!(most < MOST_STATE, "the state folder had {most} bytes");
    let log = text(&run(&mut scene.keybridge(&["logs", &scene.target()])));
    // All links together have one quota; the test may take longer than a minute.
    let lines = log.lines().filter(|line| line.contains("xxx")).count();
    assert!((1..=3 * 99).contains(&lines), "{lines} lines of the helper");
    assert!(log.contains("too many log lines"), "{log}");
}

#[test]
fn text_of_a_target_is_cut_and_made_printable_when_it_arrives() {
    for user in ["\u{1}".repeat(7500), "u".repeat(15 * 1024), "\u{202e}\u{2066}\u{9b}x".repeat(900)]
    {
        let scene = Scene::new();
        scene.ready(&user);
        scene.lab.file("ANSWER", "\u{1b}[31m\u{202e}");
        let mut shown = Vec::new();
        let mut show = |words: &[&str]| {
            let ended = output(&mut scene.keybridge(words));
            assert!(ended.status.success(), "{words:?}: {}", text(&ended.stderr));
            shown.push((words.join(" "), ended.stdout.clone()));
            shown.push((words.join(" "), ended.stderr));
            ended.stdout
        };
        let up = output(&mut scene.up_with_helper());
        assert!(up.status.success(), "{}", text(&up.stderr));
        let target = scene.target();
        show(&["status"]);
        let status: Value = serde_json::from_slice(&show(&["status", "--json"])).unwrap();
        let user = status["bridges"][0]["user"].as_str().unwrap();
        assert!((1..=256).contains(&user.len()), "{} bytes", user.len());
        show(&["up", "--json", &target]);
        show(&["logs", &target]);
        show(&["down", &target]);
        show(&["status", "--json"]);
        shown.push(("up".to_owned(), up.stdout));
        shown.push(("up".to_owned(), up.stderr));
        for (words, bytes) in shown {
            assert!(is_printable(&bytes), "{words}: {}", keybridge_proto::printable(&bytes));
        }
        eventually("its process has ended", || scene.bridges().is_empty());
    }
}

#[test]
fn an_up_that_is_killed_or_fails_ends_the_process_that_it_started() {
    let scene = Scene::new();
    // The helper doesn't say that it is ready, so that `up` waits.
    let mut up = scene.up_with_helper();
    let mut up = up.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the bridge's process is there", || scene.bridges().len() == 1);
    let begun = |scene: &Scene| {
        let log = output(&mut scene.keybridge(&["logs", &scene.target()]));
        text(&log.stdout).contains("the helper's HELLO came")
    };
    eventually("the helper runs", || begun(&scene));
    up.kill().unwrap();
    up.wait().unwrap();
    assert_eq!(scene.bridges().len(), 1, "it waits until the helper can undo what it has done");
    scene.ready("nobody");
    eventually("its process has ended", || scene.bridges().is_empty());
    let status = text(&run(&mut scene.keybridge(&["status"])));
    assert!(!status.contains(&scene.target()), "{status}");

    // One that fails waits for that end.
    let failed = output(scene.up_with_helper().args(["--gnupg-home", "/nonexistent"]));
    assert!(!failed.status.success());
    assert_eq!(scene.bridges(), Vec::<u32>::new());
}
