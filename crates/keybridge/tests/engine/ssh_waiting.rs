//! While a signature waits for a person at home, no client of another agent or of the other lane waits.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use crate::lab::{Image, eventually, run, text};
use crate::ssh_lab::{SshLab, User, be_ssh_agent};
use keybridge_lab::SshHome;

/// How many ask at once.
const CLIENTS: usize = 200;

/// A person who is asked, and doesn't answer until told to.
struct Person {
    asked: PathBuf,
    pipe: PathBuf,
}

impl Person {
    fn new(home: &SshHome) -> Self {
        Self { asked: home.file("asked"), pipe: home.make_fifo("pipe") }
    }

    /// What a program does to ask.
    fn ask(&self) -> String {
        format!(": >{}; read answer <{}", self.asked.display(), self.pipe.display())
    }

    fn is_asked(&self) {
        eventually("somebody is asked", || self.asked.exists());
    }

    /// Says yes.
    fn answer(&self) {
        std::fs::write(&self.pipe, "yes\n").unwrap();
    }
}

/// OpenSSH's agent with a key whose every use has to be confirmed.
fn careful_home() -> (SshHome, Person) {
    let home = SshHome::new();
    let person = Person::new(&home);
    home.script("askpass", &person.ask());
    home.start();
    home.make_key("key");
    home.add(&["-q", "-c", "key"]);
    (home, person)
}

/// Begins to sign a file in the container.
fn begin_to_sign(lab: &SshLab, key: &str) -> Child {
    lab.write("/tmp/waits.pub", key);
    lab.write("/tmp/waits", "a commit");
    let words = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", "/tmp/waits.pub", "/tmp/waits"];
    let mut command = lab.run_command(words);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[track_caller]
fn is_signed(lab: &SshLab, mut signing: Child) {
    let mut status = None;
    eventually("the signature is made", || {
        status = signing.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success());
    assert!(lab.sh("cat /tmp/waits.sig").starts_with("-----BEGIN SSH SIGNATURE-----"));
}

/// All clients list the keys at once, and each has its list before the person has answered.
#[track_caller]
fn nobody_is_delayed(lab: &SshLab, key: &str, person: &Person) {
    let mut signing = begin_to_sign(lab, key);
    person.is_asked();
    // All wait at a pipe until it is opened, and then come together.
    let listed = lab.run([
        "sh",
        "-ec",
        &format!(
            "cd \"$(mktemp -d)\"
            mkfifo start
            for client in $(seq {CLIENTS}); do
                (: <start; exec ssh-add -L >$client 2>&1) &
            done
            exec 3>start
            wait
            cat *[0-9]"
        ),
    ]);
    assert_eq!(listed.lines().count(), CLIENTS, "{listed}");
    for line in listed.lines() {
        assert!(line.starts_with(key), "{line}");
    }
    assert!(signing.try_wait().unwrap().is_none(), "the person is still being asked");
    // The ends of the others are on their way.
    eventually("the others have gone", || lab.status()["lanes"]["ssh"]["open"] == 1);
    let lane = &lab.status()["lanes"]["ssh"];
    assert!(lane["total"].as_u64().unwrap() > CLIENTS as u64, "{lane}");
    person.answer();
    is_signed(lab, signing);
}

/// gpg-agent answers its other clients while a dialog of its own waits.
#[test]
fn two_hundred_clients_are_not_delayed_by_a_dialog_of_gpg_agent() {
    let lab = SshLab::with(Image::Bookworm, &[], User::Dev, SshHome::new());
    let person = Person::new(&lab.home);
    let pinentry = lab.home.script(
        "pinentry",
        &format!(
            "echo OK\nwhile read -r verb rest; do\n  case $verb in CONFIRM) {};; esac\n  echo OK\n\
             done",
            person.ask()
        ),
    );
    let settings = format!("pinentry-program {}\n", pinentry.display());
    let key = be_ssh_agent(&lab.docker.lab.host, "confirm", &settings);
    let name = &lab.container().name;
    run(&mut lab.docker.keybridge(["up", name, "--user", "dev", "--lanes", "ssh"]));
    nobody_is_delayed(&lab, &key, &person);
}

/// What waits in OpenSSH's agent holds up neither the other lane nor the bridge, and what only the agent
/// can do is done when the person has answered.
#[test]
fn while_openssh_waits_for_a_person_the_gpg_lane_goes_on() {
    let (home, person) = careful_home();
    home.make_key("another");
    home.add(&["-q", "another"]);
    let lab = SshLab::with(Image::Trixie, &[], User::Root, home);
    lab.up(&["--lanes", "gpg,ssh"]);
    let mut signing = begin_to_sign(&lab, &lab.public_key("key"));
    person.is_asked();
    lab.write("/tmp/other.pub", lab.public_key("another"));
    lab.write("/tmp/other", "another commit");
    let words = ["ssh-keygen", "-Y", "sign", "-n", "git", "-f", "/tmp/other.pub", "/tmp/other"];
    let mut command = lab.run_command(words);
    let mut other = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the other client is there", || lab.status()["lanes"]["ssh"]["open"] == 2);
    let signed = lab.docker.signs(None);
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    for child in [&mut signing, &mut other] {
        assert!(child.try_wait().unwrap().is_none(), "the person is still being asked");
    }
    person.answer();
    is_signed(&lab, signing);
    assert!(other.wait().unwrap().success());
}

/// A client that gives up takes its question back: the connection to the agent is closed.
#[test]
fn a_client_that_gives_up_leaves_nothing_open() {
    let (home, person) = careful_home();
    let lab = SshLab::with(Image::Bookworm, &[], User::Dev, home);
    lab.up(&["--lanes", "ssh"]);
    let mut signing = begin_to_sign(&lab, &lab.public_key("key"));
    person.is_asked();
    eventually("it is the only one", || lab.status()["lanes"]["ssh"]["open"] == 1);
    let clients = lab.container().processes("ssh-keygen");
    let pid = clients[0].split(' ').next().unwrap();
    lab.sh(&format!("kill {pid}"));
    signing.wait().unwrap();
    eventually("its connection is gone", || lab.status()["lanes"]["ssh"]["open"] == 0);
    person.answer();
    assert_eq!(lab.run(["ssh-add", "-l"]), lab.home.keys());
}
