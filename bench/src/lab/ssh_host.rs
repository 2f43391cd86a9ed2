//! A host that ssh leads to: a container, and a sshd that ssh itself starts in it, over a link that may be
//! slow.

use std::path::PathBuf;
use std::process::Command;

use keybridge_lab::write_program;

use super::{Container, Lab, output};
use crate::error::{Context, Result};

/// The host's name in ssh's configuration.
pub(crate) const HOST: &str = "bench-host";

/// The host. Connections that are open end with their ssh.
pub(crate) struct SshHost {
    pub(crate) container: Container,
    /// Has an `ssh` that knows the host.
    programs: PathBuf,
}

impl SshHost {
    pub(crate) fn new(lab: &Lab, container: Container, is_slow: bool) -> Result<Self> {
        let folder = lab.make_folder(&format!("{}-ssh", container.name))?;
        for key in ["host", "user"] {
            let mut keygen = lab.command("ssh-keygen");
            output(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(key)))?;
        }
        // sshd wants its own folder to be there, and takes an account without a password for a locked one.
        container.sh("mkdir -p /run/sshd; usermod --password '*' root")?;
        let write = |name: &str, text: String| -> Result<String> {
            let path = folder.join(name);
            std::fs::write(&path, text).while_doing(path.display())?;
            Ok(path.display().to_string())
        };
        let at = folder.display();
        let sshd = write(
            "sshd",
            format!(
                "HostKey {at}/host\nAuthorizedKeysFile {at}/user.pub\nPidFile none\nStrictModes no\n\
                 UsePAM no\nPermitRootLogin yes\nAllowStreamLocalForwarding yes\nLogLevel QUIET\n"
            ),
        )?;
        let host_key = std::fs::read_to_string(folder.join("host.pub"))?;
        let known = write("known", format!("{HOST} {host_key}"))?;
        let link =
            if is_slow { format!("{} slow-link ", lab.program.display()) } else { String::new() };
        // Not through the engine, whose time isn't ssh's.
        let pid = container.pid()?;
        let ssh = write(
            "ssh-config",
            format!(
                "Host {HOST}\n User root\n IdentityFile {at}/user\n IdentitiesOnly yes\n \
                 UserKnownHostsFile {known}\n GlobalKnownHostsFile /dev/null\n ExitOnForwardFailure yes\n \
                 ProxyCommand {link}nsenter -t {pid} -m -u -i -n -p /usr/sbin/sshd -i -f {sshd}\n"
            ),
        )?;
        let programs = lab.make_folder(&format!("{}-programs", container.name))?;
        let script = format!("#!/bin/sh\nexec /usr/bin/ssh -F {ssh} \"$@\"\n");
        write_program(&programs.join("ssh"), script);
        Ok(Self { container, programs })
    }

    /// ssh, which knows the host.
    pub(crate) fn ssh(&self, lab: &Lab) -> Command {
        lab.command(self.programs.join("ssh"))
    }

    /// Has a program find that ssh.
    pub(crate) fn reachable_for(&self, mut command: Command) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.programs.display()));
        command
    }
}
