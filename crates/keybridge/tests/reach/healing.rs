//! Links that die come back by themselves: nobody types anything, and nobody is asked.

use std::process::Stdio;

use crate::assert_signs;
use crate::lab::{Image, eventually, run, text};
use crate::ssh_host::{Cut, SshHost};

/// Waits until a signature works again.
#[track_caller]
fn assert_heals(host: &SshHost) {
    eventually("a signature works again", || {
        crate::signs(&host.scene, Some("dev")).status.success()
    });
}

/// Cuts the link until the bridge has noticed, and sees that it heals.
#[track_caller]
fn cut_and_heal(host: &SshHost, cut: Cut) {
    host.up();
    assert_signs(&host.scene, Some("dev"));
    host.cut(cut);
    eventually("the bridge waits", || host.state().0 == "waiting");
    host.join(cut);
    assert_heals(host);
    host.down();
    crate::assert_undone(&host.scene, Some("dev"), "/home/dev");
}

#[test]
fn packets_that_are_lost_without_a_word() {
    cut_and_heal(&SshHost::new(Image::Trixie), Cut::Packets);
}

#[test]
fn an_interface_that_goes_down() {
    cut_and_heal(&SshHost::new(Image::Bookworm), Cut::Interface);
}

#[test]
fn a_host_behind_a_jump_host() {
    let host = SshHost::behind_a_jump_host(Image::Bookworm);
    cut_and_heal(&host, Cut::Packets);
}

/// As a laptop that wakes up elsewhere: connections of the old address are dead, and nobody says so.
#[test]
fn another_address_in_another_network() {
    let host = SshHost::new(Image::Bookworm);
    host.up();
    assert_signs(&host.scene, Some("dev"));
    host.move_to_another_address();
    assert_heals(&host);
    host.down();
}

/// The shared connection has died in silence with the link; a new login doesn't wait for it.
#[test]
fn a_shared_connection_that_is_dead() {
    let host = SshHost::with(
        Image::Bookworm,
        "",
        " ControlMaster auto\n ControlPath /tmp/kbc-%C\n ControlPersist 600\n",
    );
    cut_and_heal(&host, Cut::Packets);
    host.end_shared_connection();
}

#[test]
fn a_slow_link_is_not_a_lost_one() {
    let host = SshHost::new(Image::Bookworm);
    host.up();
    host.slow_down(64);
    assert_signs(&host.scene, Some("dev"));
    host.speed_up();
    assert_eq!(host.reconnects(), 0);
    host.down();
}

/// Comments are carried and not answered. At this rate, one frame of them takes seconds.
#[test]
fn a_link_that_is_cut_in_the_middle_of_a_frame() {
    const FLOOD: &str = "use IO::Socket::UNIX;
        my $agent = IO::Socket::UNIX->new(Peer => '/home/dev/.gnupg/S.gpg-agent') or die;
        print scalar <$agent>;
        $SIG{PIPE} = 'IGNORE';
        print $agent '# ', 'x' x 900, \"\\n\" for 1 .. 500;
        print $agent \"GETINFO version\\n\";
        shutdown $agent, 1;
        print <$agent>";
    let host = SshHost::new(Image::Bookworm);
    host.up();
    host.slow_down(64);
    let before = host.received();
    let client = host
        .scene
        .container
        .command(Some("dev"), ["perl", "-e", FLOOD])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("a part of it comes", || host.received() > before);
    host.cut(Cut::Packets);
    eventually("the bridge waits", || host.state().0 == "waiting");
    let told = client.wait_with_output().unwrap();
    let told = text(&told.stdout);
    assert!(told.starts_with("OK ") && !told.contains("\nD "), "{told}");
    host.speed_up();
    host.join(Cut::Packets);
    assert_heals(&host);
    host.down();
    crate::assert_undone(&host.scene, Some("dev"), "/home/dev");
}

#[test]
fn a_helper_that_is_killed_and_a_sshd_that_is_restarted() {
    let host = SshHost::new(Image::Bookworm);
    host.up();
    host.scene.container.sh(Some("0"), "kill -9 $(pgrep -f keybridge-remote- | head -1)");
    assert_heals(&host);
    host.scene.container.sh(Some("0"), "kill $(cat /run/sshd.pid); pkill -u dev sshd");
    // The old one may still have the port.
    eventually("sshd is started again", || {
        let start = "/usr/sbin/sshd -f /etc/ssh/sshd -E /var/log/sshd";
        host.scene.container.try_sh(Some("0"), start).status.success()
    });
    assert_heals(&host);
    host.down();
    crate::assert_undone(&host.scene, Some("dev"), "/home/dev");
}

/// All of its processes are gone, and so is what is kept in memory; its sshd is back a while later.
#[test]
fn a_host_that_is_rebooted() {
    let host = SshHost::new(Image::Bookworm);
    host.up();
    let container = &host.scene.container;
    container.sh(
        Some("0"),
        "kill -9 $(cat /run/sshd.pid); pkill -9 -u dev; find /run /tmp -type s -delete",
    );
    eventually("the bridge waits", || host.state().0 == "waiting");
    container.sh(Some("0"), "/usr/sbin/sshd -f /etc/ssh/sshd -E /var/log/sshd");
    assert_heals(&host);
    host.down();
    crate::assert_undone(&host.scene, Some("dev"), "/home/dev");
}

#[test]
fn down_of_a_host_that_is_away_is_done_later() {
    let host = SshHost::new(Image::Bookworm);
    host.up();
    host.cut(Cut::Interface);
    eventually("the bridge waits", || host.state().0 == "waiting");
    let said = host.down();
    assert!(said.contains("at the next up or down"), "{said}");
    host.join(Cut::Interface);
    let said = host.down();
    assert!(said.contains("undone"), "{said}");
    crate::assert_undone(&host.scene, Some("dev"), "/home/dev");
}

/// `up` mends it.
#[test]
fn a_login_that_is_refused_after_a_cut() {
    let host = SshHost::new(Image::Bookworm);
    host.up();
    host.scene
        .container
        .sh(Some("0"), "mv /etc/ssh/authorized-dev /etc/ssh/away; pkill -u dev sshd");
    eventually("the bridge has failed", || host.state().0 == "failed");
    let (_, reason) = host.state();
    assert!(reason.contains("refused"), "{reason}");
    let shown = text(&run(&mut host.scene.keybridge(["status"])));
    assert!(shown.contains("keybridge up ssh://far"), "{shown}");
    host.scene.container.sh(Some("0"), "mv /etc/ssh/away /etc/ssh/authorized-dev");
    host.up();
    assert_signs(&host.scene, Some("dev"));
    host.down();
}
