//! A host with a real systemd, whose units own the sockets of both agents of a user.

use std::process::Output;

use rustix::process::Signal;

use crate::any_engine::signs::assert_works;
use crate::lab::{Image, eventually, run, signal, static_helper, systemd, text};
use crate::ssh_lab::{SshLab, User, complaint};
use keybridge_lab::SshHome;
use keybridge_proto::inspection::{Inspection, Listener};

const GPG_SOCKET: &str = "/run/user/1000/gnupg/S.gpg-agent";

const SSH_SOCKET: &str = "/run/user/1000/openssh_agent";

/// The units that listen at both.
const UNITS: [&str; 2] = ["gpg-agent.socket", "ssh-agent.socket"];

/// A container that has booted, with a user who is logged in or not.
struct Host(SshLab);

impl Host {
    fn new() -> Self {
        let host = Self::without_login();
        host.log_in();
        for unit in UNITS {
            eventually("the unit listens", || host.state(unit) == "active");
        }
        host
    }

    fn without_login() -> Self {
        let options = &systemd::OPTIONS;
        let host = Self(SshLab::with(Image::Systemd, options, User::Dev, SshHome::with_key()));
        systemd::await_boot(host.0.container());
        host
    }

    fn as_root(&self, script: &str) -> Output {
        self.0.container().try_sh(Some("root"), script)
    }

    fn log_in(&self) {
        systemd::log_in(self.0.container());
    }

    /// What the last logout does.
    fn log_out(&self) {
        let stopped = self.as_root(
            "set -e
            systemctl stop manager
            umount --lazy /run/user/1000
            rmdir /run/user/1000",
        );
        assert!(stopped.status.success(), "{}", text(&stopped.stderr));
    }

    fn systemctl(&self, words: &str) -> Output {
        self.0.try_sh(&format!("systemctl --user {words}"))
    }

    fn state(&self, unit: &str) -> String {
        text(&self.systemctl(&format!("is-active {unit}")).stdout).trim().to_owned()
    }

    /// Whether a unit doesn't listen: it has failed if the bridge was faster than its start.
    fn is_stopped(&self, unit: &str) -> bool {
        matches!(&*self.state(unit), "inactive" | "failed")
    }

    fn down(&self) -> String {
        text(&run(&mut self.0.keybridge(["down", &self.0.container().name])))
    }

    /// Both lanes lead home.
    #[track_caller]
    fn assert_bridged(&self) {
        assert_works(&self.0.docker, Some("dev"));
        assert!(self.0.sh("ssh-add -L").contains(&self.0.public_key("key")), "the key of home");
    }

    /// systemd listens at both sockets, and starts an agent of the host's own at once.
    #[track_caller]
    fn assert_own_agents(&self) {
        for unit in UNITS {
            eventually("the unit listens", || self.state(unit) == "active");
        }
        let asked = self.at_once("gpg-connect-agent --no-autostart 'GETINFO version' /bye");
        assert!(asked.contains("OK"), "{asked}");
        assert_eq!(self.state("gpg-agent.service"), "active");
        let listed = self.at_once("gpg --batch -K && ssh-add -l");
        assert!(listed.contains("The agent has no identities"), "{listed}");
    }

    /// Runs a script in which gpg finds an agent without waiting for one to come; gives back what it prints,
    /// whatever comes of it.
    #[track_caller]
    fn at_once(&self, script: &str) -> String {
        let printed = self.0.sh(&format!("({script}) 2>&1 || true"));
        assert!(!printed.contains("waiting for"), "{printed}");
        printed
    }
}

#[test]
fn units_that_own_the_sockets_are_named_and_stay() {
    let host = Host::new();
    let said = complaint(&host.0.up_command(&[]).output().unwrap());
    assert!(said.contains(&format!("{GPG_SOCKET} is in use: systemd")), "{said}");
    assert!(said.contains("--replace masks gpg-agent.socket until the bridge ends"), "{said}");
    let left = host.0.sh("find ~ -name '*keybridge*' -o -name .config -o -name gpg.conf");
    assert_eq!(left, "");
    host.assert_own_agents();
}

#[test]
fn to_look_at_the_host_starts_no_agent() {
    let host = Host::new();
    let helper = std::fs::read(static_helper()).unwrap();
    host.0.container().put_program("/usr/local/bin/keybridge-remote", &helper);
    let inspect = || Inspection::parse(host.0.sh("keybridge-remote inspect").as_bytes()).unwrap();
    let found = inspect().lanes;
    for (lane, socket) in [(&found.gpg, GPG_SOCKET), (&found.ssh, SSH_SOCKET)] {
        assert_eq!(lane.socket.as_deref(), Some(socket));
        let Listener::Agent { program, .. } = &lane.listener else { panic!("{lane:?}") };
        assert_eq!(program.as_deref(), Some("systemd"));
        assert_eq!(lane.starters.len(), 1, "{lane:?}");
    }
    for unit in ["gpg-agent.service", "ssh-agent.service"] {
        assert_eq!(host.state(unit), "inactive", "{unit}");
    }
    host.assert_own_agents();
    // Agents that run are asked.
    let found = inspect().lanes;
    let Listener::Agent { pid, .. } = found.gpg.listener else { panic!("{found:?}") };
    assert!(pid.is_some());
}

#[test]
fn with_replace_both_lanes_work_and_the_units_are_back_afterwards() {
    let host = Host::new();
    let before = host.0.sh("find ~/.config 2>/dev/null || true");
    let shown = host.0.up(&["--replace"]);
    assert!(!shown.contains("not masked"), "{shown}");
    assert_eq!(host.0.socket(), SSH_SOCKET);
    host.assert_bridged();

    // Everything that starts units again.
    for unit in ["gpg-agent.socket", "ssh-agent.socket", "gpg-agent.service"] {
        let refused = complaint(&host.systemctl(&format!("restart {unit}")));
        assert!(refused.contains("masked"), "{refused}");
    }
    // Another socket of the same agent, which can't be started for it.
    complaint(&host.0.try_sh(&format!("gpg-connect-agent -S {GPG_SOCKET}.extra /bye")));
    eventually("it has failed", || host.state("gpg-agent-extra.socket") == "failed");
    let reloaded = host.systemctl("daemon-reload");
    assert!(reloaded.status.success(), "{reloaded:?}");
    let restarted = host.systemctl("restart sockets.target");
    assert!(restarted.status.success(), "{restarted:?}");
    host.assert_bridged();
    let restarted = host.as_root("systemctl restart manager");
    assert!(restarted.status.success(), "{restarted:?}");
    host.assert_bridged();
    complaint(&host.0.try_sh(&format!("gpg-connect-agent -S {GPG_SOCKET}.extra /bye")));

    host.down();
    host.assert_own_agents();
    eventually("it listens again", || host.state("gpg-agent-extra.socket") == "active");
    assert_eq!(host.0.sh("find ~/.config 2>/dev/null || true"), before);
}

#[test]
fn a_mask_that_is_taken_away_while_the_bridge_is_up_comes_back() {
    let host = Host::new();
    host.0.up(&["--replace"]);
    let unmasked = host.systemctl("unmask gpg-agent.socket");
    assert!(unmasked.status.success(), "{unmasked:?}");
    eventually("the unit is masked again", || {
        // The bridge may bind the path before the unit does. Then the start fails, and nothing has changed.
        host.systemctl("reset-failed gpg-agent.socket");
        host.systemctl("start gpg-agent.socket");
        text(&host.systemctl("is-enabled gpg-agent.socket").stdout).starts_with("masked")
    });
    eventually("the unit has stopped", || host.is_stopped("gpg-agent.socket"));
    eventually("the bridge has its socket again", || {
        host.0.docker.signs(Some("dev")).status.success()
    });
    host.down();
    host.assert_own_agents();
}

#[test]
fn after_a_kill_the_units_are_back_too() {
    let host = Host::new();
    host.0.up(&["--replace"]);
    let pid = host.0.status()["pid"].as_u64().unwrap();
    signal(u32::try_from(pid).unwrap(), Signal::KILL);
    host.as_root("pkill -KILL -f keybridge-remote");
    eventually("the helper is gone", || host.0.docker.helpers().is_empty());
    assert!(host.is_stopped("gpg-agent.socket"));
    // `down` undoes what the killed one has left, as the user who was bridged.
    let undone = run(&mut host.0.keybridge(["down", &host.0.container().name]));
    assert!(text(&undone).contains("undone"), "{}", text(&undone));
    host.assert_own_agents();
}

#[test]
fn what_the_user_has_masked_or_written_stays() {
    let host = Host::new();
    host.0.write(
        "~/.config/systemd/user/gpg-agent.socket",
        "[Socket]\nListenStream=%t/gnupg/S.gpg-agent\nFileDescriptorName=std\n",
    );
    let masked = host.systemctl("mask --now ssh-agent.socket");
    assert!(masked.status.success(), "{masked:?}");
    let before = host.0.sh("ls -l ~/.config/systemd/user; cat ~/.config/systemd/user/gpg*");
    let shown = host.0.up_command(&["--replace"]).output().unwrap();
    assert!(shown.status.success(), "{shown:?}");
    let said = text(&[shown.stdout, shown.stderr].concat());
    assert!(said.contains("gpg-agent.socket is not masked"), "{said}");
    host.assert_bridged();
    host.down();
    let after = host.0.sh("ls -l ~/.config/systemd/user; cat ~/.config/systemd/user/gpg*");
    assert_eq!(after, before);
    assert_eq!(host.state("ssh-agent.socket"), "inactive");
}

#[test]
fn gpg_finds_the_bridge_also_after_a_login_and_after_a_logout() {
    let host = Host::without_login();
    host.0.up(&["--replace", "--lanes", "gpg"]);
    assert_works(&host.0.docker, Some("dev"));
    let signs = || host.0.docker.signs(Some("dev")).status.success();
    let looks = || host.0.sh("gpgconf --list-dirs agent-socket");
    for _ in 0..2 {
        assert_eq!(looks().trim(), "/home/dev/.gnupg/S.gpg-agent");
        host.log_in();
        assert_eq!(looks().trim(), GPG_SOCKET);
        eventually("gpg signs after a login", signs);
        assert!(host.is_stopped("gpg-agent.socket"));
        host.log_out();
        eventually("gpg signs after the logout", signs);
    }
    host.log_in();
    eventually("gpg signs after a login", signs);
    host.down();
    host.assert_own_agents();
    assert_eq!(host.0.sh("ls -A ~/.gnupg | grep -e S.gpg -e keybridge-lock || true"), "");
}
