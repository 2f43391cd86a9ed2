//! A target for arm64 that an engine on this machine runs: the helper is chosen by what the target reports.

use std::process::Command;

use keybridge_lab::SshHome;

use crate::lab::{ContainerLab, Image, KEYBRIDGE, output, run, run_with, shipped, text};

/// A container for arm64, and a host with keys that uses the program that is shipped.
fn arm64(image: Image) -> ContainerLab {
    let mut scene = ContainerLab::new(image, &[]);
    scene.lab.set_program(shipped("keybridge"));
    scene
}

/// The whole way with both lanes: each signs a commit in the target.
#[track_caller]
fn both_lanes_sign(address: impl FnOnce(&ContainerLab) -> String) {
    let scene = arm64(Image::Arm64);
    let ContainerLab { lab, container } = &scene;
    let ssh = SshHome::with_key();
    let address = address(&scene);
    let keybridge = |words: &[&str]| -> Command {
        let mut command = scene.keybridge(words.iter().copied());
        command.env("SSH_AUTH_SOCK", ssh.socket());
        command
    };
    assert_eq!(container.sh(None, "uname -m"), "aarch64\n");
    let shown = text(&run(&mut keybridge(&["up", &address, "--lanes", "gpg,ssh"])));
    assert!(shown.contains("ssh-agent with 1 key answers"), "{shown}");
    let [helper] = &scene.helpers()[..] else { panic!("{:?}", scene.helpers()) };
    let helper = helper.split(' ').find(|word| word.contains("/keybridge-remote-")).unwrap();
    let copied = container.sh(None, &format!("sha256sum <{helper}"));
    let carried = std::fs::read(shipped("aarch64/keybridge-remote")).unwrap();
    assert_eq!(copied, text(&run_with(&mut keybridge_lab::command("sha256sum"), &carried)));

    let repository = "cd \"$(mktemp -d)\"
        git init --quiet .
        git config user.name Lab
        git config user.email lab@keybridge.example";
    let committed = container.sh(
        None,
        &format!(
            "{repository}
            git commit --quiet --allow-empty -S -m signed
            git verify-commit HEAD 2>&1
            git log -1 --format=%GP"
        ),
    );
    assert!(committed.contains("Good signature from"), "{committed}");
    assert!(committed.ends_with(&format!("{}\n", lab.host.fingerprint())), "{committed}");

    let key = std::fs::read_to_string(ssh.file("key.pub")).unwrap();
    let set = text(&run(&mut keybridge(&["env", &address])));
    let committed = container.sh(
        None,
        &format!(
            "{repository}
            {set}
            echo 'lab@keybridge.example {key}' | tr -d '\\n' >signers
            git config gpg.format ssh
            git config gpg.ssh.allowedSignersFile \"$PWD/signers\"
            git config user.signingKey 'key::{}'
            git commit --quiet --allow-empty -S -m signed
            git log -1 --format='%G? %GS'",
            key.trim()
        ),
    );
    assert_eq!(committed, "G lab@keybridge.example\n");

    run(&mut keybridge(&["down", &address]));
    assert_eq!(scene.helpers(), Vec::<String>::new());
    let sockets = container.sh(None, "find /root /tmp /run -type s");
    assert_eq!(sockets, "");
    let signed = scene.signs(None);
    assert!(!signed.status.success());
}

#[test]
fn both_lanes_sign_through_the_engine() {
    both_lanes_sign(|scene| scene.container.address());
}

#[test]
fn both_lanes_sign_through_a_command() {
    both_lanes_sign(|scene| format!("exec:docker exec -i {}", scene.container.name));
}

/// The image names the processor where no shell can. The helper gets as far as saying what is missing.
#[test]
fn a_container_without_a_shell() {
    let scene = arm64(Image::Arm64NoShell);
    let before = scene.container.archive_listing(&[]);
    let ended = output(&mut scene.up_command(&[]));
    assert_eq!(ended.status.code(), Some(3), "{}", text(&ended.stderr));
    assert!(text(&ended.stderr).contains("no gpg"), "{}", text(&ended.stderr));
    assert_eq!(scene.container.archive_listing(&[]), before);
}

/// The tests' own program carries no helper, and there is one beside it for this machine alone.
#[test]
fn a_program_without_the_helper() {
    let mut scene = ContainerLab::new(Image::Arm64, &[]);
    // It has only the helper that is beside it.
    scene.lab.set_program(KEYBRIDGE);
    let before = scene.container.listing();
    let ended = output(&mut scene.up_command(&[]));
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("no helper for the target's processor aarch64"), "{said}");
    assert!(said.contains("scripts/build --all"), "{said}");
    scene.container.assert_unchanged(&before);
}
