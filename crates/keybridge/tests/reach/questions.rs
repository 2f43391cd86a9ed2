//! What a login asks is asked at the terminal of `up`, and at no other time.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;

use crate::assert_signs;
use crate::lab::{Image, PATIENCE, command, eventually, output, text};
use crate::ssh_host::{Cut, SshHost};

const PASSWORD: &str = "secret";

/// A program at a terminal of its own, and a person who reads and types there.
struct AtTerminal {
    child: Child,
    stdin: ChildStdin,
    shown: mpsc::Receiver<Vec<u8>>,
    read: String,
}

impl AtTerminal {
    fn start(program: &Command) -> Self {
        let words = std::iter::once(program.get_program()).chain(program.get_args());
        let words: Vec<_> = words.map(|word| format!("'{}'", word.to_str().unwrap())).collect();
        let mut script = command("script");
        script.args(["--quiet", "--return", "--flush", "--command", &words.join(" "), "/dev/null"]);
        script
            .env_clear()
            .envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        script.env("SHELL", "/bin/sh");
        script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let (tell, shown) = mpsc::channel();
        let mut stdout = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut part = [0; 1024];
            while let Ok(count @ 1..) = stdout.read(&mut part) {
                if tell.send(part[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self { stdin: child.stdin.take().unwrap(), child, shown, read: String::new() }
    }

    /// Waits until something is shown that wasn't there before, and types a line.
    #[track_caller]
    fn answer(&mut self, question: &str, line: &str) {
        let from = self.read.len();
        while !self.read[from..].contains(question) {
            let Ok(part) = self.shown.recv_timeout(PATIENCE) else {
                panic!("{question} is not asked: {}", self.read)
            };
            self.read.push_str(&text(&part));
        }
        self.stdin.write_all(line.as_bytes()).unwrap();
        self.stdin.write_all(b"\n").unwrap();
    }

    /// Waits for the end; gives back the exit status and all that was shown.
    fn ended(mut self) -> (i32, String) {
        while let Ok(part) = self.shown.recv_timeout(PATIENCE) {
            self.read.push_str(&text(&part));
        }
        (self.child.wait().unwrap().code().unwrap(), self.read)
    }
}

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
