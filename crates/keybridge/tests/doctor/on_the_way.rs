//! What is broken between the person's machine and the target.

use std::path::Path;

use keybridge_lab::{Flow, Over};
use rustix::process::Signal;
use serde_json::Value;

use crate::lab::{KEYBRIDGE, Relay, command, docker, output, run, signal};
use crate::scene::Scene;

#[test]
fn no_such_container() {
    let mut scene = Scene::bridged();
    // A slip of the finger. The command that is right names the container that was meant.
    scene.target.pop();
    scene.target.push('x');
    let fix = scene.assert_found("target", 3, &["there is no container", &scene.target]);
    assert_eq!(fix, format!("keybridge doctor docker://{}", scene.container().name));
    let typed = scene.type_in(&fix);
    assert!(typed.status.success(), "{typed:?}");
}

#[test]
fn a_container_that_is_paused() {
    let scene = Scene::bridged();
    run(&mut docker(["pause", &scene.container().name]));
    scene.assert_found_and_fixed("target", 3, &["is paused"]);
}

/// The version of the programs.
const NOW: &str = env!("CARGO_PKG_VERSION");

/// An earlier one of the same length.
const EARLIER: &str = "0.0.9";

#[test]
fn an_old_helper() {
    let scene = Scene::new();
    // The programs of this build, which say that they are older.
    let folder = scene.lab().at("old");
    std::fs::create_dir(&folder).unwrap();
    for name in ["keybridge", "keybridge-remote"] {
        let (from, to) = (Path::new(KEYBRIDGE).with_file_name(name), folder.join(name));
        std::fs::copy(from, &to).unwrap();
        let change = format!("s/{}/{EARLIER}/g", NOW.replace('.', "\\."));
        run(command("/bin/sed").env("LC_ALL", "C").args(["-i", &change]).arg(&to));
    }
    let mut up = scene.lab().keybridge_at(&folder.join("keybridge"));
    for (name, value) in scene.keybridge([]).get_envs() {
        up.env(name, value.unwrap());
    }
    run(up.args(["up", &scene.container().name, "--uses", "sign"]));
    scene.assert_found_and_fixed("helper", 1, &[EARLIER, NOW]);
    // No more is lent than before.
    let lent = scene.assert_clean().row("secret-keys")["fact"].clone();
    assert!(lent.as_str().unwrap().ends_with("lent: 1 signs"), "{lent}");
}

#[test]
fn a_link_that_is_silent() {
    let mut scene = Scene::new();
    let relay = Relay::before(Path::new("/var/run/docker.sock"));
    scene.environment.push(("DOCKER_HOST", format!("unix://{}", relay.path().display())));
    scene.up(&[]);
    scene.assert_clean();
    relay.set(Over::Links, Flow::Silent);
    // Asked once: five seconds after the first question the bridge itself replaces the link.
    let asked = output(&mut scene.doctor_command(&["--json"]));
    let json: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!((&json["first"], asked.status.code()), (&"link".into(), Some(1)), "{json}");
    let rows = json["checks"].as_array().unwrap();
    let row = rows.iter().find(|row| row["name"] == "link").unwrap();
    assert!(row["cause"].as_str().unwrap().contains("doesn't answer"), "{row}");
    let fixed = scene.type_in(row["fixes"][0]["command"].as_str().unwrap());
    assert!(fixed.status.success(), "{fixed:?}");
    scene.assert_clean();
}

#[test]
fn a_bridge_that_was_killed() {
    let scene = Scene::bridged();
    let pid = scene.docker.bridges()[0]["pid"].as_u64().unwrap();
    signal(u32::try_from(pid).unwrap(), Signal::KILL);
    scene.assert_found_and_fixed("bridge", 1, &["is not bridged"]);
}
