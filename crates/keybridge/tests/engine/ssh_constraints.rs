//! A key that is for one destination alone stays that through a bridge.

use crate::lab::Image;
use crate::ssh_lab::{ACCOUNT, SshLab, Sshd, User, complaint};
use keybridge_lab::SshHome;

/// Two sshds that would both take the key, and a host that knows them as `there` and `elsewhere`.
fn two_destinations(lab: &SshLab) -> (Sshd<'_>, Sshd<'_>) {
    let (there, elsewhere) =
        (Sshd::start(lab.container(), 2201), Sshd::start(lab.container(), 2202));
    assert_ne!(there.host_key, elsewhere.host_key);
    let known = format!("there {}\nelsewhere {}\n", there.host_key, elsewhere.host_key);
    std::fs::write(lab.home.file("hosts"), known).unwrap();
    there.authorize(ACCOUNT, "", &lab.public_key("bound"));
    (there, elsewhere)
}

fn lab(image: Image, user: User) -> SshLab {
    let home = SshHome::new();
    home.start();
    home.make_key("bound");
    SshLab::with(image, &[], user, home)
}

#[track_caller]
fn logs_in(lab: &SshLab, sshd: &Sshd<'_>) {
    assert_eq!(lab.sh(&format!("{} whoami", sshd.login())).trim(), ACCOUNT);
}

/// The key is refused, and by the agent: sshd would take it.
#[track_caller]
fn is_refused(lab: &SshLab, sshd: &Sshd<'_>) {
    let refused = complaint(&lab.try_sh(&format!("{} whoami", sshd.login())));
    assert!(refused.contains("Permission denied (publickey"), "{refused}");
}

#[track_caller]
fn one_destination(image: Image, user: User) {
    let lab = lab(image, user);
    lab.up(&["--lanes", "ssh"]);
    let (there, elsewhere) = two_destinations(&lab);
    lab.home.add(&["-q", "-H", "hosts", "-h", "there", "bound"]);
    logs_in(&lab, &there);
    is_refused(&lab, &elsewhere);
    logs_in(&lab, &there);

    lab.home.add(&["-q", "-D"]);
    lab.home.add(&["-q", "-H", "hosts", "-h", "somebody@there", "bound"]);
    is_refused(&lab, &there);

    lab.home.add(&["-q", "-D"]);
    lab.home.add(&["-q", "bound"]);
    logs_in(&lab, &there);
    logs_in(&lab, &elsewhere);
}

#[test]
fn a_key_for_one_destination_as_root() {
    one_destination(Image::Bookworm, User::Root);
}

#[test]
fn a_key_for_one_destination_as_a_normal_user() {
    one_destination(Image::Trixie, User::Dev);
}

/// The agent is forwarded from the container to `there`, and asked from there by way of the bridge: it
/// sees each hop, and both host keys.
#[test]
fn a_key_for_a_way_of_two_hops() {
    let lab = lab(Image::Trixie, User::Dev);
    lab.up(&["--lanes", "ssh"]);
    let (there, elsewhere) = two_destinations(&lab);
    let forwarded = there.login().replacen("ssh", "ssh -A", 1);
    let both = format!("{forwarded} {} whoami", elsewhere.login());
    lab.home.add(&["-q", "-H", "hosts", "-h", "there", "bound"]);
    let refused = complaint(&lab.try_sh(&both));
    assert!(refused.contains("Permission denied (publickey"), "{refused}");

    lab.home.add(&["-q", "-D"]);
    lab.home.add(&["-q", "-H", "hosts", "-h", "there", "-h", "there>elsewhere", "bound"]);
    assert_eq!(lab.sh(&both).trim(), ACCOUNT);
    is_refused(&lab, &elsewhere);
}
