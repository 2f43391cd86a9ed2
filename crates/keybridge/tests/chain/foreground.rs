//! A bridge in the foreground is one like any other: other commands find it, and none starts another.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use crate::lab::{self, Bridge, eventually, is_alive, signal, text};
use crate::settings::Scene;
use rustix::process::Signal;

/// A bridge in the foreground of somebody who sees the same bridges as the scene's commands.
fn in_foreground(scene: &Scene, options: &[&str]) -> Bridge {
    let mut command = scene.lab.up_command(options);
    command.env("XDG_RUNTIME_DIR", scene.lab.at("run"));
    Bridge::start(command)
}

#[test]
fn no_command_overlooks_a_bridge_in_the_foreground() {
    let scene = Scene::new();
    let bridge = in_foreground(&scene, &[]);
    let status = scene.status();
    assert_eq!((&status["pid"], &status["state"]), (&bridge.host_pid().into(), &"ready".into()));
    assert!(scene.keybridge(&["logs", &scene.address]).contains("INFO ready"));
    assert!(!bridge.stderr().contains("INFO"), "{}", bridge.stderr());
    let doctor = scene.try_keybridge(&["doctor", "--json", &scene.address]).stdout;
    let doctor: Value = serde_json::from_slice(&doctor).unwrap();
    let checks = doctor["checks"].as_array().unwrap();
    let of_bridge = checks.iter().find(|check| check["name"] == "bridge").expect("one for it");
    assert_eq!(of_bridge["outcome"], "ok", "{of_bridge}");
    let shown = scene.keybridge(&["down", &scene.address]);
    assert!(shown.contains("undone"), "{shown}");
    let ended = bridge.wait();
    assert!(ended.status.success(), "{}", text(&ended.stderr));
}

#[test]
fn no_bridge_in_the_foreground_lends_without_a_word() {
    let scene = Scene::new();
    let key = format!("{}!", scene.lab.host.fingerprint());
    let mut command = scene.lab.keybridge();
    command.env("XDG_RUNTIME_DIR", scene.lab.at("run")).stdout(Stdio::piped());
    command.args(["up", &scene.address, "--foreground", "--lend", &key, "--uses", "sign"]);
    let mut up = command.spawn().unwrap();
    let lines = BufReader::new(up.stdout.take().unwrap()).lines().map_while(Result::ok);
    let is_up = |line: &String| line.contains("is bridged; Ctrl-C ends it");
    let mut shown = Vec::new();
    for line in lines {
        shown.push(line);
        if shown.last().is_some_and(is_up) {
            signal(up.id(), Signal::TERM);
        }
    }
    assert!(up.wait().unwrap().success(), "{shown:?}");
    let lent = "lent: 1 key of gpg-agent (sign)".to_owned();
    assert!(shown.contains(&lent) && shown.iter().any(is_up), "{shown:?}");
}

#[test]
fn an_up_never_takes_over_from_one_in_the_foreground_to_lend_more() {
    let scene = Scene::new();
    let key = format!("{}!", scene.lab.host.fingerprint());
    let bridge = in_foreground(&scene, &["--lend", &key, "--uses", "sign"]);
    let before = scene.status();
    assert!(scene.up(&[]).contains("is bridged already"));
    // Another link, of the same process.
    assert!(scene.up(&["--max-sessions", "9"]).contains("changed: max-sessions"));
    let after = scene.status();
    assert_eq!((&after["pid"], &after["lending"]), (&before["pid"], &before["lending"]));
    assert!(is_alive(bridge.host_pid()));
    signal(bridge.host_pid(), Signal::TERM);
    assert!(bridge.wait().status.success());
    assert!(!scene.lab.target.socket().exists());
}

#[test]
fn an_up_after_a_kill_never_lends_more_than_the_one_in_the_foreground() {
    let scene = Scene::new();
    let key = format!("{}!", scene.lab.host.fingerprint());
    let bridge = in_foreground(&scene, &["--lend", &key, "--uses", "sign"]);
    let before = scene.status();
    bridge.kill();
    assert!(scene.keybridge(&["status"]).contains("its process was killed"));
    let shown = scene.up(&[]);
    assert!(shown.contains("was killed; its settings are taken: "), "{shown}");
    assert_eq!(scene.status()["lending"], before["lending"]);
}

#[test]
fn a_second_one_in_the_foreground_is_refused_before_it_changes_anything() {
    let scene = Scene::new();
    scene.up(&[]);
    let mut second = scene.lab.up_command(&[]);
    let refused = lab::output(second.env("XDG_RUNTIME_DIR", scene.lab.at("run")));
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("is bridged already") && said.contains("keybridge down"), "{said}");
    assert_eq!(scene.status()["state"], "ready");
}

#[test]
fn a_link_that_is_lost_never_ends_one_in_the_foreground() {
    let scene = Scene::new();
    let bridge = in_foreground(&scene, &[]);
    lab::signal(bridge.helper_pid(), Signal::KILL);
    eventually("there is another link", || {
        let status = scene.status();
        status["reconnects"].as_u64() >= Some(1) && status["state"] == "ready"
    });
    signal(bridge.host_pid(), Signal::INT);
    assert!(bridge.wait().status.success());
    assert!(!scene.lab.target.socket().exists());
}
