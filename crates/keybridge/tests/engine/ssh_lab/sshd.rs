//! A real sshd in a container, on the container's own loopback.

use crate::lab::{Container, eventually, text};

/// The account that logins go to.
pub const ACCOUNT: &str = "far";

/// A sshd with a host key of its own. It ends with its container.
pub struct Sshd<'a> {
    container: &'a Container,
    pub port: u16,
    /// The public half of its host key.
    pub host_key: String,
}

impl<'a> Sshd<'a> {
    /// Starts one, and waits until it answers. Every user of the container knows its host key.
    pub fn start(container: &'a Container, port: u16) -> Self {
        let script = format!(
            "id {ACCOUNT} >/dev/null 2>&1 || useradd --create-home --shell /bin/sh {ACCOUNT}
            # sshd takes an account without a password for a locked one.
            usermod --password '*' {ACCOUNT}
            usermod --password '*' dev
            mkdir -p /run/sshd /etc/ssh/authorized
            key=/etc/ssh/host-{port} config=/etc/ssh/sshd-{port}
            ssh-keygen -q -t ed25519 -N '' -C '' -f $key
            cat >$config <<END
            ListenAddress 127.0.0.1:{port}
            HostKey $key
            AuthorizedKeysFile /etc/ssh/authorized/%u
            UsePAM no
            StrictModes no
            PidFile none
END
            # Newer ones refuse for a while who was refused before.
            option=PerSourcePenalties
            ! /usr/sbin/sshd -t -f $config -o $option=no 2>/dev/null || echo $option no >>$config
            public=$(cut -d ' ' -f 1,2 $key.pub)
            echo \"[127.0.0.1]:{port} $public\" >>/etc/ssh/ssh_known_hosts
            /usr/sbin/sshd -f $config -E /var/log/sshd-{port}
            echo \"$public\""
        );
        let host_key = container.sh(Some("0"), &script).trim().to_owned();
        let sshd = Self { container, port, host_key };
        eventually("sshd answers", || {
            let ask = format!("ssh-keyscan -t ed25519 -p {port} 127.0.0.1 2>/dev/null");
            text(&container.try_sh(Some("0"), &ask).stdout).contains(&sshd.host_key)
        });
        sshd
    }

    /// Lets a key log in to an account; `options` stand before it. Holds for each sshd of the container.
    pub fn authorize(&self, account: &str, options: &str, key: &str) {
        let script = format!("cat >>/etc/ssh/authorized/{account}");
        let line = format!("{options} {key}\n");
        self.container.sh_with(Some("0"), &script, line.trim_start().as_bytes());
    }

    /// The words that log in to the account: plain ssh, which has nobody to ask.
    pub fn login(&self) -> String {
        format!("ssh -o BatchMode=yes -p {} {ACCOUNT}@127.0.0.1", self.port)
    }

    /// The address of a repository in the account's folder.
    pub fn repository(&self, name: &str) -> String {
        format!("ssh://{ACCOUNT}@127.0.0.1:{}/home/{ACCOUNT}/{name}", self.port)
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        self.container.sh(Some("0"), &format!("cat /var/log/sshd-{}", self.port))
    }
}
