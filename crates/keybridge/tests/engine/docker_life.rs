//! The life of a bridge in the background: from its start, by whatever name and however often, to
//! its end.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::any_engine::life::{self, pid_of};
use crate::lab::{
    self, Container, Docker, Image, Program, eventually, feed, is_alive, output, run, text,
};

#[test]
fn ten_shells_at_once_make_one_bridge() {
    life::ten_shells_at_once_make_one_bridge(Program::Docker);
}

#[test]
fn up_returns_to_a_shell_that_reads_its_output_and_the_bridge_lives_on() {
    life::up_returns_to_a_shell_that_reads_its_output_and_the_bridge_lives_on(Program::Docker);
}

#[test]
fn up_of_a_bridged_container_says_so() {
    life::up_of_a_bridged_container_says_so(Program::Docker);
}

#[test]
fn every_name_of_a_container_is_the_same_bridge() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.up(&[]);
    let Container { name, id, .. } = &docker.container;
    let pid = pid_of(&docker.bridges()[0]);
    let address = format!("docker://{name}");
    for word in [name, &address, id, &id[..12], &format!("docker://{}", &id[..16])] {
        let shown = text(&run(&mut docker.keybridge(["up", word])));
        assert!(shown.contains("is bridged already"), "{word}: {shown}");
        let status = run(&mut docker.keybridge(["status", "--json", word]));
        let status: serde_json::Value = serde_json::from_slice(&status).unwrap();
        assert_eq!(pid_of(&status["bridges"][0]), pid, "{word}");
    }
    assert_eq!(docker.bridges().len(), 1);
    run(&mut docker.keybridge(["down", &id[..12]]));
    assert_eq!(docker.bridges().len(), 0);
    assert_eq!(docker.helpers(), Vec::<String>::new());
}

#[test]
fn down_twice_is_harmless() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.up(&[]);
    let pid = pid_of(&docker.bridges()[0]);
    docker.down();
    eventually("the bridge's process has ended", || !is_alive(pid));
    let shown = docker.down();
    assert!(shown.contains("is not bridged"), "{shown}");
    let shown = text(&run(&mut docker.keybridge(["down", "--all"])));
    assert!(shown.contains("nothing is bridged"), "{shown}");
    // And it can be bridged again.
    docker.up(&[]);
    assert!(docker.signs(None).status.success());
}

#[test]
fn down_all_ends_every_bridge() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let other = Container::start(Image::Trixie, &[]);
    let (first, second) = (docker.container.name.as_str(), other.name.as_str());
    let shown = text(&run(&mut docker.keybridge(["up", first, second])));
    assert_eq!(shown.matches(" is bridged (").count(), 2, "{shown}");
    let pids: Vec<u32> = docker.bridges().iter().map(pid_of).collect();
    assert_eq!(pids.len(), 2);
    let shown = text(&run(&mut docker.keybridge(["down", "--all"])));
    assert!(shown.contains(first) && shown.contains(second), "{shown}");
    assert_eq!(docker.bridges().len(), 0);
    // They give their locks back and end.
    eventually("their processes have ended", || !pids.iter().any(|&pid| is_alive(pid)));
    for container in [&docker.container, &other] {
        assert_eq!(container.processes("keybridge-remote"), Vec::<String>::new());
    }
}

#[test]
fn a_bridge_whose_container_goes_away_leaves_no_process() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.up(&[]);
    let pid = pid_of(&docker.bridges()[0]);
    run(&mut lab::docker(["rm", "-f", &docker.container.id]));
    // Whether it has ended by then or waits for the container to come back.
    run(&mut docker.keybridge(["down", "--all"]));
    eventually("the bridge's process has ended", || !is_alive(pid));
    assert_eq!(docker.bridges().len(), 0);
}

#[test]
fn what_could_not_be_undone_is_never_out_of_sight_until_it_is_gone() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let id = docker.container.id.as_str();
    let keybridge = |words: &[&str]| text(&run(&mut docker.keybridge(words.iter().copied())));
    docker.up(&[]);
    run(&mut lab::docker(["pause", id]));
    docker.down();
    for _ in 0..2 {
        let status = keybridge(&["status"]);
        assert!(status.contains("what its bridge did there isn't undone"), "{status}");
        let shown = keybridge(&["down", "--all"]);
        assert!(shown.contains("is undone at the next up or down"), "{shown}");
    }
    let of_one = text(&output(&mut docker.keybridge(["status", id])).stderr);
    assert!(of_one.contains("undoes what is left there"), "{of_one}");
    run(&mut lab::docker(["rm", "-f", id]));
    let shown = keybridge(&["down", "--all"]);
    assert!(shown.contains("nothing is left to undo (there is no container"), "{shown}");
    assert!(keybridge(&["status"]).contains("nothing is bridged"));
}

#[test]
fn the_status_as_json_has_every_field() {
    let docker = Docker::new(Image::Bookworm, &[]);
    assert_eq!(docker.bridges(), Vec::<serde_json::Value>::new());
    let shown = text(&run(&mut docker.keybridge(["status"])));
    assert!(shown.contains("nothing is bridged"), "{shown}");
    docker.up(&["--user", "dev"]);
    assert!(docker.signs(Some("dev")).status.success());
    let bridges = docker.bridges();
    let [bridge] = bridges.as_slice() else { panic!("one bridge is up: {bridges:?}") };
    let name = format!("docker://{}", docker.container.name);
    assert_eq!(bridge["target"], name);
    assert_eq!(bridge["state"], "ready");
    assert!(is_alive(pid_of(bridge)));
    let since = bridge["since"].as_str().unwrap();
    assert!(since.len() == 20 && since.ends_with('Z') && &since[10..11] == "T", "{since}");
    assert_eq!(bridge["user"], serde_json::json!({ "name": "dev", "uid": 1000 }));
    let gpg = &bridge["lanes"]["gpg"];
    assert_eq!(gpg["socket"], "/home/dev/.gnupg/S.gpg-agent");
    for (field, least) in [("open", 0), ("total", 2), ("bytes_in", 100), ("bytes_out", 100)] {
        assert!(gpg[field].as_u64().is_some_and(|value| value >= least), "{field}: {bridge}");
    }
    assert_eq!(bridge["reconnects"], 0);
    assert_eq!(bridge["version"], env!("CARGO_PKG_VERSION"));
    // The same for people.
    let shown = text(&run(&mut docker.keybridge(["status", &docker.container.name])));
    assert!(shown.starts_with("TARGET"), "{shown}");
    assert!(shown.contains(&name) && shown.contains("ready"), "{shown}");
}

#[test]
fn what_is_not_bridged_has_no_status_no_sync_and_no_log() {
    let docker = Docker::new(Image::Bookworm, &[]);
    for verb in ["status", "sync", "logs"] {
        let refused = output(&mut docker.keybridge([verb, &docker.container.name]));
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(3), "{verb}: {said}");
        let name = &docker.container.name;
        let begins = format!("keybridge: {name} ");
        assert!(said.starts_with(&begins) && said.contains("\n  → "), "{said}");
        assert_eq!(text(&refused.stdout), "", "{verb}");
    }
}

#[test]
fn the_log_is_followed_until_the_bridge_ends() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.up(&[]);
    assert!(docker.log().contains("ready"), "{}", docker.log());
    let mut logs = docker.keybridge(["logs", "-f", &docker.container.name]);
    let mut logs = logs.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(logs.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert!(!line.is_empty(), "what was logged before is shown first");
    assert!(logs.try_wait().unwrap().is_none(), "it goes on while the bridge does");
    docker.down();
    let mut status = None;
    eventually("logs -f has ended", || {
        status = logs.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success());
    // What it did can be read afterwards too.
    assert!(docker.log().contains("ready"));
}

#[test]
fn a_key_that_is_new_at_home_is_sent_by_sync_and_lent_by_up_alone() {
    let docker = Docker::new(Image::Trixie, &[]);
    docker.up(&[]);
    let new = "New <new@keybridge.example>";
    let words = ["--passphrase", "", "--quick-gen-key", new, "ed25519", "sign", "never"];
    run(&mut docker.lab.host.gpg(words));
    let sign = "echo words | gpg --batch --clear-sign -u new@keybridge.example";
    let signs = || docker.container.try_sh(None, sign).status.success();
    assert!(!signs(), "it isn't there yet");
    let shown = text(&run(&mut docker.keybridge(["sync", &docker.container.name])));
    assert!(shown.contains("1 new") && shown.contains("1 unchanged"), "{shown}");
    assert!(!signs(), "a key is lent that `up` hasn't shown");
    let shown = docker.up(&[]);
    assert!(shown.contains("lent: 3 keys"), "{shown}");
    assert!(signs());
}

#[test]
fn a_keyring_of_3_mib_is_synced() {
    let docker = Docker::new(Image::Trixie, &[]);
    let host = &docker.lab.host;
    // A friend's key, since its secret half goes away again: many names, each with a signature
    // that is nearly as large as gpg takes it.
    let friend = "Friend <friend@keybridge.example>";
    run(&mut host.gpg(["--passphrase", "", "--quick-gen-key", friend, "ed25519", "cert", "never"]));
    let notation = format!("large@keybridge.example={}", "x".repeat(9500));
    let mut talk = String::new();
    for number in 1..=340 {
        let name = format!("Friend {number:05}\nf{number}@keybridge.example");
        talk.extend(["adduid\n", &name, "\n\n"]);
    }
    talk.push_str("save\n");
    let mut edit = host.gpg(["--command-fd", "0", "--cert-notation", &notation]);
    // gpg warns of so long a notation, and ends with an error for that.
    feed(edit.args(["--edit-key", "friend@keybridge.example"]), talk.as_bytes());
    let listed =
        text(&run(&mut host.gpg(["--list-keys", "--with-colons", "friend@keybridge.example"])));
    let print = listed.lines().find_map(|line| line.strip_prefix("fpr:::::::::")).unwrap();
    run(&mut host.gpg(["--delete-secret-keys", print.trim_end_matches(':')]));
    let export = run(&mut host.gpg(["--export"]));
    assert!(export.len() > 3 * 1024 * 1024, "{} bytes", export.len());

    docker.up(&["--keys", "all"]);
    let there =
        docker.container.sh(None, "gpg --batch --list-keys --with-colons friend@keybridge.example");
    assert_eq!(there.lines().filter(|line| line.starts_with("uid:")).count(), 341);
    let shown = text(&run(&mut docker.keybridge(["sync", &docker.container.name])));
    assert!(shown.contains("0 new") && shown.contains("2 unchanged"), "{shown}");
    // The keys of home work beside it.
    assert!(docker.signs(None).status.success());
}
