//! The real gpg and git in a second home, with keys of the first.

use std::process::Stdio;

use crate::lab::{self, Client, Lab, USER, is_alive, noise, run, run_with, text, version_answer};

const FORBIDDEN: &str = "ERR 67109115 Forbidden <GPG Agent>";

#[test]
fn a_detached_signature_is_made_and_verified_in_both_homes() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let (file, signature) = (lab.file("file", "some words\n"), lab.at("file.sig"));
    run(lab.target.gpg(["--detach-sign", "-o"]).arg(&signature).arg(&file));
    for home in [&lab.target, &lab.host] {
        let status = run(home.gpg(["--status-fd", "1", "--verify"]).arg(&signature).arg(&file));
        let status = text(&status);
        assert!(status.contains("GOODSIG") && status.contains("TRUST_ULTIMATE"), "{status}");
    }
    bridge.stop();
}

#[test]
fn the_first_home_alone_has_the_secret_key() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    run(&mut lab.target.gpg(["--list-secret-keys", USER]));
    assert!(!lab.target.file("private-keys-v1.d").exists());
    // While the bridge is down nothing signs, and no agent comes up in its place.
    bridge.kill();
    let failed = lab::feed(&mut lab.target.gpg(["--detach-sign", "-u", USER]), b"words");
    let said = text(&failed.stderr);
    assert!(!failed.status.success() && said.contains("keybridge-is-down"), "{said}");
    assert!(std::os::unix::net::UnixStream::connect(lab.target.socket()).is_err());
}

#[test]
fn a_text_is_clear_signed() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let signed = run_with(&mut lab.target.gpg(["--clear-sign"]), b"- some\n words\n");
    assert!(text(&signed).starts_with("-----BEGIN PGP SIGNED MESSAGE-----"));
    run_with(&mut lab.host.gpg(["--verify"]), &signed);
    bridge.stop();
}

#[test]
fn git_signs_a_commit_and_shows_its_signature() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let git = |arguments: &[&str]| {
        let mut command = lab.target.command("git");
        command
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .args(["-C", lab.folder().to_str().unwrap(), "-c", "user.name=Lab"])
            .args(["-c", "user.email=lab@keybridge.example", "-c", "init.defaultBranch=main"])
            .args(arguments);
        text(&run(&mut command))
    };
    git(&["init", "--quiet"]);
    git(&["commit", "--quiet", "--allow-empty", "-S", "-m", "signed"]);
    let log = git(&["log", "--show-signature"]);
    assert!(log.contains("Good signature from") && log.contains(USER), "{log}");
    git(&["verify-commit", "HEAD"]);
    bridge.stop();
}

#[test]
fn a_message_is_decrypted() {
    let lab = Lab::with_key();
    let secret = run_with(&mut lab.host.gpg(["--encrypt", "-r", USER]), b"for your eyes only\n");
    let bridge = lab.up();
    assert_eq!(run_with(&mut lab.target.gpg(["--decrypt"]), &secret), b"for your eyes only\n");
    bridge.stop();
}

#[test]
fn a_file_of_256_kib_is_signed_encrypted_and_decrypted_each_way() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let content = noise(256 * 1024);
    for (from, to) in [(&lab.host, &lab.target), (&lab.target, &lab.host)] {
        let sealed = run_with(&mut from.gpg(["--sign", "--encrypt", "-r", USER]), &content);
        let mut decrypt = to.gpg(["--status-fd", "2", "--decrypt"]);
        let opened = lab::feed(&mut decrypt, &sealed);
        let status = text(&opened.stderr);
        assert!(opened.status.success() && status.contains("GOODSIG"), "{status}");
        assert!(opened.stdout == content, "{} bytes came back", opened.stdout.len());
    }
    bridge.stop();
}

#[test]
fn fifty_processes_sign_at_once() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let running: Vec<_> = (0..50)
        .map(|number| {
            let file = lab.file(&format!("{number}"), format!("words {number}\n"));
            let mut gpg = lab.target.gpg(["--detach-sign"]);
            gpg.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            (file, gpg.spawn().unwrap())
        })
        .collect();
    for (file, gpg) in running {
        let ended = gpg.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}: {}", file.display(), text(&ended.stderr));
        run(lab.target.gpg(["--verify"]).arg(file.with_extension("sig")).arg(&file));
    }
    bridge.stop();
}

#[test]
fn the_subkeys_of_a_certify_only_key_sign_and_decrypt() {
    let lab = Lab::empty();
    lab.host.make_certify_only_key();
    let bridge = lab.up();
    let message = run_with(&mut lab.target.gpg(["--sign", "--encrypt", "-r", USER]), b"words");
    assert_eq!(run_with(&mut lab.target.gpg(["--decrypt"]), &message), b"words");
    assert_eq!(run_with(&mut lab.host.gpg(["--decrypt"]), &message), b"words");
    bridge.stop();
}

#[test]
fn an_unknown_command_is_refused_and_the_next_one_is_answered() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let answer = lab.target.connect_agent(&["FROBNICATE now", "GETINFO version", "/bye"]);
    assert_eq!(answer, format!("{FORBIDDEN}\n{}", version_answer()));
    bridge.stop();
}

#[test]
fn the_agent_of_the_host_can_not_be_ended_from_the_target() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let agent = lab.host.agent_pid();
    let answer = lab.target.connect_agent(&["KILLAGENT", "killagent", "RELOADAGENT", "/bye"]);
    assert_eq!(answer, format!("{FORBIDDEN}\n").repeat(3));
    assert!(is_alive(agent));
    assert_eq!(lab.host.agent_pid(), agent);
    bridge.stop();
}

#[test]
fn a_dialog_of_the_targets_own_making_is_denied() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let ask = "GET_PASSPHRASE --data X X Password Please";
    let answer = lab.target.connect_agent(&[ask, &ask.to_lowercase(), "NOP", "/bye"]);
    assert_eq!(answer, format!("{FORBIDDEN}\n{FORBIDDEN}\nOK\n"));
    let mut client = Client::greeted(&bridge.socket());
    assert_eq!(client.ask("get_passphrase\tX X X X"), format!("{FORBIDDEN}\n"));
    bridge.stop();
}

#[test]
fn reset_clears_what_was_set_and_bye_ends_the_connection() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let grip = &lab.host.keygrips()[0];
    let hash = format!("SETHASH 8 {}", "0B".repeat(32));
    let set = [&format!("SIGKEY {grip}"), hash.as_str()];
    let signed = lab.target.connect_agent(&[set[0], set[1], "PKSIGN", "/bye"]);
    assert!(signed.starts_with("OK\nOK\nD ") && signed.ends_with("OK\n"), "{signed}");
    let answer = lab.target.connect_agent(&[set[0], set[1], "RESET", "PKSIGN", "/bye"]);
    assert!(answer.starts_with("OK\nOK\nOK\nERR "), "{answer}");
    let mut client = Client::greeted(&bridge.socket());
    assert_eq!(client.ask("BYE"), "OK closing connection\n");
    assert_eq!(client.rest(), b"");
    bridge.stop();
}
