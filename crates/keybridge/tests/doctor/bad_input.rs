//! Parts that hang, lie or print nonsense, and what is missing for `doctor` itself.

use std::os::unix::net::UnixStream;

use crate::lab::{
    KEYBRIDGE, Lab, command, eventually, make_private, output, set_mode, set_owner, text,
    write_program,
};
use crate::scene::Scene;

/// What an evil target could write to a terminal.
const ESCAPE: &str = "\u{1b}]0;owned\u{7}\u{1b}[31m";

/// Nobody of this machine.
const STRANGER: u32 = 54_321;

#[test]
fn a_container_that_hangs() {
    let scene = Scene::bridged();
    let shell = "#!/usr/bin/perl\nsleep 1000;\n";
    let put = format!("printf '{shell}' >/bin/new; chmod 755 /bin/new; mv /bin/new /bin/sh");
    scene.container().sh(None, &put);
    let diagnosis = scene.diagnose();
    assert_eq!(diagnosis.status, Some(3), "{}", diagnosis.text);
    assert_eq!(diagnosis.json["first"], "target", "{}", diagnosis.text);
}

#[test]
fn a_command_that_hangs() {
    let mut scene = Scene::new();
    scene.target = "exec:perl -e 'sleep 1000'".to_owned();
    let diagnosis = scene.diagnose();
    assert_eq!(diagnosis.json["first"], "target", "{}", diagnosis.text);
    assert_eq!(diagnosis.status, Some(3), "{}", diagnosis.text);
}

/// A helper that prints something of its own, and removes itself as the real one does.
fn lying_helper(lab: &Lab, script: &str) -> String {
    let program = format!(
        "#!/bin/sh
        case $1 in
        inspect) {script} ;;
        remove) rm \"$0\"; rmdir \"${{0%/*}}\" \"${{0%/*/*}}\" ;;
        esac
        exit 0\n"
    );
    let path = lab.at("helper");
    write_program(&path, program);
    path.display().to_string()
}

#[test]
fn helpers_that_lie() {
    let scene = Scene::new();
    let scripts = [
        format!("printf '{ESCAPE}nonsense\\n'"),
        "cat /dev/zero".to_owned(),
        "sleep 1000".to_owned(),
        "kill -KILL $$".to_owned(),
    ];
    for script in scripts {
        let helper = lying_helper(scene.lab(), &script);
        let before = scene.traces();
        let asked = output(&mut scene.doctor_command(&["--helper-program", &helper]));
        let shown = text(&asked.stdout);
        assert!(matches!(asked.status.code(), Some(1 | 3)), "{shown}");
        assert!(shown.lines().next().unwrap().ends_with("the first problem is helper"), "{shown}");
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown:?}");
        assert_eq!(scene.traces(), before, "{script}");
        eventually("the helper is gone", || scene.docker.helpers().is_empty());
    }
}

#[test]
fn gpg_at_home_that_prints_nonsense() {
    let scene = Scene::bridged();
    for nonsense in [format!("printf '{ESCAPE}nonsense\\n'"), "cat /dev/zero".to_owned()] {
        scene.put_program("gpg", &nonsense);
        let diagnosis = scene.diagnose();
        assert_eq!(diagnosis.json["first"], "host-gpg", "{}", diagnosis.text);
        assert!(matches!(diagnosis.status, Some(1 | 3)), "{}", diagnosis.text);
    }
    std::fs::remove_file(scene.lab().at("bin/gpg")).unwrap();
    scene.put_program("gpgconf", &format!("printf '{ESCAPE}nonsense\\n'"));
    let diagnosis = scene.diagnose();
    assert_eq!(diagnosis.json["first"], "host-gpg", "{}", diagnosis.text);
}

#[test]
fn gpg_in_the_target_that_prints_nonsense() {
    let scene = Scene::bridged();
    for nonsense in [format!("printf '{ESCAPE}nonsense\\n'"), "cat /dev/zero".to_owned()] {
        let program = format!("#!/bin/sh\n{nonsense}\n");
        scene.container().put_program("/usr/local/bin/gpg", program.as_bytes());
        let diagnosis = scene.diagnose();
        assert_eq!(diagnosis.json["first"], "target-gpg", "{}", diagnosis.text);
        assert_ne!(diagnosis.status, Some(0), "{}", diagnosis.text);
    }
}

#[test]
fn no_terminal_to_ask_at() {
    let scene = Scene::bridged();
    scene.lab().host.end_agents();
    let refused = output(&mut scene.doctor_command(&["--fix"]));
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(text(&refused.stderr).contains("--yes"), "{}", text(&refused.stderr));
    // Nothing was run.
    assert!(UnixStream::connect(scene.lab().host.socket()).is_err());
    let fixed = output(&mut scene.doctor_command(&["--fix", "--yes"]));
    assert!(fixed.status.success(), "{}", text(&fixed.stdout));
    scene.assert_clean();
}

#[test]
fn no_right_to_the_socket_of_the_engine() {
    let scene = Scene::new();
    // A stranger needs a home and a state of their own, and programs that they can read.
    let (home, programs) = (scene.lab().at("stranger"), scene.lab().at("programs"));
    make_private(&home);
    set_owner(&home, STRANGER);
    make_private(&programs);
    let program = programs.join("keybridge");
    write_program(&program, std::fs::read(KEYBRIDGE).unwrap());
    for path in [scene.lab().folder(), &programs] {
        set_mode(path, 0o755);
    }
    let mut doctor = command("setpriv");
    doctor
        .args([&format!("--reuid={STRANGER}"), &format!("--regid={STRANGER}"), "--clear-groups"])
        .arg(&program)
        .args(["doctor", "--json", "--lanes", "ssh", &scene.container().address()])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", &home)
        .env("SSH_AUTH_SOCK", scene.ssh.socket())
        .env("KEYBRIDGE_STATE", home.join("state"));
    let asked = output(&mut doctor);
    let json: serde_json::Value = serde_json::from_slice(&asked.stdout).unwrap();
    println!("{json:#}");
    let engine = json["checks"].as_array().unwrap().iter().find(|row| row["name"] == "engine");
    let engine = engine.unwrap();
    assert_eq!(engine["outcome"], "broken", "{engine}");
    assert!(engine["cause"].as_str().unwrap().contains("docker.sock"), "{engine}");
    assert_eq!(asked.status.code(), Some(3));
    assert!(!home.join("state").exists(), "a folder is left");
}
