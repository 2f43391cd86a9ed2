//! A second host: a container with a network of its own, a cable to it that can be cut, and a real sshd.

use std::fs;
use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::lab::{
    Container, ContainerLab, Image, Program, command, eventually, output, run, set_mode, text,
};

/// Who logs in there.
pub const USER: &str = "dev";

/// The name by which ssh's configuration knows it.
pub const ALIAS: &str = "far";

/// A host that ssh leads to.
pub struct SshHost {
    pub scene: ContainerLab,
    cable: Cable,
}

impl SshHost {
    /// A host that knows the key of whoever logs in, and whose own key is known.
    pub fn new(image: Image) -> Self {
        Self::with(image, "", "")
    }

    /// One with more lines for its sshd, and for ssh here.
    pub fn with(image: Image, sshd: &str, ssh: &str) -> Self {
        let mut scene = ContainerLab::new_in(Program::Docker, image, &[]);
        let cable = Cable::lay(&scene.container);
        start_sshd(&scene.container, sshd);
        let key = scene.lab.at("login");
        run(command("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key));
        let public = fs::read(key.with_extension("pub")).unwrap();
        scene.container.sh_with(Some("0"), "cat >/etc/ssh/authorized-dev", &public);
        let host_key = scene.container.sh(Some("0"), "cut -d ' ' -f 1,2 /etc/ssh/host.pub");
        scene.lab.file("known", format!("{} {host_key}", cable.far));
        let config = format!(
            "Host {ALIAS}\n HostName {}\n User {USER}\n{ssh}\n\
             Host *\n IdentityFile {}\n IdentitiesOnly yes\n UserKnownHostsFile {}\n \
             GlobalKnownHostsFile /dev/null\n",
            cable.far,
            key.display(),
            scene.lab.at("known").display(),
        );
        use_config(&mut scene, &config);
        let host = Self { scene, cable };
        eventually("sshd answers", || {
            let scan = output(command("ssh-keyscan").args(["-t", "ed25519"]).arg(host.ip()));
            text(&scan.stdout).contains(host_key.trim())
        });
        host
    }

    /// The address that people write.
    pub fn address() -> String {
        format!("ssh://{ALIAS}")
    }

    /// The number of the host.
    pub fn ip(&self) -> String {
        self.cable.far.to_string()
    }

    /// Bridges it, which has to work; gives back what was shown.
    #[track_caller]
    pub fn up(&self) -> String {
        text(&run(&mut self.scene.keybridge(["up", &Self::address()])))
    }

    /// Ends the bridge, which has to work.
    #[track_caller]
    pub fn down(&self) -> String {
        text(&run(&mut self.scene.keybridge(["down", &Self::address()])))
    }

    /// Packets are lost without a word, both ways.
    pub fn cut(&self) {
        self.cable.set("down");
    }

    /// Packets arrive again.
    pub fn join(&self) {
        self.cable.set("up");
    }

    /// The state and the reason that `status` tells.
    pub fn state(&self) -> (String, String) {
        let bridge = self.scene.bridges().remove(0);
        let text = |name: &str| bridge[name].as_str().unwrap_or_default().to_owned();
        (text("state"), text("reason"))
    }

    /// Where its known host keys are.
    pub fn known_hosts(&self) -> PathBuf {
        self.scene.lab.at("known")
    }

    /// How often sshd was connected to.
    pub fn connections(&self) -> usize {
        let log = self.scene.container.sh(Some("0"), "cat /var/log/sshd");
        log.matches("Connection from").count()
    }
}

/// Has ssh read this configuration and no other: it looks for the user's own in the user database.
fn use_config(scene: &mut ContainerLab, config: &str) {
    let path = scene.lab.file("ssh_config", config);
    set_mode(&path, 0o600);
    let script = format!("exec /usr/bin/ssh -F {} \"$@\"\n", path.display());
    scene.lab.put_before("ssh", &script);
}

fn start_sshd(container: &Container, more: &str) {
    let script = format!(
        "usermod --password \"$(perl -e 'print crypt(\"secret\", \"\\$6\\$salt\")')\" {USER}
        mkdir -p /run/sshd
        ssh-keygen -q -t ed25519 -N '' -C '' -f /etc/ssh/host
        cat >/etc/ssh/sshd <<END
HostKey /etc/ssh/host
AuthorizedKeysFile /etc/ssh/authorized-%u
UsePAM no
StrictModes no
PidFile /run/sshd.pid
LogLevel VERBOSE
{more}
END
        option=PerSourcePenalties
        ! /usr/sbin/sshd -t -f /etc/ssh/sshd -o $option=no 2>/dev/null || echo $option no >>/etc/ssh/sshd
        /usr/sbin/sshd -f /etc/ssh/sshd -E /var/log/sshd"
    );
    container.sh(Some("0"), &script);
}

/// Two network interfaces that lead to each other, one here and one in the container. They go with the
/// container.
struct Cable {
    near: String,
    far: Ipv4Addr,
}

impl Cable {
    fn lay(container: &Container) -> Self {
        let random = uuid::Uuid::new_v4();
        let [a, b, c, ..] = *random.as_bytes();
        let name = &random.simple().to_string()[..8];
        let (near, end) = (format!("kba{name}"), format!("kbb{name}"));
        // A network of four numbers, of which the two in the middle are the hosts.
        let net = Ipv4Addr::new(10, 192 | (a & 63), b, c & !3).to_bits();
        let [here, far] = [1, 2].map(|host| Ipv4Addr::from_bits(net + host));
        let pid = run(&mut container.engine.command([
            "inspect",
            "--format",
            "{{.State.Pid}}",
            &container.name,
        ]));
        let pid = text(&pid).trim().to_owned();
        ip(&format!("link add {near} type veth peer name {end} netns {pid}"));
        ip(&format!("addr add {here}/30 dev {near}"));
        ip(&format!("link set {near} up"));
        let inside = format!("ip addr add {far}/30 dev {end} && ip link set {end} up");
        run(command("nsenter").args(["-t", &pid, "-n", "sh", "-ec", &inside]));
        Self { near, far }
    }

    /// Without a word to programs that use it: packets go to a neighbour that isn't there, or is.
    fn set(&self, state: &str) {
        let Self { near, far } = self;
        match state {
            "down" => ip(&format!(
                "neigh replace {far} lladdr 02:00:00:00:00:01 dev {near} nud permanent"
            )),
            _ => ip(&format!("neigh del {far} dev {near}")),
        }
    }
}

fn ip(words: &str) {
    run(command("ip").args(words.split(' ')));
}
