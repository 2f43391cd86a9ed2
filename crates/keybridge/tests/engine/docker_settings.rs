//! Another `up` on the bridge of a container changes the settings that it names.

use crate::lab::{Docker, Image, output, text};
use crate::ssh_lab::{SshLab, User, complaint};

#[test]
fn another_user_is_refused_with_the_fix_and_the_same_one_is_not() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.up(&["--user", "dev"]);
    for user in ["dev", "1000"] {
        let shown = docker.up(&["--user", user]);
        assert!(shown.contains("is bridged already"), "{shown}");
    }
    assert_eq!(docker.bridges()[0]["reconnects"], 0);
    let refused = output(&mut docker.up_command(&["--user", "root"]));
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let address = docker.container.address();
    assert!(said.contains(&format!("{address} is bridged for dev (uid 1000)\n")), "{said}");
    let fix = format!("→ keybridge down {address}, then keybridge up --user root {address}\n");
    assert!(said.contains(&fix), "{said}");
    assert!(docker.signs(Some("dev")).status.success());
}

#[test]
fn a_lane_can_be_taken_away_and_given_back() {
    let lab = SshLab::new(Image::Bookworm, User::Dev);
    lab.up(&[]);
    assert_eq!(lab.run(["ssh-add", "-l"]), lab.home.keys());
    let socket = lab.socket();
    lab.up(&["--lanes", "gpg"]);
    assert!(lab.status()["lanes"]["ssh"].is_null(), "{}", lab.status());
    assert!(!lab.try_sh(&format!("test -e {socket}")).status.success());
    assert!(!lab.try_sh("test -e ~/.ssh/config").status.success());
    // It stays so until somebody says otherwise.
    lab.up(&[]);
    assert!(lab.status()["lanes"]["ssh"].is_null());
    lab.up(&["--lanes", "gpg,ssh"]);
    assert_eq!(lab.run(["ssh-add", "-l"]), lab.home.keys());
}

#[test]
fn changes_of_the_ssh_agent_and_gits_signing_can_be_allowed_and_taken_back() {
    let lab = SshLab::new(Image::Bookworm, User::Dev);
    lab.up(&[]);
    lab.sh("ssh-keygen -q -t ed25519 -N '' -C there -f /tmp/there");
    let add = || lab.try_run("ssh-add -q /tmp/there");
    assert!(complaint(&add()).contains("agent refused operation"));
    lab.up(&["--allow-ssh-changes", "--git"]);
    assert!(add().status.success(), "{:?}", add());
    assert!(lab.home.keys().contains(" there "), "{}", lab.home.keys());
    assert_eq!(lab.git_setting("commit.gpgSign"), "true");
    lab.up(&["--allow-ssh-changes=false", "--git=false"]);
    assert!(!lab.try_run("ssh-add -q -d /tmp/there.pub").status.success());
    assert_eq!(lab.git_setting("commit.gpgSign"), "");
}
