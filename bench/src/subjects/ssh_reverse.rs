//! `ssh -R`: a socket of a host that sshd forwards to one at home, both on this machine.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;

use super::{Place, REVERSE, Role, Subject, Takes, gpg_env};
use keybridge_lab::eventually;

use crate::error::{Context, Result};
use crate::lab::{Agents, Lab, Running, SharedClient, output};

pub(super) fn subject(lab: &Lab, client: &SharedClient, agents: &[Agents]) -> Result<Subject> {
    let folder = lab.make_folder("sshd")?;
    for key in ["host", "user"] {
        let mut keygen = lab.command("ssh-keygen");
        output(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(key)))?;
    }
    // Freed again at once; nobody else takes ports in this moment.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let sshd = start_sshd(lab, &folder, port)?;
    let mut ssh = lab.command("ssh");
    ssh.args(["-N", "-p", &port.to_string(), "-F", "none"]).arg("-i").arg(folder.join("user"));
    for option in [
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "LogLevel=ERROR",
        "IdentitiesOnly=yes",
        "ExitOnForwardFailure=yes",
    ] {
        ssh.args(["-o", option]);
    }
    let mut sockets = Vec::new();
    for (endpoint, agent) in agents.iter().flat_map(Agents::sockets) {
        let name = format!("{}-{}", endpoint.agent.name(), endpoint.lane.name());
        let socket = lab.at(&format!("ssh-{name}"));
        ssh.arg("-R").arg(format!("{}:{}", socket.display(), agent.display()));
        sockets.push((endpoint, socket));
    }
    let ssh = Running::start(ssh.arg("127.0.0.1"))?;
    for (_, socket) in &sockets {
        eventually("sshd forwards", || socket.exists());
    }
    let gpg_env = gpg_env(agents, "ssh-home", &sockets, Place::Local)?;
    Ok(Subject {
        name: REVERSE,
        role: Role::Other,
        takes: Takes::Many,
        client: client.clone(),
        sockets,
        gpg_env,
        held: vec![Box::new(ssh), Box::new(sshd)],
    })
}

fn start_sshd(lab: &Lab, folder: &Path, port: u16) -> Result<Running> {
    let (host_key, user_key) = (folder.join("host"), folder.join("user.pub"));
    let config = folder.join("config");
    let text = format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\n\
         StrictModes no\nUsePAM no\nPermitRootLogin yes\nAllowStreamLocalForwarding yes\n\
         LogLevel QUIET\n",
        host_key.display(),
        user_key.display()
    );
    std::fs::write(&config, text).while_doing(config.display())?;
    // sshd wants to be started by its whole path, and its own folder to be there.
    std::fs::create_dir_all("/run/sshd")?;
    let path = output(lab.command("sh").args(["-c", "PATH=$PATH:/usr/sbin command -v sshd"]))?;
    let mut sshd = lab.command(path.trim());
    let running = Running::start(sshd.args(["-D", "-e", "-f"]).arg(&config))?;
    eventually("sshd listens", || {
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
    });
    Ok(running)
}
