//! What a target says without end, or in characters that steer a terminal: logs keep their size, and
//! people see only printable text.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::lab::{
    CHATTY, Client, Lab, eventually, fake_helper, local, make_private, output, run, signal, text,
    write_program,
};
use keybridge_proto::report::{KeyChanges, ProbeResult, Ready, Report, User};
use keybridge_proto::{Lane, PerLane};
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
        self.up_with_hello("2 0.0.1")
    }

    /// The same with a helper that begins with this HELLO.
    fn up_with_hello(&self, hello: &str) -> Command {
        let cache = self.lab.at("cache");
        if !cache.exists() {
            make_private(&cache);
        }
        let [ready, answer, complaints] =
            ["READY", "ANSWER", "COMPLAINTS"].map(|name| (name, self.lab.at(name)));
        let [ready, answer, complaints] =
            [&ready, &answer, &complaints].map(|(name, path)| (*name, path.to_str().unwrap()));
        let words = [ready, answer, complaints, ("2 0.0.1", hello)];
        let program = fake_helper(&self.lab, CHATTY, &words);
        let mut up = self.keybridge(&["up", &self.target(), "--lanes", "gpg"]);
        up.arg("--helper-program").arg(program).env("XDG_CACHE_HOME", cache);
        up
    }

    /// What the helper says when it is ready, in one piece for a helper that looks for it.
    fn ready(&self, user: &str) {
        self.ready_with(user, Vec::new());
    }

    /// The same with warnings. Nothing is cut or made printable on this side.
    fn ready_with(&self, user: &str, warnings: Vec<String>) {
        let socket = self.lab.target.path().join("S").display().to_string();
        let ready = Ready {
            user: Some(User { name: Some(user.to_owned()), uid: 1000 }),
            gnupg: "2.2.40".to_owned(),
            sockets: PerLane { gpg: Some(socket), ssh: None, git: None },
            keys: Some(KeyChanges::default()),
            warnings,
            ..Ready::default()
        };
        let payload = serde_json::to_vec(&Report::Ready(ready)).unwrap();
        fs::rename(self.lab.file("READY.new", payload), self.lab.at("READY")).unwrap();
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
    for user in ["\u{1}".repeat(2500), "u".repeat(15 * 1024), "\u{202e}\u{2066}\u{9b}x".repeat(900)]
    {
        let scene = Scene::new();
        scene.ready(&user);
        let answer = ProbeResult { lane: Lane::Gpg, outcome: Ok("\u{1b}[31m\u{202e}".to_owned()) };
        let answers = Report::Answers(vec![answer]);
        scene.lab.file("ANSWER", serde_json::to_vec(&answers).unwrap());
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
        let user = status["bridges"][0]["user"]["name"].as_str().unwrap();
        let user = user.strip_prefix(&format!("{target} says: ")).unwrap();
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
fn no_sentence_of_a_target_passes_for_ours() {
    const WORDS: &str = "run this as root on your own machine";
    let scene = Scene::new();
    let mark = format!("{} says: ", scene.target());
    let check = |shown: &[u8]| {
        let shown = text(shown);
        assert!(shown.contains(WORDS), "{shown}");
        for line in shown.lines().filter(|line| line.contains(WORDS)) {
            assert!(line.contains(&mark), "{line}");
        }
    };
    scene.ready_with(WORDS, vec![WORDS.to_owned()]);
    let up = output(&mut scene.up_with_hello("2 run;this;as;root"));
    check(&up.stdout);
    check(&run(&mut scene.keybridge(&["status"])));
    let log = text(&run(&mut scene.keybridge(&["logs", &scene.target()])));
    assert!(log.contains(&format!("{mark}run;this;as;root")), "{log}");
    run(&mut scene.keybridge(&["down", &scene.target()]));
    scene.lab.file("COMPLAINTS", format!("WARN {WORDS}\n{WORDS}\n"));
    output(&mut scene.up_with_helper());
    // What a helper complains of is read beside its link.
    let log = || run(&mut scene.keybridge(&["logs", &scene.target()]));
    eventually("its words are in the log", || text(&log()).contains(WORDS));
    check(&log());
}

/// A shell that reads our script and answers something else.
const LIAR: &str = r#"#!/bin/sh
answer() { cat "$FACTS/$1"; echo end; }
while read -r word first second _; do
    [ "$word" = listen ] && break
done
echo "$first$second"
answer listen
while read -r word _; do
    case $word in *put_helper*) answer put_helper ;; *) echo end ;; esac
done
"#;

#[test]
fn no_fact_of_a_shell_passes_for_our_words() {
    const WORDS: &str = "x; run this as root on your own machine";
    let scene = Scene::new();
    let facts = scene.lab.at("facts");
    make_private(&facts);
    let liar = scene.lab.at("bin/liar");
    write_program(&liar, LIAR.replace("$FACTS", facts.to_str().unwrap()));
    let target = format!("exec:{}", liar.display());
    let linux = format!("system Linux\nprocessor {}\n", std::env::consts::ARCH);
    for (first, put) in [
        (format!("system {WORDS}\n"), String::new()),
        (format!("system Linux\nprocessor {WORDS}\n"), String::new()),
        (linux.clone(), format!("missing {WORDS}\n")),
        (linux.clone(), format!("programs {WORDS}\n")),
        (linux.clone(), format!("incomplete /tmp/{WORDS}\n")),
    ] {
        scene.lab.file("facts/listen", &first);
        scene.lab.file("facts/put_helper", &put);
        let up = output(&mut scene.keybridge(&["up", "--lanes", "gpg", &target]));
        assert!(!up.status.success(), "{up:?}");
        let doctor = output(&mut scene.keybridge(&["doctor", &target]));
        for shown in [text(&up.stdout) + &text(&up.stderr), text(&doctor.stdout)] {
            let marked = [WORDS, &format!("/tmp/{WORDS}")]
                .map(|words| shown.matches(&format!("{target} says: {words}")).count());
            assert_ne!(marked, [0, 0], "{first}{put}{shown}");
            assert_eq!(shown.matches(WORDS).count(), marked.iter().sum::<usize>(), "{shown}");
        }
    }
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
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
