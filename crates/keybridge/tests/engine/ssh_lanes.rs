//! No lane fails because the other one is missing, at home or in the container.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::lab::{Image, gpg_version, output, run, text};
use crate::ssh_lab::{ACCOUNT, SshLab, Sshd, User, complaint};
use keybridge_lab::{SshHome, program};

/// A host without GnuPG: what else a bridge runs there is on its path, and nothing more.
fn remove_gpg(lab: &mut SshLab) {
    let bin = lab.docker.lab.at("bin");
    for name in ["docker", "git"] {
        symlink(program(name), bin.join(name)).unwrap();
    }
    assert!(bin.join("ssh").exists());
    lab.docker.lab.set_path(bin.to_str().unwrap());
}

/// `up` where no ssh-agent is to be found.
fn up_without_agent(lab: &SshLab, options: &[&str]) -> Command {
    let mut command = lab.up_command(options);
    command.env_remove("SSH_AUTH_SOCK");
    command
}

#[track_caller]
fn warnings(shown: &str) -> Vec<&str> {
    shown.lines().filter_map(|line| line.strip_prefix("! ")).collect()
}

#[track_caller]
fn signs(lab: &SshLab) {
    let signed = lab.docker.signs(Some(lab.user.name()));
    assert!(signed.status.success(), "{}", text(&signed.stderr));
}

/// A command ends with status 3, says why in one line, and changes nothing in the container.
#[track_caller]
fn is_not_there(lab: &SshLab, mut command: Command, words: &[&str]) {
    let before = lab.container().listing();
    let output = output(&mut command);
    let said = complaint(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let message = said.lines().next().unwrap();
    for word in words {
        assert!(message.contains(word), "{word:?} is not in the message: {said}");
    }
    assert!(said.lines().skip(1).all(|line| line.starts_with("  → ")), "{said}");
    assert!(said.lines().count() > 1, "no hint: {said}");
    lab.container().assert_unchanged(&before);
    assert_eq!(lab.docker.bridges().len(), 0);
}

#[test]
fn a_host_with_both_agents_lends_both() {
    let lab = SshLab::new(Image::Bookworm, User::Dev);
    let shown = lab.up(&[]);
    assert_eq!(warnings(&shown), Vec::<&str>::new());
    let answers = format!("gpg-agent {} answers, ssh-agent with 1 key answers", gpg_version());
    assert!(shown.contains(&answers), "{shown}");
    signs(&lab);
    assert_eq!(lab.run(["ssh-add", "-l"]), lab.home.keys());
}

#[test]
fn a_host_without_gpg_lends_its_ssh_agent() {
    let mut lab = SshLab::new(Image::Trixie, User::Dev);
    remove_gpg(&mut lab);
    // Someone who names a GnuPG home wants its agent.
    let shown_by = |mut command: Command| text(&run(command.env_remove("KEYBRIDGE_GNUPG_HOME")));
    let shown = shown_by(lab.up_command(&[]));
    let warned = warnings(&shown);
    assert_eq!(warned.len(), 1, "{shown}");
    assert!(warned[0].starts_with("without the gpg lane: gpgconf can't be started"), "{shown}");
    assert!(shown.contains("ssh-agent with 1 key answers"), "{shown}");
    assert!(lab.status()["lanes"]["gpg"].is_null());
    assert_eq!(shown_by(lab.run_command(["ssh-add", "-l"])), lab.home.keys());
    let sshd = Sshd::start(lab.container(), 2201);
    sshd.authorize(ACCOUNT, "", &lab.public_key("key"));
    assert_eq!(lab.sh(&format!("{} whoami", sshd.login())).trim(), ACCOUNT);
    // A bridge that is up says so, whatever it has no keys for.
    assert!(shown_by(lab.up_command(&[])).contains("is bridged already"));
    lab.docker.down();
}

#[test]
fn a_host_without_gpg_of_which_gpg_is_wanted_by_name() {
    let mut lab = SshLab::new(Image::Bookworm, User::Root);
    remove_gpg(&mut lab);
    for lanes in ["gpg", "gpg,ssh", "ssh,gpg"] {
        is_not_there(&lab, lab.up_command(&["--lanes", lanes]), &["gpgconf can't be started"]);
    }
    lab.up(&["--lanes", "ssh"]);
    assert_eq!(lab.run(["ssh-add", "-l"]), lab.home.keys());
}

/// gpg-agent listens for ssh here, as it does everywhere, but it isn't told to be an ssh-agent.
#[test]
fn a_host_without_an_ssh_agent_lends_its_gpg_agent() {
    let lab = SshLab::with(Image::Bookworm, &[], User::Dev, SshHome::new());
    let shown = text(&run(&mut up_without_agent(&lab, &[])));
    let warned = warnings(&shown);
    assert_eq!(warned.len(), 1, "{shown}");
    let reason = "without the ssh lane: no ssh-agent answers (SSH_AUTH_SOCK: not set; ";
    assert!(warned[0].starts_with(reason), "{shown}");
    signs(&lab);
    assert!(lab.status()["lanes"]["ssh"].is_null());
    // Nothing leads ssh to a lane that isn't there.
    assert_eq!(lab.try_sh("test -e ~/.ssh").status.code(), Some(1));
    assert_eq!(lab.run(["sh", "-c", "echo ${SSH_AUTH_SOCK-unset}"]), "unset\n");
    let said = complaint(&output(&mut lab.keybridge(["env", &lab.container().name])));
    assert!(said.contains("is bridged without the ssh lane"), "{said}");
}

#[test]
fn a_host_without_an_ssh_agent_of_which_ssh_is_wanted_by_name() {
    let lab = SshLab::with(Image::Trixie, &[], User::Dev, SshHome::new());
    for lanes in ["ssh", "gpg,ssh", "ssh,gpg"] {
        is_not_there(
            &lab,
            up_without_agent(&lab, &["--lanes", lanes]),
            &["no ssh-agent answers", "SSH_AUTH_SOCK: not set"],
        );
    }
    // A dead socket, as a killed agent leaves it.
    lab.home.start();
    lab.home.kill();
    let socket = lab.home.socket();
    let words = ["no ssh-agent answers", socket.to_str().unwrap()];
    is_not_there(&lab, lab.up_command(&["--lanes", "ssh"]), &words);
    let options = ["--lanes", "ssh", "--ssh-socket", socket.to_str().unwrap()];
    is_not_there(&lab, up_without_agent(&lab, &options), &["the setting ssh-socket"]);
}

#[test]
fn a_host_with_neither() {
    let mut lab = SshLab::with(Image::Bookworm, &[], User::Dev, SshHome::new());
    remove_gpg(&mut lab);
    is_not_there(&lab, up_without_agent(&lab, &[]), &["gpgconf can't be started"]);
}

#[test]
fn the_agent_that_a_setting_names_is_the_one_that_is_lent() {
    let lab = SshLab::new(Image::Bookworm, User::Root);
    let other = SshHome::new();
    other.start();
    other.make_key("other");
    other.add(&["-q", "other"]);
    let socket = other.socket();
    lab.up(&["--lanes", "ssh", "--ssh-socket", socket.to_str().unwrap()]);
    assert_eq!(lab.run(["ssh-add", "-l"]), other.keys());
    assert_ne!(other.keys(), lab.home.keys());
}

/// A container that has ssh and git, and no GnuPG.
fn without_gpg(image: Image, user: User) -> SshLab {
    let lab = SshLab::new(image, user);
    lab.container().sh(Some("0"), "rm /usr/bin/gpg /usr/bin/gpgconf /usr/bin/gpg-agent");
    lab
}

#[test]
fn a_container_without_gpg_gets_the_ssh_lane() {
    for user in [User::Root, User::Dev] {
        let lab = without_gpg(Image::Bookworm, user);
        let before = lab.container().listing();
        let shown = lab.up(&[]);
        let warned = warnings(&shown);
        assert_eq!(warned.len(), 1, "{shown}");
        assert!(warned[0].contains("gpg"), "{shown}");
        assert!(lab.status()["lanes"]["gpg"].is_null());
        assert_eq!(lab.run(["ssh-add", "-l"]), lab.home.keys());
        lab.docker.down();
        lab.assert_undone(&before);
    }
}

#[test]
fn a_container_without_gpg_of_which_gpg_is_wanted_by_name() {
    let lab = without_gpg(Image::Trixie, User::Dev);
    let before = lab.container().listing();
    for lanes in ["gpg", "gpg,ssh"] {
        let said = complaint(&output(&mut lab.up_command(&["--lanes", lanes])));
        assert!(said.contains("gpg") && said.contains("  → "), "{said}");
        lab.container().assert_unchanged(&before);
        assert_eq!(lab.docker.helpers(), Vec::<String>::new());
    }
}

/// Somebody's own agent is where ours would be, and it stays.
#[test]
fn a_container_whose_user_has_an_agent_at_that_place_keeps_it_and_gets_the_gpg_lane() {
    let lab = SshLab::new(Image::Bookworm, User::Dev);
    lab.sh("mkdir -m 700 ~/.ssh; ssh-agent -a ~/.ssh/agent.sock >/dev/null");
    let shown = lab.up(&[]);
    let warned = warnings(&shown);
    assert_eq!(warned.len(), 1, "{shown}");
    assert!(warned[0].contains("ssh") && warned[0].contains("agent.sock"), "{shown}");
    signs(&lab);
    let own = "SSH_AUTH_SOCK=$HOME/.ssh/agent.sock ssh-add -l";
    assert_eq!(text(&lab.try_sh(own).stdout), "The agent has no identities.\n");
    lab.docker.down();
    let said = complaint(&output(&mut lab.up_command(&["--lanes", "gpg,ssh"])));
    assert!(said.contains("agent.sock"), "{said}");
    assert_eq!(text(&lab.try_sh(own).stdout), "The agent has no identities.\n");
}

#[test]
fn an_agent_that_goes_away_is_a_failure_there_and_the_next_one_is_found() {
    let lab = SshLab::new(Image::Bookworm, User::Dev);
    lab.up(&["--lanes", "gpg,ssh"]);
    assert_eq!(lab.run(["ssh-add", "-l"]), lab.home.keys());
    let socket = lab.socket();
    let list = format!("SSH_AUTH_SOCK={socket} ssh-add -l");
    lab.home.kill();
    let said = complaint(&lab.try_sh(&list));
    assert_eq!(said, "error fetching identities: agent refused operation\n");
    signs(&lab);
    // At the same place, with nothing said to anyone.
    lab.home.start();
    lab.home.add(&["-q", "key"]);
    assert_eq!(lab.sh(&list), lab.home.keys());
    // At another one, which the next `up` tells.
    let other = SshHome::new();
    other.start();
    other.make_key("other");
    other.add(&["-q", "other"]);
    let mut up = lab.up_command(&["--lanes", "gpg,ssh"]);
    let shown = text(&run(up.env("SSH_AUTH_SOCK", other.socket())));
    assert!(shown.contains("is bridged already"), "{shown}");
    assert_eq!(lab.sh(&list), other.keys());
}
