//! A person is asked, by `keybridge approve` at a real terminal and by gpg-agent's pinentry.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::thread;

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::git_lane::Work;
use crate::lab::{AtTerminal, Lab, eventually, text, write_program};
use crate::settings::Scene;
use crate::uses::git_tells_why;

/// What stands below a question that can be answered.
const OPEN: &str = "[n] no";

/// The same, below a message that isn't shown whole.
const LONG: &str = "[m] whole message";

/// A bridge that asks for commits in one way.
fn asking_by(way: &str) -> Scene {
    let scene = Scene::new();
    scene.up(&["--uses", "commit,tag", "--ask", "commit", "--ask-by", way]);
    scene
}

/// A console, of one target or of all.
fn started(scene: &Scene, targets: &[&str]) -> AtTerminal {
    let mut approve = scene.lab.keybridge();
    approve.env("XDG_RUNTIME_DIR", scene.lab.at("run")).arg("approve").args(targets);
    AtTerminal::start(&approve)
}

/// A console that has found the bridge.
fn console(scene: &Scene) -> AtTerminal {
    let mut console = started(scene, &[]);
    console.wait_for(" asks here");
    console
}

pub(crate) const SIGNED: [&str; 5] = ["commit", "--quiet", "--allow-empty", "-S", "-m"];

fn commit(work: &Work<'_>, message: &str) -> Output {
    work.try_git(&[&SIGNED[..], &[message]].concat())
}

/// Has a commit signed while somebody does something.
pub(crate) fn while_signing(work: &Work<'_>, message: &str, act: impl FnOnce()) -> Output {
    thread::scope(|scope| {
        let signing = scope.spawn(|| commit(work, message));
        act();
        signing.join().unwrap()
    })
}

#[track_caller]
pub(crate) fn is_refused(commit: &Output, why: &str) {
    let said = text(&commit.stderr);
    assert!(!commit.status.success(), "{said}");
    let told = said.contains(&format!("refused on the host: {why}; "));
    assert!(told || !git_tells_why(), "{said}");
}

#[test]
fn a_person_at_a_terminal_says_yes_once_and_no_for_a_minute() {
    let scene = asking_by("approve");
    let work = Work::new(&scene.lab);
    let mut console = console(&scene);
    let signed = while_signing(&work, "Fix it\n\nReally.", || {
        console.wait_for(LONG);
        console.type_keys("m");
        console.wait_for(LONG);
        console.type_keys("y");
        console.wait_for("yes, by approve");
    });
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    work.on_host(&["verify-commit", "HEAD"]);
    let refused = while_signing(&work, "and more", || {
        console.wait_for(OPEN);
        console.type_keys("n");
        console.wait_for("refused: a person said no");
    });
    is_refused(&refused, "a person said no");
    is_refused(&commit(&work, "and more"), "a person said no to this a moment ago");
    // Tags aren't asked for.
    work.git(&["tag", "-s", "-m", "a tag", "v1"]);
    let shown = console.shown_so_far().replace('\r', "");
    let key = scene.lab.host.fingerprint();
    for part in [
        " wants a commit signed\n  | Fix it\n  and 2 more lines (m shows them)\n",
        "  Lab <lab@keybridge.example>, no parent, tree ",
        &format!("  with {} <lab@keybridge.example>\n", &key[key.len() - 16..]),
        "  | Fix it\n  | \n  | Really.\n",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(shown.matches(" wants a commit signed").count(), 2, "{shown}");
    console.type_keys("q");
    assert_eq!(console.ended().0, 0);
    is_refused(&commit(&work, "later"), "a person said no to this a moment ago");
}

#[test]
fn a_rebase_of_thirty_is_one_question_to_which_yes_is_said_for_a_while() {
    let scene = asking_by("approve");
    let work = Work::new(&scene.lab);
    for number in 0..=30 {
        work.commit(&number.to_string(), &["--no-gpg-sign"]);
    }
    let mut console = console(&scene);
    let sign = "git -c user.name=Lab -c user.email=lab@keybridge.example commit --quiet --amend \
                    --allow-empty --no-edit -S";
    let rebase = ["rebase", "--quiet", "--exec", sign, "HEAD~30"];
    thread::scope(|scope| {
        let rebasing = scope.spawn(|| work.try_git(&rebase));
        console.wait_for(OPEN);
        console.type_keys("t");
        let rebased = rebasing.join().unwrap();
        assert!(rebased.status.success(), "{}", text(&rebased.stderr));
    });
    let commits = work.git(&["rev-list", "HEAD~30..HEAD"]);
    let commits: Vec<&str> = commits.lines().collect();
    assert_eq!(commits.len(), 30);
    work.on_host(&[&["verify-commit"], &commits[..]].concat());
    assert_eq!(console.shown_so_far().matches(" wants a commit signed").count(), 1);
}

#[test]
fn the_first_of_two_consoles_decides_and_without_any_nothing_is_signed() {
    let scene = asking_by("approve");
    let work = Work::new(&scene.lab);
    is_refused(&commit(&work, "alone"), "nobody is there who could be asked");
    let (mut first, mut other) = (console(&scene), console(&scene));
    let signed = while_signing(&work, "one", || {
        first.wait_for(OPEN);
        other.wait_for(OPEN);
        first.type_keys("y");
        other.wait_for("yes, by approve");
    });
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    let refused = while_signing(&work, "two", || {
        first.wait_for(OPEN);
        other.wait_for(OPEN);
        drop(first);
        // It has been asked at the other one all the time. That one goes too.
        drop(other);
    });
    is_refused(&refused, "nobody is there who could be asked");
    // Nor is the question still there for one who comes later.
    let mut late = console(&scene);
    assert!(!late.shown_so_far().contains("wants"));
}

#[test]
fn status_says_what_waits_for_a_person() {
    let scene = Scene::new();
    let never = scene.lab.at("never");
    crate::lab::run(crate::lab::command("mkfifo").arg(&never));
    pinentry(&scene.lab, &format!("read -r _ <{}; echo OK", never.display()));
    scene.up(&["--uses", "commit", "--ask", "commit"]);
    let work = Work::new(&scene.lab);
    let signed = while_signing(&work, "one", || {
        eventually("status says it", || {
            let waiting = &scene.status()["waiting"];
            waiting[0]["what"][0] == "commit" && waiting[0]["waits_for"] == "answer"
        });
        let shown = scene.keybridge(&["status"]);
        assert!(shown.contains(": commit waits for a yes for "), "{shown}");
        drop(std::fs::File::options().write(true).open(&never).unwrap());
    });
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    assert!(scene.status()["waiting"].is_null());
}

#[test]
fn a_client_that_goes_takes_its_question_with_it() {
    let scene = asking_by("approve");
    let work = Work::new(&scene.lab);
    let mut console = console(&scene);
    let mut git = work.command(&scene.lab.target);
    git.args(SIGNED).arg("one").stdin(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut client = git.spawn().unwrap();
    console.wait_for(OPEN);
    rustix::process::kill_process_group(Pid::from_child(&client), Signal::TERM).unwrap();
    assert!(!client.wait().unwrap().success());
    console.wait_for("its client has gone");
}

#[test]
fn a_message_neither_steers_the_terminal_nor_fakes_a_question() {
    let scene = asking_by("approve");
    let work = Work::new(&scene.lab);
    let mut console = console(&scene);
    let fake = "web (docker) wants a tag signed\n[y] once   [t] for 15 min   [n] no";
    let message = format!("\u{1b}[2J\u{202e}x\n{fake}\n{}", "0123456789abcdef\n".repeat(4000));
    let signed = while_signing(&work, &message, || {
        console.wait_for(LONG);
        console.type_keys("m");
        console.wait_for(LONG);
        console.type_keys("y");
        console.wait_for("yes, by approve");
    });
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    let shown = console.shown_so_far();
    assert!(!shown.contains(['\u{1b}', '\u{202e}']), "{shown}");
    assert!(shown.contains("  | \\u{1b}[2J\\u{202e}x\r\n  and "), "{shown}");
    // No line of the message begins where one of ours does.
    assert!(shown.contains("  | web (docker) wants a tag signed\r\n  | [y] once"), "{shown}");
    assert!(
        !shown.contains("\nweb") && shown.contains("more lines, which aren't shown"),
        "{shown}"
    );
}

#[test]
fn a_program_asks_with_lines_of_json() {
    let scene = asking_by("approve");
    let work = Work::new(&scene.lab);
    let mut approve = scene.lab.keybridge();
    approve.env("XDG_RUNTIME_DIR", scene.lab.at("run")).args(["approve", "--json"]);
    let mut program = approve.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next(), json!({"event": "follows", "target": scene.address}));
    let mut answers = program.stdin.take().unwrap();
    let signed = while_signing(&work, "one", || {
        let asked = next();
        assert_eq!(asked["question"]["wanted"]["subject"]["message"], json!(["one"]));
        let id = &asked["question"]["id"];
        writeln!(answers, "{}", json!({"target": scene.address, "id": id, "word": "once"}))
            .unwrap();
        let ended = next();
        assert_eq!((&ended["event"], &ended["id"]), (&json!("ended"), id));
        assert_eq!(ended["how"], json!({"decided": {"person": "approve"}}));
        // Too late: somebody has answered.
        writeln!(answers, "{}", json!({"target": scene.address, "id": id, "word": "no"})).unwrap();
        assert_eq!(next()["error"]["message"], "it was answered already");
    });
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    writeln!(answers, "{}", json!({"target": "docker://other", "id": 0, "word": "once"})).unwrap();
    assert_eq!(next()["error"]["kind"], "no-target");
    drop(answers);
    assert!(program.wait().unwrap().success());
}

#[test]
fn a_console_needs_a_terminal() {
    let ended = Scene::new().try_keybridge(&["approve"]);
    assert_eq!(ended.status.code(), Some(2));
    assert!(text(&ended.stderr).contains("needs a terminal"), "{}", text(&ended.stderr));
}

/// A pinentry that answers a confirmation so, and notes what it was to show in the file it gives back.
fn pinentry(lab: &Lab, answer: &str) -> PathBuf {
    let (shown, pinentry) = (lab.at("shown"), lab.at("bin/pinentry-of-test"));
    let script = format!(
        "#!/bin/sh\necho OK\nwhile read -r verb rest; do case $verb in\n\
         SETDESC) echo \"$rest\" >>{}; echo OK ;;\nCONFIRM) {answer} ;;\nBYE) echo OK; exit ;;\n\
         *) echo OK ;;\nesac; done\n",
        shown.display()
    );
    write_program(&pinentry, script);
    let configuration = format!("pinentry-program {}\n", pinentry.display());
    std::fs::write(lab.host.file("gpg-agent.conf"), configuration).unwrap();
    lab.host.end_agents();
    shown
}

fn questions(shown: &PathBuf) -> Vec<String> {
    let shown = std::fs::read_to_string(shown).unwrap_or_default();
    shown.lines().map(str::to_owned).collect()
}

#[test]
fn a_yes_of_a_pinentry_means_a_while_and_it_says_so() {
    let scene = Scene::new();
    let shown = pinentry(&scene.lab, "echo OK");
    scene.up(&["--uses", "commit", "--ask", "commit"]);
    let work = Work::new(&scene.lab);
    for message in ["100% + one", "two", "three"] {
        let signed = commit(&work, message);
        assert!(signed.status.success(), "{}", text(&signed.stderr));
    }
    let asked = questions(&shown);
    let [question] = asked.as_slice() else { panic!("{asked:?}") };
    assert!(question.contains(" wants a commit signed%0A| 100%25 %2B one%0A"), "{question}");
    assert!(question.ends_with("the same with this key for 15 minutes."), "{question}");
}

#[test]
fn a_no_of_a_pinentry_counts_and_one_that_cannot_be_shown_is_nobody() {
    for (answer, why, then) in [
        (
            "echo 'ERR 83886179 Operation cancelled <Pinentry>'",
            "a person said no",
            "a person said no to this a moment ago",
        ),
        (
            "echo 'ERR 83918950 Inappropriate ioctl for device <Pinentry>'",
            "nobody is there who could be asked",
            "nobody is there who could be asked",
        ),
    ] {
        let scene = Scene::new();
        let shown = pinentry(&scene.lab, answer);
        scene.up(&["--uses", "commit", "--ask", "commit"]);
        let work = Work::new(&scene.lab);
        is_refused(&commit(&work, "one"), why);
        is_refused(&commit(&work, "two"), then);
        assert_eq!(questions(&shown).len(), 1, "{answer}");
    }
}

#[test]
fn a_console_that_comes_takes_the_question_of_a_pinentry() {
    let scene = Scene::new();
    let never = scene.lab.at("never");
    crate::lab::run(crate::lab::command("mkfifo").arg(&never));
    let shown = pinentry(&scene.lab, &format!("read -r _ <{}", never.display()));
    scene.up(&["--uses", "commit", "--ask", "commit"]);
    let work = Work::new(&scene.lab);
    let signed = while_signing(&work, "one", || {
        eventually("a pinentry asks", || questions(&shown).len() == 1);
        let mut console = started(&scene, &[&scene.address]);
        console.wait_for(OPEN);
        console.type_keys("y");
        console.wait_for("yes, by approve");
    });
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    drop(std::fs::File::options().read(true).write(true).open(&never).unwrap());
}

/// A desktop whose notifications are shown by a script, which notes them in the file that this gives back.
fn desktop(scene: &mut Scene, script: &str) -> PathBuf {
    let notified = scene.lab.at("notified");
    let note = format!("printf '%s\\n' \"$*\" >>{}\n{script}\n", notified.display());
    scene.lab.put_before("notify-send", &note);
    scene.lab.file("run/bus", "");
    notified
}

#[test]
fn a_button_of_a_notification_answers_also_for_a_while() {
    let mut scene = Scene::new();
    let notified = desktop(&mut scene, "echo while");
    scene.up(&["--uses", "commit", "--ask", "commit"]);
    let work = Work::new(&scene.lab);
    for message in ["<b>one \\033[2J", "two"] {
        let signed = commit(&work, message);
        assert!(signed.status.success(), "{}", text(&signed.stderr));
    }
    let shown = std::fs::read_to_string(notified).unwrap();
    assert_eq!(shown.matches(" wants a commit signed").count(), 1, "{shown}");
    assert!(shown.contains("\n| &lt;b&gt;one \\\\033[2J\n"), "{shown}");
}

#[test]
fn a_notification_that_is_closed_is_no_answer() {
    let mut scene = Scene::new();
    let notified = desktop(&mut scene, "exit 0");
    let shown = pinentry(&scene.lab, "echo OK");
    scene.up(&["--uses", "commit", "--ask", "commit"]);
    let work = Work::new(&scene.lab);
    let signed = commit(&work, "one");
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    assert_eq!(questions(&shown).len(), 1);
    assert!(std::fs::read_to_string(notified).unwrap().contains(" wants a commit signed"));
}
