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
             Host jump\n HostName {}\n User {USER}\n\
             Host *\n IdentityFile {}\n IdentitiesOnly yes\n UserKnownHostsFile {}\n \
             GlobalKnownHostsFile /dev/null\n",
            cable.far,
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

    /// A host that another one leads to.
    pub fn behind_a_jump_host(image: Image) -> Self {
        // One container is both: what counts is that ssh starts another ssh for the first of two logins.
        Self::with(image, "", " ProxyJump jump\n")
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

    /// Cuts the link.
    pub fn cut(&self, cut: Cut) {
        self.cable.cut(cut);
    }

    /// Mends the link.
    pub fn join(&self, cut: Cut) {
        self.cable.join(cut);
    }

    /// Limits what the host can send, in thousands of bits a second.
    pub fn slow_down(&self, rate: u32) {
        self.cable
            .tc_there(&format!("qdisc add dev DEV root tbf rate {rate}kbit burst 4kb latency 5s"));
    }

    /// Ends that limit.
    pub fn speed_up(&self) {
        self.cable.tc_there("qdisc del dev DEV root");
    }

    /// How many bytes of gpg's lane have come from there.
    pub fn received(&self) -> u64 {
        self.scene.bridges()[0]["lanes"]["gpg"]["bytes_in"].as_u64().unwrap()
    }

    /// This machine's end of the cable gets another address, and loses the one that it had.
    pub fn move_to_another_address(&self) {
        self.cable.change_address();
    }

    /// Ends the master of a shared connection.
    pub fn end_shared_connection(&self) {
        let ssh = self.scene.lab.at("bin/ssh");
        let _ = output(command(ssh).args(["-O", "exit", ALIAS]));
    }

    /// The state and the reason that `status` tells.
    pub fn state(&self) -> (String, String) {
        let bridge = self.scene.bridges().remove(0);
        let text = |name: &str| bridge[name].as_str().unwrap_or_default().to_owned();
        (text("state"), text("reason"))
    }

    /// How often the link was made again.
    pub fn reconnects(&self) -> u64 {
        self.scene.bridges()[0]["reconnects"].as_u64().unwrap()
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
    here: Ipv4Addr,
    far: Ipv4Addr,
    /// The container's first process, in its network.
    pid: String,
    end: String,
}

/// How a link is cut.
#[derive(Debug, Clone, Copy)]
pub enum Cut {
    /// Packets are lost, both ways, and nobody is told.
    Packets,
    /// The interface here goes down.
    Interface,
}

impl Cable {
    fn lay(container: &Container) -> Self {
        let random = uuid::Uuid::new_v4();
        let [a, b, c, ..] = *random.as_bytes();
        let name = &random.simple().to_string()[..8];
        let (near, end) = (format!("kba{name}"), format!("kbb{name}"));
        // A network of eight numbers.
        let net = Ipv4Addr::new(10, 0xc0 | (a & 0x3f), b, c & !0x07).to_bits();
        let [here, far] = [1, 2].map(|host| Ipv4Addr::from_bits(net + host));
        let inspect = ["inspect", "--format", "{{.State.Pid}}", &container.name];
        let pid = text(&run(&mut container.engine.command(inspect))).trim().to_owned();
        let cable = Self { near, here, far, pid, end };
        let Self { near, here, far, pid, end } = &cable;
        ip(&format!("link add {near} type veth peer name {end} netns {pid}"));
        ip(&format!("addr add {here}/29 dev {near}"));
        ip(&format!("link set {near} up"));
        cable.ip_there(&format!("addr add {far}/29 dev {end}"));
        cable.ip_there(&format!("link set {end} up"));
        cable
    }

    fn cut(&self, cut: Cut) {
        let Self { near, here, far, end, .. } = self;
        // A neighbour that isn't there.
        let nobody = "lladdr 02:00:00:00:00:01 nud permanent";
        match cut {
            Cut::Packets => {
                ip(&format!("neigh replace {far} {nobody} dev {near}"));
                self.ip_there(&format!("neigh replace {here} {nobody} dev {end}"));
            }
            Cut::Interface => ip(&format!("link set {near} down")),
        }
    }

    fn join(&self, cut: Cut) {
        let Self { near, here, far, end, .. } = self;
        match cut {
            Cut::Packets => {
                ip(&format!("neigh del {far} dev {near}"));
                self.ip_there(&format!("neigh del {here} dev {end}"));
            }
            Cut::Interface => ip(&format!("link set {near} up")),
        }
    }

    fn change_address(&self) {
        let Self { near, here, .. } = self;
        ip(&format!("addr del {here}/29 dev {near}"));
        let other = Ipv4Addr::from_bits(here.to_bits() + 2);
        ip(&format!("addr add {other}/29 dev {near}"));
    }

    fn ip_there(&self, words: &str) {
        run(command("nsenter").args(["-t", &self.pid, "-n", "ip"]).args(words.split(' ')));
    }

    /// Runs `tc` in the container's network; DEV is the interface there.
    fn tc_there(&self, words: &str) {
        let words = words.replace("DEV", &self.end);
        let tc = command("tc");
        run(command("nsenter")
            .args(["-t", &self.pid, "-n"])
            .arg(tc.get_program())
            .args(words.split(' ')));
    }
}

fn ip(words: &str) {
    run(command("ip").args(words.split(' ')));
}
