//! `down --purge`: what was imported goes, and nothing else.

use std::fs;
use std::process::Command;

use crate::lab::{Home, Lab, local, make_private, run, run_with, text};

/// A lab whose bridges run in the background, with a folder of its own for the helper.
fn scene() -> Lab {
    let mut lab = Lab::with_key();
    let cache = lab.at("cache");
    make_private(&cache);
    lab.set_cache(cache);
    lab
}

fn keybridge(lab: &Lab, words: &[&str]) -> Command {
    let mut command = lab.keybridge();
    command.env("KEYBRIDGE_STATE", lab.at("state")).arg(words[0]).arg(local(lab.target.path()));
    command.args(&words[1..]);
    command
}

#[track_caller]
fn ok(lab: &Lab, words: &[&str]) -> String {
    text(&run(&mut keybridge(lab, words)))
}

fn make_key(home: &Home, name: &str) -> String {
    home.add_key(name);
    home.fingerprint_of(name)
}

/// Gives one home a public key of another's.
fn send(from: &Home, key: &str, to: &Home) {
    let export = run(&mut from.gpg(["--export", key]));
    run_with(&mut to.gpg(["--import"]), &export);
}

fn trust(home: &Home, key: &str, value: u32) {
    run_with(&mut home.gpg(["--import-ownertrust"]), format!("{key}:{value}:\n").as_bytes());
}

/// The ownertrust of a key, if there is any.
fn trust_of(home: &Home, key: &str) -> Option<String> {
    let export = text(&run(&mut home.gpg(["--export-ownertrust"])));
    let line = export.lines().find(|line| line.starts_with(key))?;
    line.split(':').nth(1).map(str::to_owned)
}

fn has(home: &Home, key: &str) -> bool {
    let listed = text(&run(&mut home.gpg(["--with-colons", "--list-keys"])));
    listed.lines().any(|line| line.starts_with("fpr:") && line.contains(key))
}

/// Files of ours in the target's home and in the folder of the helper.
fn leftovers(lab: &Lab) -> Vec<String> {
    let names = |folder| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect::<Vec<_>>()
    };
    let home = names(lab.target.path().to_owned());
    let ours = home.into_iter().filter(|name| name.contains("keybridge"));
    ours.chain(names(lab.at("cache"))).collect()
}

#[test]
fn what_was_imported_goes_and_what_was_there_before_stays() {
    let lab = scene();
    let (host, target) = (&lab.host, &lab.target);
    let sent = host.fingerprint();
    // One that the target has with another trust, one that it has with none, and one of its own.
    let other = lab.at("o");
    make_private(&other);
    let other = Home::at(other, lab.at("home"), lab.at("tmp"));
    let [trusted, untrusted] = ["trusted@x", "untrusted@x"].map(|name| make_key(&other, name));
    for key in [&trusted, &untrusted] {
        send(&other, key, host);
        send(&other, key, target);
        trust(host, key, 5);
    }
    trust(target, &trusted, 4);
    let own = make_key(target, "own@x");
    target.end_agents();
    let before = text(&run(&mut target.gpg(["--with-colons", "--list-keys"])));

    for _ in 0..2 {
        ok(&lab, &["up", "--keys", "all"]);
        assert_eq!(trust_of(target, &trusted).as_deref(), Some("5"));
        assert_eq!(trust_of(target, &untrusted).as_deref(), Some("5"));
        ok(&lab, &["down"]);
        assert!(has(target, &sent), "keys stay after a plain down");
        assert!(leftovers(&lab).contains(&".keybridge-imported".to_owned()));
    }
    let said = ok(&lab, &["down", "--purge"]);
    assert!(said.contains("1 public keys and 3 ownertrust values removed"), "{said}");
    assert!(!has(target, &sent));
    assert_eq!(trust_of(target, &sent), None);
    assert_eq!(trust_of(target, &trusted).as_deref(), Some("4"));
    assert_eq!(trust_of(target, &untrusted), None);
    assert_eq!(trust_of(target, &own).as_deref(), Some("6"));
    assert_eq!(leftovers(&lab), Vec::<String>::new());
    let after = text(&run(&mut target.gpg(["--with-colons", "--list-keys"])));
    let keys = |listing: &str| {
        let lines = listing.lines().filter(|line| !line.starts_with("tru:"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(keys(&after), keys(&before));

    let said = ok(&lab, &["down", "--purge"]);
    assert!(said.contains("0 public keys and 0 ownertrust values removed"), "{said}");
    assert_eq!(leftovers(&lab), Vec::<String>::new());
}

#[test]
fn a_bridge_that_is_up_is_ended_first() {
    let lab = scene();
    ok(&lab, &["up"]);
    let sent = lab.host.fingerprint();
    assert!(has(&lab.target, &sent));
    let said = ok(&lab, &["down", "--purge"]);
    assert!(said.contains("undone") && said.contains("1 public keys"), "{said}");
    assert!(!has(&lab.target, &sent));
    assert!(!lab.target.socket().exists(), "no agent was started for that");
    assert_eq!(leftovers(&lab), Vec::<String>::new());
}

#[test]
fn what_the_user_has_made_of_a_key_stays() {
    let lab = scene();
    let (host, target) = (&lab.host, &lab.target);
    let sent = host.fingerprint();
    ok(&lab, &["up"]);
    ok(&lab, &["down"]);
    let secret = run(&mut host.gpg(["--export-secret-keys", &sent]));
    run_with(&mut target.gpg(["--import"]), &secret);
    target.end_agents();
    let said = ok(&lab, &["down", "--purge"]);
    assert!(said.contains("0 public keys and 0 ownertrust"), "{said}");
    assert!(said.contains("1 keys kept that have a secret key there"), "{said}");
    assert!(has(target, &sent));
    assert_eq!(trust_of(target, &sent).as_deref(), Some("6"));
    assert_eq!(leftovers(&lab), Vec::<String>::new());
}

#[test]
fn a_value_that_the_user_has_changed_since_stays() {
    let lab = scene();
    let (host, target) = (&lab.host, &lab.target);
    let sent = host.fingerprint();
    send(host, &sent, target);
    ok(&lab, &["up"]);
    ok(&lab, &["down"]);
    trust(target, &sent, 3);
    let said = ok(&lab, &["down", "--purge"]);
    assert!(said.contains("0 public keys and 0 ownertrust"), "{said}");
    assert!(has(target, &sent), "it was there before");
    assert_eq!(trust_of(target, &sent).as_deref(), Some("3"));
}
