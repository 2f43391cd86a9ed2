//! A host behind a slow link: a sshd in a container, and a relay on this machine that holds every byte for a
//! while before it goes on.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use keybridge_lab::write_program;

use super::{Container, Lab, output};
use crate::error::{Context, Error, Result};

/// How long a byte is on its way, each way.
const DELAY: Duration = Duration::from_millis(50);

/// The host's name in ssh's configuration.
pub(crate) const SLOW: &str = "slow";

/// The host. Connections that are open end with their ssh.
pub(crate) struct SlowHost {
    pub(crate) container: Container,
    /// Has an `ssh` that knows the host.
    programs: PathBuf,
    lab: Lab,
}

impl SlowHost {
    pub(crate) fn start(lab: &Lab) -> Result<Self> {
        let container = Container::start(lab, SLOW, &[])?;
        let folder = lab.make_folder(SLOW)?;
        for key in ["host", "user"] {
            let mut keygen = lab.command("ssh-keygen");
            output(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(key)))?;
        }
        // sshd wants its own folder to be there, and takes an account without a password for a locked one.
        container.sh("mkdir -p /run/sshd; usermod --password '*' root")?;
        let port = relay(lab, &container, sshd_config(&folder)?)?;
        let programs = lab.make_folder("slow-programs")?;
        let config = ssh_config(&folder, port)?;
        let script = format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", config.display());
        write_program(&programs.join("ssh"), script);
        Ok(Self { container, programs, lab: lab.clone() })
    }

    /// ssh, which knows the host.
    pub(crate) fn ssh(&self) -> Command {
        self.lab.command(self.programs.join("ssh"))
    }

    /// Has a program find that ssh.
    pub(crate) fn reachable_for(&self, mut command: Command) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", self.programs.display()));
        command
    }
}

/// The configuration of the sshd, which the container sees under the same path.
fn sshd_config(folder: &Path) -> Result<PathBuf> {
    let text = format!(
        "HostKey {}\nAuthorizedKeysFile {}\nPidFile none\nStrictModes no\nUsePAM no\n\
         PermitRootLogin yes\nAllowStreamLocalForwarding yes\nLogLevel QUIET\n",
        folder.join("host").display(),
        folder.join("user.pub").display()
    );
    write(folder.join("sshd"), &text)
}

fn ssh_config(folder: &Path, port: u16) -> Result<PathBuf> {
    let host_key = std::fs::read_to_string(folder.join("host.pub"))?;
    let known = write(folder.join("known"), &format!("[127.0.0.1]:{port} {host_key}"))?;
    let text = format!(
        "Host {SLOW}\n HostName 127.0.0.1\n Port {port}\n User root\n IdentityFile {}\n \
         IdentitiesOnly yes\n UserKnownHostsFile {}\n GlobalKnownHostsFile /dev/null\n \
         ExitOnForwardFailure yes\n",
        folder.join("user").display(),
        known.display()
    );
    write(folder.join("ssh"), &text)
}

fn write(path: PathBuf, text: &str) -> Result<PathBuf> {
    std::fs::write(&path, text).while_doing(path.display())?;
    Ok(path)
}

/// Starts a sshd in the container for each connection to a port, which is given back.
fn relay(lab: &Lab, container: &Container, config: PathBuf) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let (lab, container) = (lab.clone(), container.name.clone());
    // Ends with the program.
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let mut sshd = lab.command("docker");
            sshd.args(["exec", "-i", &container, "/usr/sbin/sshd", "-i", "-f"]).arg(&config);
            if let Err(error) = join(client, &mut sshd) {
                eprintln!("the slow link: {error}");
            }
        }
    });
    Ok(port)
}

fn join(client: TcpStream, sshd: &mut Command) -> Result<()> {
    client.set_nodelay(true)?;
    let sshd = sshd.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut sshd = sshd.spawn().while_doing("starting a sshd")?;
    let (Some(stdin), Some(stdout)) = (sshd.stdin.take(), sshd.stdout.take()) else {
        return Err(Error::new("a sshd without pipes"));
    };
    hold(client.try_clone()?, stdin, drop);
    hold(stdout, client, move |client| {
        let _ = client.shutdown(Shutdown::Both);
        let _ = sshd.wait();
    });
    Ok(())
}

/// Carries one direction to its end.
fn hold<W: Write + Send + 'static>(
    mut from: impl Read + Send + 'static,
    mut to: W,
    end: impl FnOnce(W) + Send + 'static,
) {
    let (sender, receiver) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let bytes = buffer.get(..count).unwrap_or_default().to_vec();
            if sender.send((Instant::now() + DELAY, bytes)).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).and_then(|()| to.flush()).is_err() {
                break;
            }
        }
        end(to);
    });
}
