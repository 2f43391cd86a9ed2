//! What is broken on the person's own machine.

use std::os::unix::fs::symlink;

use rustix::process::Signal;

use crate::lab::{USER, eventually, run, text};
use crate::scene::Scene;

#[test]
fn no_gpg() {
    let mut scene = Scene::bridged();
    scene.set_programs(&["sh", "docker"]);
    // Debian's package manager, with the rights of the administrator: it puts the programs there that the
    // package has. A real one would change this machine.
    scene.put_program("sudo", "exec \"$@\"");
    let bin = scene.lab().at("bin");
    let install = format!(
        "test \"$*\" = 'install -y gnupg' || exit 1
        for program in gpg gpgconf gpg-agent gpg-connect-agent; do
            /bin/ln -s /usr/bin/$program {}
        done",
        bin.display()
    );
    scene.put_program("apt-get", &install);
    let fix = scene.assert_found_and_fixed("host-gpg", 3, &["gpg", "can't be started"]);
    assert_eq!(fix, "sudo apt-get install -y gnupg");
}

#[test]
fn an_agent_that_is_not_running() {
    let scene = Scene::bridged();
    // gpg doesn't start it for somebody who has systemd do that.
    std::fs::write(scene.lab().host.file("gpg.conf"), "no-autostart\n").unwrap();
    scene.lab().host.end_agents();
    scene.assert_found_and_fixed("gpg-agent", 3, &["isn't running"]);
}

#[test]
fn an_agent_that_hangs() {
    let scene = Scene::bridged();
    let pid = scene.lab().host.agent_pid();
    scene.lab().host.signal_agent(pid, Signal::STOP);
    scene.assert_found_and_fixed("gpg-agent", 3, &["no answer"]);
}

#[test]
fn the_main_socket_in_place_of_the_extra_one() {
    let scene = Scene::bridged();
    let (main, extra) = (scene.lab().host.socket(), scene.lab().host.extra_socket());
    std::fs::remove_file(&extra).unwrap();
    symlink(main, &extra).unwrap();
    scene.assert_found_and_fixed("extra-socket", 1, &["expected a restricted socket"]);
}

#[test]
fn settings_that_name_the_main_socket() {
    let scene = Scene::new();
    scene.configure("[defaults]\nsocket = \"main\"\nlanes = [\"gpg\", \"ssh\"]\n");
    scene.up(&[]);
    scene.assert_found_and_fixed("extra-socket", 0, &["main socket"]);
}

#[test]
fn no_ssh_agent() {
    let scene = Scene::bridged();
    scene.ssh.kill();
    scene.assert_found_and_fixed("ssh-agent", 0, &["ssh-agent"]);
}

#[test]
fn no_ssh_agent_for_a_lane_that_was_named() {
    let scene = Scene::bridged();
    scene.configure("[defaults]\nlanes = [\"gpg\", \"ssh\"]\n");
    scene.ssh.kill();
    scene.assert_found_and_fixed("ssh-agent", 3, &["ssh-agent"]);
}

#[test]
fn a_key_that_has_expired() {
    let scene = Scene::bridged();
    let host = &scene.lab().host;
    let [primary, signing, _] = host.fingerprints().try_into().unwrap();
    for subkeys in [None, Some("*")] {
        run(&mut host.gpg(["--quick-set-expire", &primary, "seconds=1"].into_iter().chain(subkeys)));
    }
    eventually("the key has expired", || {
        text(&run(&mut host.gpg(["--list-keys", "--with-colons"]))).contains("\nsub:e:")
    });
    scene.assert_found_and_fixed("secret-keys", 1, &[&signing, USER, "expired"]);
}

#[test]
fn a_key_that_is_not_lent() {
    let scene = Scene::new();
    scene.lab().host.add_key("Other <other@keybridge.example>");
    scene.up(&["--lend", "other@keybridge.example"]);
    scene.assert_found_and_fixed("git-signing", 1, &["isn't lent"]);
}

#[test]
fn keys_of_which_none_is_lent_for_signatures() {
    let scene = Scene::new();
    scene.up(&["--uses", "decrypt"]);
    scene.assert_found_and_fixed("git-signing", 1, &["isn't lent"]);
}
