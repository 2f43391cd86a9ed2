//! A host with systemd, which is the first process of a container.

use super::{Container, eventually, text};

/// What systemd needs as the first process of a container, and the sockets that its units own there.
pub const OPTIONS: [&str; 13] = [
    "--cap-add=SYS_ADMIN",
    "--security-opt=seccomp=unconfined",
    "--security-opt=apparmor=unconfined",
    "--tmpfs=/run",
    "--tmpfs=/tmp:exec",
    "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw",
    "--env",
    "container=docker",
    "--env",
    "SSH_AUTH_SOCK=/run/user/1000/openssh_agent",
    "--env",
    "XDG_RUNTIME_DIR=/run/user/1000",
    "--stop-signal=KILL",
];

/// Waits until the host has booted.
pub fn await_boot(host: &Container) {
    eventually("the host has booted", || {
        host.try_sh(Some("root"), "systemctl is-system-running").status.success()
    });
}

/// What a login of the user does. There is no logind in the container.
pub fn log_in(host: &Container) {
    let started = host.try_sh(
        Some("root"),
        "set -e
        mkdir -p -m 700 /run/user/1000
        mount -t tmpfs -o mode=700,uid=1000,gid=1000 tmpfs /run/user/1000
        systemd-run --unit=manager --uid=1000 --gid=1000 -p Delegate=yes -p Type=notify \
            -p Environment=XDG_RUNTIME_DIR=/run/user/1000 -p Environment=HOME=/home/dev \
            /usr/lib/systemd/systemd --user",
    );
    assert!(started.status.success(), "{}", text(&started.stderr));
}
