//! `doctor` on a container: quick, without traces, and for the user that is bridged.

use std::os::unix::net::UnixListener;

use crate::lab::{Docker, Image, eventually, output, run, text};
use serde_json::Value;

/// What `doctor --json` says about a target.
#[track_caller]
fn doctor(docker: &Docker, target: &str) -> Value {
    let said = output(&mut docker.keybridge(["doctor", "--json", "--lanes", "gpg", target]));
    serde_json::from_slice(&said.stdout).unwrap_or_else(|_| panic!("{said:?}"))
}

#[track_caller]
fn check<'a>(json: &'a Value, name: &str) -> &'a Value {
    let mut checks = json["checks"].as_array().unwrap().iter();
    checks.find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {json}"))
}

fn fix_of<'a>(json: &'a Value, name: &str) -> &'a str {
    check(json, name)["fixes"][0]["command"].as_str().unwrap_or_default()
}

#[test]
fn a_container_that_was_never_bridged_is_left_as_it_was() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.lab.host.launch_agent();
    let before = docker.container.listing();
    let json = doctor(&docker, &docker.container.name);
    assert_eq!(docker.container.listing(), before);
    assert_eq!(docker.helpers(), Vec::<String>::new());
    assert_eq!(json["first"], "bridge", "{json}");
    assert_eq!(check(&json, "target-gpg")["outcome"], "ok", "{json}");
}

#[test]
fn a_working_container_is_checked_for_its_user() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.up(&["--git", "--user", "dev"]);
    let email = ["git", "config", "--global", "user.email", "lab@keybridge.example"];
    run(&mut docker.container.command(Some("dev"), email));
    let json = doctor(&docker, &docker.container.name);
    assert_eq!((&json["ok"], &json["first"]), (&true.into(), &Value::Null), "{json}");
    assert!(check(&json, "user")["fact"].as_str().unwrap().starts_with("dev "), "{json}");
    assert_eq!(check(&json, "signature")["outcome"], "ok", "{json}");
    docker.down();
}

#[test]
fn a_container_that_is_paused_or_written_wrongly_has_its_command() {
    let docker = Docker::new(Image::Bare, &[]);
    docker.lab.host.launch_agent();
    let name = docker.container.name.clone();
    let engine =
        |word: &str| run(crate::lab::docker([word, &name]).stdin(std::process::Stdio::null()));
    engine("pause");
    let json = doctor(&docker, &name);
    let fix = fix_of(&json, "target");
    assert!(fix.starts_with(&format!("docker unpause {name} && keybridge up ")), "{fix}");
    assert_eq!(check(&json, "shell")["because"], "target", "{json}");
    engine("unpause");
    let wrong = format!("{name}x");
    let json = doctor(&docker, &wrong);
    assert_eq!(json["first"], "target", "{json}");
    assert_eq!(fix_of(&json, "target"), format!("keybridge doctor docker://{name}"));
    let shown = output(&mut docker.keybridge(["doctor", &wrong]));
    assert_eq!(shown.status.code(), Some(3), "{}", text(&shown.stdout));
}

#[test]
fn a_doctor_that_is_killed_leaves_nothing() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.lab.host.launch_agent();
    // The helper stops in the middle of its work.
    let gpg = b"#!/bin/sh\nkill -STOP $PPID\nexec tail -f /dev/null\n";
    docker.container.put_program("/usr/local/bin/gpg", gpg);
    let before = docker.container.listing();
    let mut doctor = docker.keybridge(["doctor", "--lanes", "gpg", &docker.container.name]);
    let mut doctor = doctor.stdout(std::process::Stdio::null()).spawn().unwrap();
    eventually("the helper looks", || !docker.container.processes("tail").is_empty());
    doctor.kill().unwrap();
    doctor.wait().unwrap();
    docker.container.assert_unchanged(&before);
    docker.container.sh(None, "kill -CONT -1");
    eventually("the helper ends", || docker.container.processes("keybridge-remote").is_empty());
}

#[test]
fn an_engine_that_does_not_answer_is_given_up() {
    let docker = Docker::new(Image::Bare, &[]);
    docker.lab.host.launch_agent();
    let socket = docker.lab.at("engine.sock");
    let _silent = UnixListener::bind(&socket).unwrap();
    let mut command = docker.keybridge(["doctor", "--json", "--lanes", "gpg", "docker://web"]);
    let said = output(command.env("DOCKER_HOST", format!("unix://{}", socket.display())));
    let json: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!((&json["first"], said.status.code()), (&"engine".into(), Some(3)), "{json}");
}
