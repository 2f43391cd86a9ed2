//! `down` ends every bridge, and never says "undone" of what it couldn't undo.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

use rustix::process::Signal;

use crate::lab::{
    self, Bridge, eventually, is_alive, need_root, run, set_owner, signal, text, write_program,
};
use crate::settings::Scene;

/// The process of the bridge of a target.
fn pid_of(scene: &Scene, address: &str) -> u32 {
    let status = scene.status_of(address);
    u32::try_from(status["pid"].as_u64().unwrap()).unwrap()
}

/// A command that goes on beside the test.
fn begin(scene: &Scene, words: &[&str]) -> Child {
    let mut command = scene.lab.keybridge();
    command.env("XDG_RUNTIME_DIR", scene.lab.at("run")).args(words);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The complete output of a command that has to succeed.
#[track_caller]
fn end(command: Child) -> String {
    let ended = command.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}{}", text(&ended.stdout), text(&ended.stderr));
    text(&ended.stdout)
}

/// A second home that a command leads to, whose commands begin and end only while nothing is at `gate`.
struct Gated {
    home: PathBuf,
    gate: PathBuf,
    address: String,
}

impl Gated {
    fn new(scene: &Scene) -> Self {
        let (home, gate) = (scene.lab.at("far"), scene.lab.at("gate"));
        lab::make_private(&home);
        lab::make_private(&home.join(".gnupg"));
        let wait = format!("while [ -p {0} ] && ! read -r _ <{0}; do :; done", gate.display());
        let program = scene.lab.at("bin/far");
        let home_of = format!("export HOME={}; unset GNUPGHOME", home.display());
        write_program(
            &program,
            format!("#!/bin/sh\n{home_of}\n{wait}\n\"$@\"\nresult=$?\n{wait}\nexit $result\n"),
        );
        Self { home, gate, address: format!("exec:{}", program.display()) }
    }

    fn close(&self) {
        run(lab::command("mkfifo").arg(&self.gate));
    }

    fn open(&self) {
        let waiting = File::options().write(true).open(&self.gate).unwrap();
        fs::remove_file(&self.gate).unwrap();
        drop(waiting);
    }
}

fn is_undone(home: &Path) -> bool {
    let configuration = fs::read_to_string(home.join("gpg.conf")).unwrap_or_default();
    !configuration.contains("keybridge") && !home.join("S.gpg-agent").exists()
}

#[test]
fn no_bridge_is_killed_that_undoes_and_none_that_hangs_keeps_down_from_its_end() {
    let scene = Scene::new();
    let hanging_home = scene.lab.at("u");
    lab::make_private(&hanging_home);
    let hanging = lab::local(&hanging_home);
    let slow = Gated::new(&scene);
    scene.up(&[]);
    scene.keybridge(&["up", &hanging, &slow.address]);
    let (stopped, undoing) = (pid_of(&scene, &hanging), pid_of(&scene, &slow.address));
    slow.close();
    signal(stopped, Signal::STOP);
    let down = begin(&scene, &["down", "--all"]);
    eventually("the one that hangs is gone, and undone", || {
        !is_alive(stopped) && is_undone(&hanging_home)
    });
    eventually("the one that answers is undone", || is_undone(scene.lab.target.path()));
    assert!(is_alive(undoing), "it undoes");
    slow.open();
    let shown = end(down);
    eventually("its process has ended", || !is_alive(undoing));
    assert_eq!(shown.matches(" undone").count(), 3, "{shown}");
    assert!(is_undone(&slow.home.join(".gnupg")), "{shown}");
    assert!(scene.keybridge(&["status"]).contains("nothing is bridged"));
}

#[test]
fn a_bridge_that_is_killed_while_it_undoes_never_keeps_down_from_undoing() {
    let scene = Scene::new();
    let slow = Gated::new(&scene);
    scene.keybridge(&["up", &slow.address]);
    let undoing = pid_of(&scene, &slow.address);
    slow.close();
    let down = begin(&scene, &["down", &slow.address]);
    eventually("it has begun to undo", || is_undone(&slow.home.join(".gnupg")));
    signal(undoing, Signal::KILL);
    eventually("its process has ended", || !is_alive(undoing));
    slow.open();
    assert!(end(down).contains("undone"));
    assert!(scene.keybridge(&["status"]).contains("nothing is bridged"));
}

/// The process of a bridge whose control socket the test has.
struct Fake {
    folder: PathBuf,
    holder: Child,
    control: UnixListener,
}

impl Fake {
    fn new(scene: &Scene) -> Self {
        let folder = scene.lab.at("run/keybridge/1111111111111111");
        lab::make_private(folder.parent().unwrap());
        lab::make_private(&folder);
        fs::write(folder.join("target"), &scene.address).unwrap();
        // Not this process, which would be ended if it took its time.
        let hold = "open my $lock, '>', $ARGV[0] or die; flock $lock, 2 or die; $| = 1; print \"held\\n\"; <STDIN>";
        let mut holder = lab::command("perl")
            .args(["-e", hold])
            .arg(folder.join("lock"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let control = UnixListener::bind(folder.join("control")).unwrap();
        Self { folder, holder, control }
    }

    /// Stops as the next client asks it to.
    fn stop(mut self) {
        let (mut client, _) = self.control.accept().unwrap();
        let mut line = String::new();
        BufReader::new(&client).read_line(&mut line).unwrap();
        assert!(line.contains("stop"), "{line}");
        let answers = concat!(
            r#"{"answer":"stopping"}"#,
            "\n",
            r#"{"answer":"ended","outcome":{"undone":{"may_ask":false}}}"#,
            "\n"
        );
        client.write_all(answers.as_bytes()).unwrap();
        fs::remove_file(self.folder.join("control")).unwrap();
        drop(self.holder.stdin.take());
        assert!(self.holder.wait().unwrap().success(), "no force was used");
    }
}

#[test]
fn a_bridge_that_hangs_is_never_asked_anything_before_it_is_told_to_stop() {
    let scene = Scene::new();
    let bridge = Fake::new(&scene);
    let down = begin(&scene, &["down", "--all"]);
    bridge.stop();
    assert!(end(down).contains("undone"));
}

#[test]
fn a_bridge_that_cannot_be_asked_at_first_is_asked_again_before_force_is_used() {
    let scene = Scene::new();
    let bridge = Fake::new(&scene);
    let down = begin(&scene, &["down", "--all"]);
    drop(bridge.control.accept().unwrap());
    let pid = bridge.holder.id();
    bridge.control.set_nonblocking(true).unwrap();
    let mut again = None;
    eventually("it is asked again", || {
        assert!(is_alive(pid), "force was used");
        again = bridge.control.accept().ok();
        again.is_some()
    });
    drop(again);
    bridge.control.set_nonblocking(false).unwrap();
    bridge.stop();
    assert!(end(down).contains("undone"));
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn a_target_that_cannot_be_undone_is_not_called_undone() {
    need_root();
    let scene = Scene::new();
    let home = scene.lab.target.path();
    scene.up(&[]);
    set_owner(home, 12345);
    for _ in 0..2 {
        let ended = scene.try_keybridge(&["down", &scene.address]);
        let (shown, said) = (text(&ended.stdout), text(&ended.stderr));
        assert_eq!(ended.status.code(), Some(1), "{shown}{said}");
        assert!(!shown.contains("undone"), "{shown}");
        assert!(said.contains("gpg.conf"), "what stays is named: {said}");
        let status = scene.keybridge(&["status"]);
        assert!(status.contains("what its bridge did there isn't undone"), "{status}");
        let all = scene.try_keybridge(&["down", "--all"]);
        assert_eq!(all.status.code(), Some(1), "{}", text(&all.stdout));
    }
    set_owner(home, 0);
    let shown = scene.keybridge(&["down", "--all"]);
    assert!(shown.contains("undone") && is_undone(home), "{shown}");
    assert!(scene.keybridge(&["down", &scene.address]).contains("is not bridged"));
    assert!(scene.keybridge(&["status"]).contains("nothing is bridged"));
}

#[test]
fn what_another_bridge_uses_is_never_called_undone() {
    let scene = Scene::new();
    let mut killed = scene.lab.up_command(&[]);
    killed.env("XDG_RUNTIME_DIR", scene.lab.at("run"));
    Bridge::start(killed).kill();
    // Of somebody else, whose helper takes over what the first one left.
    let mut other = scene.lab.up_command(&[]);
    other.env("KEYBRIDGE_STATE", scene.lab.at("other-state"));
    let other = Bridge::start(other);
    let shown = scene.keybridge(&["down", &scene.address]);
    let at_work = format!("a helper (pid {}) is at work in ", other.helper_pid());
    assert!(shown.contains(&at_work) && !shown.contains("; undone"), "{shown}");
    assert!(!is_undone(scene.lab.target.path()), "it is used");
    other.stop();
    assert!(is_undone(scene.lab.target.path()));
}

#[test]
fn a_name_never_finds_an_older_bridge_than_the_one_that_is_alive() {
    let scene = Scene::new();
    let state = scene.lab.at("run/keybridge");
    lab::make_private(&state);
    let folder = |name: &str, age: u64| {
        let folder = state.join(name);
        lab::make_private(&folder);
        let target = folder.join("target");
        fs::write(&target, "docker://keybridge-no-such-container").unwrap();
        let began = SystemTime::now() - Duration::from_secs(age);
        File::options().write(true).open(target).unwrap().set_modified(began).unwrap();
        fs::write(folder.join("log"), format!("{name}\n")).unwrap();
        folder
    };
    // In whatever order they are listed.
    let oldest = folder("5555555555555555", 30);
    folder("0000000000000000", 20);
    folder("9999999999999999", 10);
    folder("7777777777777777", 0);
    folder("8888888888888888", 20);
    let logs = || scene.keybridge(&["logs", "keybridge-no-such-container"]);
    assert_eq!(logs(), "7777777777777777\n");
    let lock = File::create(oldest.join("lock")).unwrap();
    lock.lock().unwrap();
    assert_eq!(logs(), "5555555555555555\n");
}
