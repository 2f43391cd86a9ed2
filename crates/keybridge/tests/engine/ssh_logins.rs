//! Logins to some hosts and to no others (`logins`): by the key that a host has proven, whatever a target says.

use crate::lab::{Image, run, text};
use crate::ssh_lab::{ACCOUNT, SshLab, Sshd, User, be_ssh_agent, complaint};
use keybridge_lab::{SshHome, command};

/// Two sshds that would both take the key for two accounts, of which the user at home has logged in to the first.
fn two_sshds<'a>(lab: &'a SshLab, key: &str) -> (Sshd<'a>, Sshd<'a>) {
    let (known, other) = (Sshd::start(lab.container(), 2201), Sshd::start(lab.container(), 2202));
    for account in [ACCOUNT, "dev"] {
        known.authorize(account, "", key);
    }
    let line = format!("[127.0.0.1]:2201 {}\n", known.host_key);
    std::fs::create_dir(lab.docker.lab.at("home/.ssh")).unwrap();
    let file = lab.docker.lab.file("home/.ssh/known_hosts", line);
    // As Debian's ssh writes names.
    run(command("ssh-keygen").args(["-q", "-H", "-f"]).arg(&file));
    (known, other)
}

#[track_caller]
fn logs_in(lab: &SshLab, sshd: &Sshd<'_>) {
    assert_eq!(lab.sh(&format!("{} whoami", sshd.login())).trim(), ACCOUNT);
}

/// The signature is refused: sshd would take the key.
#[track_caller]
fn is_refused(lab: &SshLab, login: &str) {
    let refused = complaint(&lab.try_sh(&format!("{login} whoami")));
    assert!(refused.contains("Permission denied (publickey"), "{refused}");
}

/// A target can name the hosts as it likes.
#[track_caller]
fn one_of_two(lab: &SshLab, key: &str) {
    let (known, other) = two_sshds(lab, key);
    let shown = lab.up(&["--lanes", "ssh", "--logins", "far@127.0.0.1:2201"]);
    assert!(shown.contains("; logins far@[127.0.0.1]:2201 alone"), "{shown}");
    logs_in(lab, &known);
    is_refused(lab, &other.login());
    let by_its_name = "ssh -o BatchMode=yes -o StrictHostKeyChecking=no \
                       -o UserKnownHostsFile=/dev/null -o GlobalKnownHostsFile=/dev/null \
                       -o HostKeyAlias='[127.0.0.1]:2201' -p 2202 far@127.0.0.1";
    is_refused(lab, by_its_name);
    is_refused(lab, &known.login().replace(ACCOUNT, "dev"));
    logs_in(lab, &known);
    let log = text(&run(&mut lab.keybridge(["logs", &lab.container().name])));
    assert!(log.contains("this login isn't among those that are allowed"), "{log}");

    // The person has logged in to the other one meanwhile, and runs `up` again.
    let line = format!("[127.0.0.1]:2202 {}\n", other.host_key);
    lab.docker.lab.file("home/.ssh/known_hosts", line);
    let shown = lab.up(&["--logins", "*@127.0.0.1:2202,far@127.0.0.1:2201"]);
    assert!(shown.contains("your known_hosts has no key of [127.0.0.1]:2201"), "{shown}");
    logs_in(lab, &other);
    is_refused(lab, &known.login());
    assert_eq!(lab.status()["unknown_hosts"][0], "[127.0.0.1]:2201");
    lab.up(&["--logins", "all"]);
    logs_in(lab, &known);
}

#[test]
fn a_login_is_allowed_by_the_key_of_its_host() {
    let lab = SshLab::new(Image::Trixie, User::Dev);
    let key = lab.public_key("key");
    one_of_two(&lab, &key);
}

/// An agent that knows nothing of session-binds.
#[test]
fn the_same_with_gpg_agent_as_ssh_agent() {
    let lab = SshLab::with(Image::Bookworm, &[], User::Dev, SshHome::new());
    // It is found, since nothing answers at SSH_AUTH_SOCK.
    let key = be_ssh_agent(&lab.docker.lab.host, "", "");
    one_of_two(&lab, &key);
}
