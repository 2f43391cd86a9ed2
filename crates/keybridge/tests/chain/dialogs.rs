//! Dialogs of the real gpg-agent: what a person cancels doesn't come again at once.

use std::path::PathBuf;

use crate::lab::{Client, Home, Lab, eventually, output, run, write_program};
use crate::settings::Scene;

const OWNER: &str = "asked@test";

/// A key with a passphrase, and a pinentry that notes each question in the file it gives back.
fn guarded_key(lab: &Lab, on_question: &str) -> PathBuf {
    let (host, asked) = (&lab.host, lab.at("asked"));
    let words = ["--pinentry-mode", "loopback", "--passphrase", "secret", "--quick-gen-key", OWNER];
    run(host.gpg(words).args(["ed25519", "sign", "never"]));
    let pinentry = lab.at("bin/pinentry-of-test");
    write_program(
        &pinentry,
        format!(
            "#!/bin/sh\necho OK\nwhile read -r verb rest; do case $verb in\n\
             GETPIN) echo asked >>{}; {on_question} ;;\nBYE) echo OK; exit ;;\n*) echo OK ;;\nesac; done\n",
            asked.display()
        ),
    );
    let configuration = format!("pinentry-program {}\n", pinentry.display());
    std::fs::write(host.file("gpg-agent.conf"), configuration).unwrap();
    // It has cached the passphrase.
    host.end_agents();
    asked
}

/// A client that has everything for a signature but the signature.
fn ready_to_sign(target: &Home, grip: &str) -> Client {
    let mut client = Client::greeted(&target.path().join("S.gpg-agent"));
    assert_eq!(client.ask(format!("SIGKEY {grip}")), "OK\n");
    assert_eq!(client.ask(format!("SETHASH 8 {}", "AB".repeat(32))), "OK\n");
    client
}

fn questions(asked: &PathBuf) -> usize {
    std::fs::read_to_string(asked).unwrap_or_default().lines().count()
}

#[test]
fn a_cancelled_dialog_does_not_come_again_at_once() {
    let lab = Lab::with_key();
    let asked = guarded_key(&lab, "echo 'ERR 83886179 Operation cancelled <Pinentry>'");
    let bridge = lab.up();
    let grip = lab.host.keygrip_of(OWNER);
    let mut clients: Vec<Client> = (0..4).map(|_| ready_to_sign(&lab.target, &grip)).collect();
    let answers: Vec<String> = clients.iter_mut().map(|client| client.ask("PKSIGN")).collect();
    assert!(answers.iter().all(|answer| answer.contains("cancelled")), "{answers:?}");
    assert_eq!(questions(&asked), 1, "{answers:?}");
    // Another key has nothing to do with that.
    let file = lab.file("file", "some words\n");
    run(lab.target.gpg(["--detach-sign", "-u", crate::lab::USER]).arg(file));
    bridge.stop();
}

#[test]
fn a_client_that_wants_to_ask_by_itself_is_asked_on_the_host() {
    let lab = Lab::with_key();
    let asked = guarded_key(&lab, "echo 'D secret'; echo OK");
    let bridge = lab.up();
    let file = lab.file("file", "some words\n");
    let sign = |mode: &str| {
        let words =
            ["--pinentry-mode", mode, "--passphrase", "wrong", "-u", OWNER, "--detach-sign"];
        output(lab.target.gpg(words).arg(&file))
    };
    // With these modes nobody is asked. Answering OK without telling the agent would break that.
    for mode in ["error", "cancel"] {
        let refused = sign(mode);
        assert!(!refused.status.success(), "{mode}: {refused:?}");
        assert_eq!(questions(&asked), 0, "{mode}");
    }
    let signed = sign("loopback");
    assert!(signed.status.success(), "{signed:?}");
    assert_eq!(questions(&asked), 1);
    run(lab.target.gpg(["--verify"]).arg(file.with_extension("sig")).arg(&file));
    bridge.stop();
}

#[test]
fn down_says_that_a_dialog_may_still_be_open() {
    let scene = Scene::new();
    let never = scene.lab.at("never");
    run(crate::lab::command("mkfifo").arg(&never));
    let asked = guarded_key(&scene.lab, &format!("read -r _ <{}", never.display()));
    scene.up(&[]);
    let quiet = scene.keybridge(&["down", &scene.address]);
    assert!(quiet.contains("undone") && !quiet.contains("dialogs"), "{quiet}");
    scene.up(&[]);
    let grip = scene.lab.host.keygrip_of(OWNER);
    let mut client = ready_to_sign(&scene.lab.target, &grip);
    client.send("PKSIGN\n");
    eventually("a person is asked", || questions(&asked) == 1);
    let shown = scene.keybridge(&["down", &scene.address]);
    assert!(shown.contains("undone; dialogs may still be open"), "{shown}");
    // The dialog is closed.
    drop(std::fs::File::options().read(true).write(true).open(&never).unwrap());
    drop(client);
}
