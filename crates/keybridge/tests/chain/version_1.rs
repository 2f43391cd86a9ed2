//! A version 1 server in the target, in place of our own helper: ours under the name that such servers have.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;

use crate::lab::{
    Home, KEYBRIDGE, eventually, make_private, output, run_with, signal, text, write_program,
};
use crate::second_command::{Far, agent_with};

/// The name that an existing host starts its server by.
const NAME: &str = "clawker-socket-server";

/// A target with a server.
struct Served {
    far: Far,
    server: String,
}

impl Served {
    fn new() -> Self {
        let far = Far::new();
        let server = far.scene.lab.at(NAME);
        let helper = PathBuf::from(KEYBRIDGE).with_file_name("keybridge-remote");
        fs::copy(helper, &server).unwrap();
        Self { server: server.to_str().unwrap().to_owned(), far }
    }

    /// The sockets that the server was told of; `None` if none runs.
    fn asked_for(&self) -> Option<String> {
        let processes = fs::read_dir("/proc").unwrap().flatten().map(|process| process.path());
        let mut servers = processes.filter(|process| {
            let words = text(&fs::read(process.join("cmdline")).unwrap_or_default());
            words.split('\0').next() == Some(&self.server)
        });
        let variables = text(&fs::read(servers.next()?.join("environ")).ok()?);
        let sockets =
            variables.split('\0').find_map(|one| one.strip_prefix("CLAWKER_REMOTE_SOCKETS="));
        sockets.map(str::to_owned)
    }

    /// The keyring of the target's user.
    fn keyring(&self) -> PathBuf {
        self.far.scene.lab.at("far/.gnupg/pubring.kbx")
    }
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn the_ssh_lane_alone_never_empties_the_keyring_of_the_target() {
    let served = Served::new();
    let (far, agent) = (&served.far, agent_with("a-key"));
    let key = &far.scene.lab.host;
    let export = output(&mut key.gpg(["--export"])).stdout;
    let import = ["--homedir", "far/.gnupg", "--import"];
    run_with(key.gpg(import).current_dir(far.scene.lab.folder()), &export);
    let before = fs::read(served.keyring()).unwrap();
    let shown = far.up(Some(&agent.socket()), &["--lanes", "ssh", "--helper", &served.server]);
    assert!(shown.contains("ssh-agent answers") && !shown.contains("gpg"), "{shown}");
    let asked_for = served.asked_for().expect("it runs");
    assert!(asked_for.contains("ssh-agent") && !asked_for.contains("gpg"), "{asked_for}");
    assert!(text(&far.list(None, &[]).stdout).contains("a-key"));
    assert_eq!(fs::read(served.keyring()).unwrap(), before);
    let down = text(&far.keybridge(None, &["down", &far.address]).stdout);
    assert!(
        down.contains("ended; its version 1 server undoes") && !down.contains(" undone"),
        "{down}"
    );
    assert_eq!(served.asked_for(), None, "it has ended before down has");
    assert_eq!(fs::read(served.keyring()).unwrap(), before);
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn no_server_is_started_that_would_get_no_keys() {
    let (far, empty) = (Far::new(), Home::new());
    let (server, started) = (far.scene.lab.at(NAME), far.scene.lab.at("started"));
    write_program(&server, format!("#!/bin/sh\necho >{}\n", started.display()));
    let home = empty.path().to_str().unwrap();
    let helper = server.to_str().unwrap();
    let named = ["up", &far.address, "--lanes", "gpg", "--gnupg-home", home, "--helper", helper];
    let refused = far.keybridge(None, &named);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("no public keys to send"), "{said}");
    assert!(!started.exists());
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn no_lane_that_is_shown_is_missing_and_what_the_server_leaves_is_not_called_undone() {
    let served = Served::new();
    let (far, agent) = (&served.far, agent_with("a-key"));
    let shown = far.up(Some(&agent.socket()), &["--lanes", "gpg,ssh", "--helper", &served.server]);
    assert!(shown.contains("answers, ssh-agent answers"), "{shown}");
    assert!(text(&far.list(None, &[]).stdout).contains("a-key"));
    let sign =
        ["run", &far.address, "--", "sh", "-c", "echo words | gpg --batch --sign | gpg --verify"];
    let signed = far.keybridge(None, &sign);
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    let down = far.keybridge(None, &["down", &far.address]);
    let said = text(&down.stdout);
    assert!(said.contains("has left there: the public keys that were sent"), "{said}");
    assert!(down.status.success() && !said.contains(" undone"), "{said}");
    eventually("the server has ended", || served.asked_for().is_none());
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn what_a_target_adds_to_the_list_of_what_is_left_is_never_shown() {
    let served = Served::new();
    let far = &served.far;
    far.up(None, &["--lanes", "gpg", "--helper", &served.server]);
    let program = far.scene.lab.at("bin/far");
    let enter = fs::read_to_string(&program).unwrap();
    let chatty = enter.replacen('\n', "\necho 'nothing; now run a command of mine'\n", 1);
    assert_ne!(chatty, enter);
    write_program(&program, chatty);
    let down = text(&far.keybridge(None, &["down", &far.address]).stdout);
    assert!(down.contains("has left there: the public keys that were sent"), "{down}");
    assert!(!down.contains("now run"), "{down}");
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn what_a_server_did_is_not_called_undone_after_a_kill() {
    let served = Served::new();
    let far = &served.far;
    far.up(None, &["--lanes", "gpg", "--helper", &served.server]);
    signal(u32::try_from(far.status()["pid"].as_u64().unwrap()).unwrap(), Signal::KILL);
    eventually("the server has ended", || served.asked_for().is_none());
    let down = text(&far.keybridge(None, &["down", &far.address]).stdout);
    assert!(down.contains("its version 1 server undoes") && !down.contains(" undone"), "{down}");
    let again = text(&far.keybridge(None, &["down", &far.address]).stdout);
    assert!(again.contains("is not bridged"), "{again}");
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn a_lane_that_cannot_be_had_is_never_shown_as_if_it_were() {
    let served = Served::new();
    let (far, agent) = (&served.far, agent_with("a-key"));
    let program = far.scene.lab.at("bin/far");
    let enter = fs::read_to_string(&program).unwrap();
    let homeless = enter.replace("HOME=~root", "GNUPGHOME=~root/.gnupg HOME=nowhere");
    write_program(&program, homeless);
    let named = ["up", &far.address, "--lanes", "gpg,ssh", "--helper", &served.server];
    let refused = far.keybridge(Some(&agent.socket()), &named);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("nowhere/.ssh"), "{said}");
    let shown = far.up(Some(&agent.socket()), &["--helper", &served.server]);
    assert!(shown.contains("without the ssh lane: no socket can be in the home"), "{shown}");
    assert!(!shown.contains("ssh-agent answers") && !shown.contains("every key"), "{shown}");
    let asked_for = served.asked_for().expect("it runs");
    assert!(asked_for.contains("gpg-agent") && !asked_for.contains("ssh"), "{asked_for}");
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to look into processes")]
fn an_ssh_agent_of_the_target_never_loses_its_socket_to_a_server() {
    let served = Served::new();
    let (far, agent, own) = (&served.far, agent_with("a-key"), agent_with("their-key"));
    let folder = far.scene.lab.at("far/.ssh");
    make_private(&folder);
    std::os::unix::fs::symlink(own.socket(), folder.join("agent.sock")).unwrap();
    let named = ["up", &far.address, "--lanes", "ssh", "--helper", &served.server];
    let refused = far.keybridge(Some(&agent.socket()), &named);
    let said = text(&refused.stderr);
    assert!(
        said.contains("an ssh-agent answers in the target already, at ")
            && !refused.status.success(),
        "{said}"
    );
    assert_eq!(served.asked_for(), None, "no server is started");
    assert_eq!(fs::read_link(folder.join("agent.sock")).unwrap(), own.socket());
}
