//! What a login asks is asked at the terminal of `up`, and at no other time.

use std::fs;

use crate::assert_signs;
use crate::lab::{AtTerminal, Container, Image, command, eventually, output, text};
use crate::ssh_host::{Cut, SshHost};

const PASSWORD: &str = "secret";

fn with_password() -> SshHost {
    SshHost::with(Image::Bookworm, "PasswordAuthentication yes\nPubkeyAuthentication no", "")
}

fn up(host: &SshHost) -> AtTerminal {
    AtTerminal::start(&host.scene.keybridge(["up", &SshHost::address()]))
}

#[track_caller]
fn up_with_password(host: &SshHost) {
    let mut up = up(host);
    up.answer("password:", PASSWORD);
    let (status, shown) = up.ended();
    assert_eq!(status, 0, "{shown}");
    assert_eq!(shown.matches("password:").count(), 1, "{shown}");
    assert!(!shown.contains(PASSWORD), "the password was shown: {shown}");
    assert_signs(&host.scene, Some("dev"));
}

#[test]
fn a_password_is_asked_once_and_after_a_cut_up_is_wanted() {
    let host = with_password();
    up_with_password(&host);
    host.cut(Cut::Interface);
    eventually("the bridge waits", || host.state().0 == "waiting");
    host.join(Cut::Interface);
    eventually("the login is refused", || host.state().0 == "failed");
    let (_, reason) = host.state();
    assert!(reason.contains("refused"), "{reason}");
    up_with_password(&host);
    let log = text(&output(&mut host.scene.keybridge(["logs", "ssh://far"])).stdout);
    assert!(!log.contains(PASSWORD), "{log}");
    host.down();
    crate::assert_undone(&host.scene, Some("dev"), "/home/dev");
}

#[test]
fn a_wrong_password_is_asked_for_again_and_ends_in_a_refusal() {
    let host = with_password();
    let mut up = up(&host);
    for _ in 0..3 {
        up.answer("password:", "wrong");
    }
    let (status, shown) = up.ended();
    assert_eq!(status, 1, "{shown}");
    assert!(shown.contains("the login was refused"), "{shown}");
    assert_eq!(host.scene.bridges().len(), 0);
    assert_eq!(host.scene.helpers(), Vec::<String>::new());
}

#[test]
fn ctrl_c_at_a_question_ends_all_questions() {
    let host = with_password();
    let mut up = up(&host);
    up.answer("password:", "\u{3}");
    let (status, shown) = up.ended();
    assert_eq!(status, 1, "{shown}");
    assert_eq!(shown.matches("password:").count(), 1, "{shown}");
}

#[test]
fn without_a_terminal_nobody_is_asked() {
    let host = with_password();
    for options in [&["up", "ssh://far"][..], &["up", "--json", "ssh://far"]] {
        let mut up = command("setsid");
        let keybridge = host.scene.keybridge(options.iter().copied());
        up.arg("--wait").arg(keybridge.get_program()).args(keybridge.get_args()).env_clear();
        up.envs(keybridge.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ended = output(&mut up);
        let said = text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("the login was refused") && said.contains("at a terminal"), "{said}");
    }
}

#[test]
fn an_unknown_host_key_is_asked_about_and_remembered() {
    let host = SshHost::new(Image::Bookworm);
    fs::write(host.known_hosts(), "").unwrap();
    let mut up = up(&host);
    up.answer("(yes/no/[fingerprint])?", "yes");
    let (status, shown) = up.ended();
    assert_eq!(status, 0, "{shown}");
    assert!(shown.contains("SHA256:"), "{shown}");
    assert_signs(&host.scene, Some("dev"));
    host.down();
    // It is known now.
    host.up();
    host.down();
}

#[test]
fn an_unknown_host_key_that_is_not_accepted() {
    let host = SshHost::new(Image::Bookworm);
    fs::write(host.known_hosts(), "").unwrap();
    let mut up = up(&host);
    up.answer("(yes/no/[fingerprint])?", "no");
    let (status, shown) = up.ended();
    assert_eq!(status, 1, "{shown}");
    assert_eq!(fs::read_to_string(host.known_hosts()).unwrap(), "");
}

/// Also where the user's configuration would accept it.
#[test]
fn a_changed_host_key_is_never_accepted() {
    for checking in ["ask", "no"] {
        let host =
            SshHost::with(Image::Bookworm, "", &format!(" StrictHostKeyChecking {checking}\n"));
        let other = host.scene.lab.at("other");
        let mut keygen = command("ssh-keygen");
        crate::lab::run(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&other));
        let other = fs::read_to_string(other.with_extension("pub")).unwrap();
        fs::write(host.known_hosts(), format!("{} {other}", host.ip())).unwrap();
        let (status, shown) = up(&host).ended();
        assert_eq!(status, 1, "{checking}: {shown}");
        assert!(shown.contains("the host's key has changed"), "{checking}: {shown}");
        assert!(shown.contains("ssh-keygen -R"), "{checking}: {shown}");
        assert_eq!(host.scene.helpers(), Vec::<String>::new());
    }
}

/// The jump host's own ssh asks as well.
#[test]
fn both_logins_of_a_jump_host_ask() {
    let host = SshHost::with(
        Image::Bookworm,
        "PasswordAuthentication yes\nPubkeyAuthentication no",
        " ProxyJump jump\n",
    );
    let mut up = up(&host);
    up.answer("password:", PASSWORD);
    up.answer("password:", PASSWORD);
    let (status, shown) = up.ended();
    assert_eq!(status, 0, "{shown}");
    assert_signs(&host.scene, Some("dev"));
    host.scene.container.sh(Some("0"), "pkill -u dev sshd");
    eventually("the login is refused", || host.state().0 == "failed");
    host.down();
}

/// The other target is set up meanwhile, and draws nothing over the question.
#[test]
fn a_question_among_several_targets_stays_readable() {
    let host = with_password();
    let other = Container::start(Image::Bookworm, &[]);
    let words = ["up", &SshHost::address(), &other.address()];
    let mut up = AtTerminal::start(&host.scene.keybridge(words));
    up.wait_for("password:");
    let is_ready = |bridge: &serde_json::Value| {
        bridge["target"] == other.address().as_str() && bridge["state"] == "ready"
    };
    eventually("the other target is bridged", || host.scene.bridges().iter().any(is_ready));
    let question = up.shown_so_far();
    let question = question.rsplit_once("password:").unwrap().1;
    assert_eq!(question.trim(), "", "something is drawn over the question");
    up.type_line(PASSWORD);
    let (status, shown) = up.ended();
    assert_eq!(status, 0, "{shown}");
    assert_eq!(shown.matches("password:").count(), 1, "{shown}");
    let last = shown.rsplit("\u{1b}[J").next().unwrap();
    assert_eq!(last.matches("is bridged").count(), 2, "{shown}");
    crate::lab::run(&mut host.scene.keybridge(["down", "--all"]));
}
