//! Commands that name no target: `up` lists what can be bridged, others what is. And targets side by side.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::lab::{self, AtTerminal, make_private, output, run, text};
use crate::settings::Scene;

/// A host without engines, but with two hosts in ssh's configuration and a distribution of WSL's. A script
/// stands in for `wsl.exe`, and prints UTF-16 as that does.
fn scene() -> Scene {
    let mut scene = Scene::new();
    let ssh = scene.lab.at("home/.ssh");
    make_private(&ssh);
    std::fs::write(ssh.join("config"), "Include more\nHost build\n User dev\nHost *.org\n")
        .unwrap();
    std::fs::write(ssh.join("more"), "Host staging\n HostName 10.0.0.7\n").unwrap();
    scene.lab.put_before(
        "wsl.exe",
        "[ \"$*\" = '-l -q' ] || exit 64\nprintf 'A\\0l\\0p\\0\\r\\0\\n\\0'\n",
    );
    scene
}

/// `keybridge` where no engine is found.
fn keybridge(scene: &Scene, words: &[&str]) -> Command {
    let mut command = scene.lab.keybridge();
    command.env("XDG_RUNTIME_DIR", scene.lab.at("run"));
    for engine in ["DOCKER_HOST", "CONTAINER_HOST"] {
        command.env(engine, format!("unix://{}", scene.lab.at("no-engine").display()));
    }
    command.args(words);
    command
}

#[test]
fn without_a_terminal_it_is_an_error_that_lists_them() {
    let scene = scene();
    scene.up(&[]);
    let ended = output(&mut keybridge(&scene, &["up"]));
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    let bridged = format!("{} (bridged: ready)", scene.address);
    let listed = ["ssh://staging (10.0.0.7)", "ssh://build (dev@build)", "wsl://Alp", &bridged];
    let lines = listed.map(|line| format!("  → {line}\n")).concat();
    let begin = "keybridge: no target is named\n  → these are available:\n";
    assert!(said.starts_with(&format!("{begin}{lines}")), "{said}");
    assert!(said.contains("Docker engine at unix://") && said.contains("no such socket"), "{said}");
    assert_eq!(text(&ended.stdout), "");

    let ended = output(&mut keybridge(&scene, &["up", "--json"]));
    assert_eq!(ended.status.code(), Some(2));
    let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(told["error"]["kind"], "usage");
    let choices = told["error"]["choices"].as_array().unwrap();
    let targets: Vec<_> = choices.iter().map(|choice| choice["target"].as_str().unwrap()).collect();
    assert_eq!(targets, ["ssh://staging", "ssh://build", "wsl://Alp", &scene.address]);
    assert_eq!(
        (&choices[0]["detail"], &choices[3]["state"]),
        (&"10.0.0.7".into(), &"ready".into())
    );
}

#[test]
fn a_program_is_told_as_json_that_there_is_no_folder_for_bridges() {
    let scene = scene();
    let file = scene.lab.at("a file");
    std::fs::write(&file, "").unwrap();
    let ended = output(keybridge(&scene, &["up", "--json"]).env("KEYBRIDGE_STATE", &file));
    assert_eq!(ended.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(told["error"]["kind"], "failed", "{told}");
}

/// The engine accepts connections, and wsl.exe starts, and that is all.
#[test]
fn a_source_that_hangs_is_told_in_one_line() {
    let mut scene = scene();
    scene.lab.put_before("wsl.exe", "exec sleep 600\n");
    let socket = scene.lab.at("silent");
    let _listener = UnixListener::bind(&socket).unwrap();
    let mut up = keybridge(&scene, &["up"]);
    up.env("DOCKER_HOST", format!("unix://{}", socket.display()));
    let ended = output(&mut up);
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(2), "{said}");
    assert!(said.contains("\n  → ssh://staging (10.0.0.7)\n"), "{said}");
    assert!(said.contains("\n  → Docker: no answer within 3 s\n"), "{said}");
    assert!(said.contains("\n  → wsl.exe didn't end within 2 s\n"), "{said}");
}

#[test]
fn at_a_terminal_a_person_chooses_and_wrong_words_are_asked_for_again() {
    let scene = scene();
    let second = lab::local(&second_home(&scene, "second"));
    scene.keybridge(&["up", &scene.address, &second]);
    let mut up = AtTerminal::start(&keybridge(&scene, &["up"]));
    up.answer("Which?", "9");
    up.answer(&asked_after("9: the list goes from 1 to 5"), "nobody");
    up.answer(&asked_after("nobody is not in the list"), "4-5");
    let (status, shown) = up.ended();
    assert_eq!(status, 0, "{shown}");
    let last = last_drawing(&shown);
    for target in [&scene.address, &second] {
        assert!(last.contains(&format!("✓\u{1b}[0m {target}")), "{shown}");
    }
    assert_eq!(last.matches("is bridged already").count(), 2, "{shown}");
    assert_eq!(shown.matches("Which?").count(), 3, "{shown}");
    scene.keybridge(&["down", "--all"]);
}

/// The question after what was wrong. What is typed before it is no answer to it.
fn asked_after(wrong: &str) -> String {
    format!("{wrong}\r\n\r\u{1b}[KWhich?")
}

#[test]
fn nothing_is_changed_when_nothing_is_chosen() {
    let scene = scene();
    for (keys, status, said) in [
        ("\n", 0, ""),
        ("q\n", 0, ""),
        ("\u{3}", 1, "interrupted"),
        ("\u{4}", 2, "no target was chosen"),
    ] {
        let mut up = AtTerminal::start(&keybridge(&scene, &["up"]));
        up.wait_for("Which?");
        up.type_keys(keys);
        let (ended, shown) = up.ended();
        assert_eq!(ended, status, "{keys:?}: {shown}");
        assert!(shown.contains(said), "{shown}");
    }
    assert!(scene.keybridge(&["status"]).contains("nothing is bridged"));
}

#[test]
fn rows_are_cut_to_the_width_of_the_terminal() {
    let scene = scene();
    let long = "x".repeat(100);
    let config = scene.lab.at("home/.ssh/config");
    std::fs::write(config, format!("Host {long}\n HostName {long}.example.org\n")).unwrap();
    let program = keybridge(&scene, &["up"]);
    let mut sized = lab::command("sh");
    let words = std::iter::once(program.get_program()).chain(program.get_args());
    sized.args(["-c", "stty cols 50; exec \"$@\"", "sh"]).args(words);
    sized.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut up = AtTerminal::start(&sized);
    up.answer("Which?", "");
    let (status, shown) = up.ended();
    assert_eq!(status, 0, "{shown}");
    let row = shown.lines().find(|line| line.contains("ssh://xxx")).unwrap();
    assert!(row.trim_end().chars().count() < 50 && row.contains('…'), "{shown}");
}

#[test]
fn other_commands_list_what_is_bridged() {
    let scene = scene();
    for verb in ["down", "sync", "env", "logs"] {
        let ended = output(&mut keybridge(&scene, &[verb]));
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{said}");
        assert!(
            said.contains("no target is named\n  → nothing is bridged; keybridge up"),
            "{said}"
        );
    }
    scene.up(&[]);
    for verb in ["down", "sync", "env", "logs"] {
        let said = text(&output(&mut keybridge(&scene, &[verb])).stderr);
        let line = format!("\n  → {} (bridged: ready)\n", scene.address);
        assert!(said.contains(&line), "{verb}: {said}");
    }
    assert_eq!(scene.status()["state"], "ready");
}

/// What several targets look like in the end.
fn last_drawing(shown: &str) -> &str {
    shown.rsplit("\u{1b}[J").next().unwrap()
}

fn second_home(scene: &Scene, name: &str) -> std::path::PathBuf {
    let path = scene.lab.at(name);
    make_private(&path);
    path
}

/// Each of the two commands waits for the other one before it starts its shell.
#[test]
fn several_targets_are_set_up_at_the_same_time() {
    let scene = scene();
    let (first, second) = (scene.lab.at("first"), scene.lab.at("second"));
    run(lab::command("mkfifo").arg(&first).arg(&second));
    let target = |name: &str, meet: String| {
        let home = second_home(&scene, &format!("{name}-home"));
        let script = format!("{meet}\nexec env -u GNUPGHOME HOME={} \"$@\"\n", home.display());
        let path = scene.lab.file(&format!("{name}.sh"), script);
        format!("exec:timeout 60 sh {}", path.display())
    };
    let fifo = |path: &Path| path.display().to_string();
    let one = target("one", format!("read x <{}; echo >{}", fifo(&first), fifo(&second)));
    let two = target("two", format!("echo >{}; read x <{}", fifo(&first), fifo(&second)));
    let ended = output(&mut keybridge(&scene, &["up", "--lanes", "gpg", &one, &two]));
    let (shown, said) = (text(&ended.stdout), text(&ended.stderr));
    assert!(ended.status.success(), "{shown}{said}");
    for target in [&one, &two] {
        assert!(shown.contains(&format!("✓ {target}: a question through the chain")), "{shown}");
        assert!(shown.contains(&format!("✓ {target} is bridged (")), "{shown}");
    }
    scene.keybridge(&["down", "--all"]);
}

#[test]
fn a_target_that_fails_keeps_its_line_among_the_others() {
    let scene = scene();
    let missing = lab::local(&scene.lab.at("missing"));
    let mut up = AtTerminal::start(&keybridge(&scene, &["up", &missing, &scene.address]));
    up.wait_for("is bridged");
    let (status, shown) = up.ended();
    assert_eq!(status, 3, "{shown}");
    let last = last_drawing(&shown);
    assert!(last.contains(&format!("✗\u{1b}[0m {missing}")), "{last}");
    assert!(last.contains(&format!("✓\u{1b}[0m {}", scene.address)), "{last}");
    assert_eq!(last.matches("missing doesn't exist").count(), 1, "{last}");
    scene.keybridge(&["down", "--all"]);
}

#[test]
fn status_at_a_terminal_points_to_doctor_for_a_bridge_that_is_not_ready() {
    let scene = scene();
    scene.up(&[]);
    let status = || AtTerminal::start(&keybridge(&scene, &["status"])).ended().1;
    assert!(!status().contains("doctor"), "{}", status());
    // It doesn't answer any more.
    let pid = u32::try_from(scene.status()["pid"].as_u64().unwrap()).unwrap();
    lab::signal(pid, rustix::process::Signal::STOP);
    let shown = status();
    lab::signal(pid, rustix::process::Signal::CONT);
    assert!(shown.contains("no answer within 3 s"), "{shown}");
    let pointer = format!("  → keybridge doctor {} checks every part of it", scene.address);
    assert!(shown.contains(&pointer), "{shown}");
    assert!(!text(&output(&mut keybridge(&scene, &["status"])).stdout).contains("doctor"));
    scene.keybridge(&["down", "--all"]);
}
