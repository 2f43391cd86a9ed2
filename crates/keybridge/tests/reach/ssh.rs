//! `ssh://HOST`, over the system's ssh with the configuration of its user.

use crate::lab::{Image, feed, run, text};
use crate::ssh_host::SshHost;
use crate::{assert_signs, assert_undone};

#[test]
fn a_host_by_an_alias_of_the_configuration() {
    let host = SshHost::new(Image::Trixie);
    let shown = host.up();
    assert!(shown.contains("answers"), "{shown}");
    assert_signs(&host.scene, Some("dev"));
    let committed = host.scene.container.sh(
        Some("dev"),
        "cd \"$(mktemp -d)\"
        git init --quiet .
        git config user.name Lab
        git config user.email lab@keybridge.example
        git commit --quiet --allow-empty -S -m signed
        git verify-commit HEAD 2>&1",
    );
    assert!(committed.contains("Good signature from"), "{committed}");
    let said = feed(
        &mut host.scene.keybridge([
            "run",
            "ssh://far",
            "--",
            "sh",
            "-c",
            "cat; echo \"$1\"",
            "sh",
            "it's $HOME",
        ]),
        b"input\n",
    );
    assert_eq!(text(&said.stdout), "input\nit's $HOME\n", "{}", text(&said.stderr));
    host.down();
    assert_undone(&host.scene, Some("dev"), "/home/dev");
    // The helper travels once.
    let shown = host.up();
    assert!(shown.contains("answers"), "{shown}");
    host.down();
}

#[test]
fn one_login_is_enough() {
    let host = SshHost::new(Image::Bookworm);
    let before = host.connections();
    host.up();
    assert_eq!(host.connections() - before, 1);
    host.down();
    assert_eq!(host.connections() - before, 1);
}

#[test]
fn a_user_and_a_port_in_the_address() {
    let host = SshHost::with(Image::Bookworm, "Port 22\nPort 2222", "");
    std::fs::write(
        host.known_hosts(),
        std::fs::read_to_string(host.known_hosts())
            .unwrap()
            .replace(&host.ip(), &format!("[{}]:2222", host.ip())),
    )
    .unwrap();
    let address = format!("ssh://dev@{}:2222", host.ip());
    run(&mut host.scene.keybridge(["up", &address]));
    assert_signs(&host.scene, Some("dev"));
    run(&mut host.scene.keybridge(["down", &address]));
    assert_undone(&host.scene, Some("dev"), "/home/dev");
}

#[test]
fn settings_of_the_configuration_that_would_be_in_the_way() {
    let host = SshHost::with(
        Image::Bookworm,
        "",
        " RequestTTY force\n RemoteCommand echo no\n LocalCommand echo local\n PermitLocalCommand yes\n \
         ForwardAgent yes\n LocalForward 127.0.0.1:1 127.0.0.1:1\n",
    );
    host.up();
    assert_signs(&host.scene, Some("dev"));
    host.down();
    assert_undone(&host.scene, Some("dev"), "/home/dev");
}

/// The master of a shared connection holds standard error open when ssh has ended.
#[test]
fn a_shared_connection_that_outlives_ssh() {
    let host = SshHost::with(
        Image::Bookworm,
        "",
        " ControlMaster auto\n ControlPath /tmp/kbc-%C\n ControlPersist 60\n",
    );
    let start = std::time::Instant::now();
    host.up();
    assert_signs(&host.scene, Some("dev"));
    host.down();
    assert_undone(&host.scene, Some("dev"), "/home/dev");
    let took = start.elapsed();
    assert!(took < std::time::Duration::from_secs(15), "{took:?}");
    host.end_shared_connection();
}
