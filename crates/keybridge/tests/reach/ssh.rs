//! `ssh://HOST`, over the system's ssh with the configuration of its user.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::lab::{Image, command, eventually, feed, run, text};
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

/// A host gets no display of this machine, also where the configuration forwards it.
#[test]
fn the_display_is_not_forwarded() {
    let host = SshHost::with(
        Image::Bookworm,
        "X11Forwarding yes\nAddressFamily inet",
        " ForwardX11 yes\n ForwardX11Trusted yes\n",
    );
    host.scene.container.put_program("/usr/bin/xauth", b"#!/bin/sh\nexec cat >/dev/null\n");
    run(host.scene.keybridge(["up", &SshHost::address()]).env("DISPLAY", ":77"));
    // Where sshd listens for the clients of a display: ports from 6010 on.
    let listening = host.scene.container.sh(Some("0"), "cat /proc/net/tcp");
    assert!(!listening.contains("0100007F:177A"), "{listening}");
    host.down();
}

/// The master of a shared connection holds standard error open when ssh has ended.
#[test]
fn a_shared_connection_that_outlives_ssh() {
    let host = SshHost::with(
        Image::Bookworm,
        "",
        " ControlMaster auto\n ControlPath /tmp/kbc-%C\n ControlPersist 600\n",
    );
    host.up();
    assert_signs(&host.scene, Some("dev"));
    host.down();
    assert_undone(&host.scene, Some("dev"), "/home/dev");
    host.end_shared_connection();
}

/// Both lanes: the target's git pushes with a key of the agent at home, which also logs in there. After
/// another `up` with another agent, a new login uses that one.
#[test]
fn git_pushes_with_the_agent_of_home_and_the_last_agent_logs_in() {
    let host = SshHost::with(Image::Bookworm, "", " IdentitiesOnly no\n");
    let scene = &host.scene;
    let public = fs::read_to_string(scene.lab.at("login.pub")).unwrap();
    let agents = ["a", "b"].map(|name| Agent::start(&scene.lab.at(name), &scene.lab.at("login")));
    // Only the agents have the key from now on.
    fs::remove_file(scene.lab.at("login")).unwrap();
    let up = |agent: &Agent| {
        let mut up = scene.keybridge(["up", "ssh://far"]);
        text(&run(up.env("SSH_AUTH_SOCK", &agent.socket)))
    };
    up(&agents[0]);
    let environment = text(&run(&mut scene.keybridge(["env", "ssh://far"])));
    let listed = scene.container.sh(Some("dev"), &format!("{environment} ssh-add -L"));
    assert_eq!(listed.split(' ').nth(1), public.split(' ').nth(1), "{listed}");
    let pushed = scene.container.sh(
        Some("dev"),
        "cd \"$(mktemp -d)\"
        ssh-keyscan 127.0.0.1 2>/dev/null >>~/.ssh/known_hosts
        git init --quiet --bare ~/there
        git init --quiet .
        git config user.name Lab
        git config user.email lab@keybridge.example
        git commit --quiet --allow-empty -S -m signed
        git push --quiet ssh://127.0.0.1/home/dev/there HEAD:refs/heads/main
        git -C ~/there log -1 --format=%s main",
    );
    assert_eq!(pushed, "signed\n");

    let [first, second] = agents;
    up(&second);
    drop(first);
    scene.container.sh(Some("0"), "pkill -u dev sshd");
    eventually("a new login works", || host.state().0 == "ready" && host.reconnects() > 0);
    assert_signs(scene, Some("dev"));
    host.down();
}

/// An ssh-agent with a key, which ends with this.
struct Agent {
    child: std::process::Child,
    socket: PathBuf,
}

impl Agent {
    fn start(socket: &Path, key: &Path) -> Self {
        let socket = socket.with_extension("agent");
        let child =
            command("ssh-agent").arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn();
        let child = child.unwrap();
        eventually("the ssh-agent listens", || UnixStream::connect(&socket).is_ok());
        run(command("ssh-add").arg("-q").arg(key).env("SSH_AUTH_SOCK", &socket));
        Self { child, socket }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}
