//! `exec:COMMAND`: whatever runs a shell with standard input and output.

use crate::lab::{ContainerLab, Image, Program, feed, run, text};
use crate::ssh_host::SshHost;
use crate::{assert_signs, assert_undone};

/// The whole way: both lanes' commands, and nothing left behind.
#[track_caller]
fn assert_bridged(scene: &ContainerLab, address: &str, user: Option<&str>, home: &str) {
    let shown = text(&run(&mut scene.keybridge(["up", address])));
    assert!(shown.contains("answers"), "{shown}");
    assert_signs(scene, user);
    let status = text(&run(&mut scene.keybridge(["status", address])));
    assert!(status.contains("ready"), "{status}");
    let synced = text(&run(&mut scene.keybridge(["sync", address])));
    assert!(synced.contains("1 unchanged"), "{synced}");
    let log = text(&run(&mut scene.keybridge(["logs", address])));
    assert!(log.contains("ready"), "{log}");
    let again = text(&run(&mut scene.keybridge(["up", address])));
    assert!(again.contains("is bridged already"), "{again}");
    let said = feed(
        &mut scene.keybridge(["run", address, "--", "sh", "-c", "cat; id -un; exit 7"]),
        b"input\n",
    );
    assert_eq!((said.status.code(), text(&said.stdout).lines().next()), (Some(7), Some("input")));
    run(&mut scene.keybridge(["down", address]));
    assert_undone(scene, user, home);
}

#[test]
fn docker_exec() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    let address = format!("exec:docker exec -i {}", scene.container.name);
    assert_bridged(&scene, &address, None, "/root");
}

#[test]
fn docker_exec_as_a_normal_user_with_the_newer_gpg() {
    let scene = ContainerLab::new(Image::Trixie, &[]);
    let address = format!("exec:docker exec -i -u dev -e HOME=/home/dev {}", scene.container.name);
    assert_bridged(&scene, &address, Some("dev"), "/home/dev");
}

#[test]
fn podman_exec() {
    let scene = ContainerLab::new_in(Program::Podman, Image::Bookworm, &[]);
    let address = format!("exec:podman exec -i {}", scene.container.name);
    assert_bridged(&scene, &address, None, "/root");
}

#[test]
fn nsenter() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    let pid = scene.container.path_from_outside("");
    let pid = pid.iter().nth(2).unwrap().to_str().unwrap();
    let environment = "env -i HOME=/root PATH=/usr/bin:/bin:/usr/sbin:/sbin";
    let address = format!("exec:nsenter -t {pid} -m -p -n -i -u {environment}");
    assert_bridged(&scene, &address, None, "/root");
}

#[test]
fn ssh() {
    let host = SshHost::new(Image::Bookworm);
    assert_bridged(&host.scene, "exec:ssh far", Some("dev"), "/home/dev");
}

#[test]
fn a_word_in_quotes_is_one_word() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    let script = format!("exec docker exec -i {} \"$@\"", scene.container.name);
    let address = format!("exec:sh -c '{script}' 'a name'");
    run(&mut scene.keybridge(["up", &address]));
    assert_signs(&scene, None);
    run(&mut scene.keybridge(["down", &address]));
    assert_undone(&scene, None, "/root");
}
