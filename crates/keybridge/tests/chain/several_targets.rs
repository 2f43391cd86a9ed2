//! Several targets in one command, and bridges whose processes were killed.

use rustix::process::Signal;

use crate::lab::{self, eventually, is_alive, signal, text};
use crate::settings::Scene;

#[test]
fn a_target_that_fails_does_not_keep_the_others_from_their_bridges() {
    let scene = Scene::new();
    let (first, second) = (lab::local(&scene.lab.at("no-1")), lab::local(&scene.lab.at("no-2")));
    let ended = scene.try_keybridge(&["up", &first, &scene.address, &second]);
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    for target in [&first, &second] {
        let folder = target.trim_start_matches("local:");
        assert_eq!(said.matches(&format!("{folder} doesn't exist")).count(), 1, "{said}");
    }
    assert_eq!(scene.status()["state"], "ready");
    // The others are reached in whatever order.
    let unknown = "docker://keybridge-no-such-container";
    for verb in ["sync", "down"] {
        let ended = scene.try_keybridge(&[verb, unknown, &scene.address]);
        let (shown, said) = (text(&ended.stdout), text(&ended.stderr));
        assert!(!ended.status.success(), "{verb}: {said}");
        assert!(shown.contains(&format!("✓ {}: ", scene.address)), "{verb}: {shown}");
    }
    // What is wrong for every target is told once.
    let ended = scene.try_keybridge(&["up", "--uses", "sing", &first, &second]);
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert_eq!(said.matches("sing").count(), 1, "{said}");
}

#[test]
fn a_bridge_that_was_killed_is_shown_until_somebody_ends_it() {
    let scene = Scene::new();
    scene.up(&[]);
    let before = std::fs::read(scene.lab.target.path().join("gpg.conf")).unwrap();
    let pid = u32::try_from(scene.status()["pid"].as_u64().unwrap()).unwrap();
    signal(pid, Signal::KILL);
    eventually("the process has ended", || !is_alive(pid));
    let shown = scene.keybridge(&["status"]);
    let said =
        format!("{} is not bridged: its process was killed\n  → keybridge up", scene.address);
    assert!(shown.starts_with(&said), "{shown}");
    let shown = scene.keybridge(&["down", "--all"]);
    assert!(shown.contains(&format!("{}: its bridge is gone; undone", scene.address)), "{shown}");
    let after = std::fs::read(scene.lab.target.path().join("gpg.conf")).unwrap_or_default();
    assert_ne!(after, before);
    assert!(!text(&after).contains("keybridge"), "{}", text(&after));
    assert!(!scene.keybridge(&["status"]).contains("killed"));
    assert!(scene.keybridge(&["down", "--all"]).contains("nothing is bridged"));
}

#[test]
fn an_agent_that_is_named_by_its_path_has_to_be_there() {
    let scene = Scene::new();
    let nowhere = scene.lab.at("nowhere");
    let option = format!("--ssh-socket={}", nowhere.display());
    // A local: target has no ssh lane.
    let target = format!("exec:env -u GNUPGHOME HOME={}", scene.lab.at("second").display());
    let ended = scene.try_keybridge(&["up", &option, &target]);
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(3), "{said}");
    assert!(said.contains("the setting ssh-socket"), "{said}");
}

#[test]
fn manual_pages_are_written_to_a_folder_that_is_not_there_yet() {
    let scene = Scene::new();
    let folder = scene.lab.at("share/man1");
    scene.keybridge(&["man", folder.to_str().unwrap()]);
    assert!(folder.join("keybridge-up.1").exists());
}
