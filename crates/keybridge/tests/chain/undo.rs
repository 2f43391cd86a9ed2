//! What a bridge changes is undone, however it ends; and an agent that dies comes back.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::lab::{
    self, Client, Home, Lab, eventually, run, run_with, set_mode, signal, snapshot, text,
    version_answer,
};
use rustix::process::Signal;

const NO_AGENT: &str = "ERR 67108941 No agent running <GPG Agent>\n";

/// Contents of gpg.conf as people have them; none is a file that isn't there.
const CONFIGURATIONS: [Option<&str>; 7] = [
    None,
    Some(""),
    Some("# mine\nkeyid-format long\n\nuse-agent\n"),
    Some("# mine\r\nkeyid-format long\r\n"),
    Some("keyid-format long"),
    Some("keyid-format long\r\nuse-agent"),
    Some("agent-program /usr/bin/gpg-agent\n"),
];

/// Puts a gpg.conf into the home; gives back what has to be there again in the end.
fn configure(home: &Home, content: Option<&str>) -> Option<(Vec<u8>, u32)> {
    let path = home.file("gpg.conf");
    let _ = fs::remove_file(&path);
    if let Some(content) = content {
        fs::write(&path, content).unwrap();
        set_mode(&path, 0o640);
    }
    state(&path)
}

/// Content and mode.
fn state(path: &Path) -> Option<(Vec<u8>, u32)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((fs::read(path).unwrap(), metadata.mode()))
}

/// No socket, and no process that works on the home.
fn assert_clear(home: &Home) {
    assert!(!home.socket().exists(), "a socket stays");
    let wanted = format!("GNUPGHOME={}", home.path().display()).into_bytes();
    // What was told to end may take its time.
    eventually("no process works on the home", || {
        !fs::read_dir("/proc").unwrap().flatten().any(|process| {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            environment.split(|&byte| byte == 0).any(|variable| variable == wanted)
        })
    });
}

fn signs(home: &Home) -> bool {
    lab::feed(&mut home.gpg(["--detach-sign"]), b"words").status.success()
}

#[test]
fn gpg_conf_is_byte_for_byte_the_same_after_a_stop() {
    let lab = Lab::with_key();
    for content in CONFIGURATIONS {
        let before = configure(&lab.target, content);
        for by in [Signal::TERM, Signal::INT, Signal::HUP] {
            let bridge = lab.up();
            let during = fs::read_to_string(lab.target.file("gpg.conf")).unwrap();
            assert!(during.starts_with(content.unwrap_or_default()), "{during:?}");
            assert!(signs(&lab.target), "with {content:?}");
            bridge.stop_by(by);
            assert_eq!(state(&lab.target.file("gpg.conf")), before, "{content:?} after {by:?}");
            assert_clear(&lab.target);
        }
    }
}

#[test]
fn gpg_conf_is_byte_for_byte_the_same_after_a_kill_and_a_new_bridge() {
    let lab = Lab::with_key();
    for content in CONFIGURATIONS {
        let before = configure(&lab.target, content);
        for _ in 0..2 {
            lab.up().kill();
            assert!(lab.target.socket().exists(), "a killed bridge leaves its socket");
        }
        let bridge = lab.up();
        assert!(signs(&lab.target), "with {content:?}");
        bridge.stop();
        assert_eq!(state(&lab.target.file("gpg.conf")), before, "{content:?}");
        assert_clear(&lab.target);
    }
}

#[test]
fn a_gpg_conf_that_is_a_link_stays_one() {
    let lab = Lab::with_key();
    let file = lab.file("dotfile", "keyid-format long\n");
    std::os::unix::fs::symlink(&file, lab.target.file("gpg.conf")).unwrap();
    let before = (state(&file), fs::read_link(lab.target.file("gpg.conf")).unwrap());
    let bridge = lab.up();
    assert!(signs(&lab.target));
    bridge.stop();
    assert_eq!((state(&file), fs::read_link(lab.target.file("gpg.conf")).unwrap()), before);
}

#[test]
fn lines_that_were_added_while_the_bridge_was_up_stay() {
    let lab = Lab::with_key();
    let path = lab.target.file("gpg.conf");
    fs::write(&path, "keyid-format long\n").unwrap();
    let bridge = lab.up();
    let during = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("# first\n{during}# last\n")).unwrap();
    bridge.stop();
    assert_eq!(fs::read_to_string(&path).unwrap(), "# first\nkeyid-format long\n# last\n");
}

#[test]
fn the_end_of_either_program_alone_leaves_nothing() {
    let lab = Lab::with_key();
    let before = configure(&lab.target, Some("keyid-format long"));
    let undone = || state(&lab.target.file("gpg.conf")) == before && !lab.target.socket().exists();

    let bridge = lab.up();
    let helper = bridge.helper_pid();
    signal(bridge.host_pid(), Signal::KILL);
    eventually("the helper undoes its edits and ends", || undone() && !lab::is_alive(helper));
    drop(bridge);

    let bridge = lab.up();
    let helper = bridge.helper_pid();
    signal(helper, Signal::TERM);
    eventually("it ends", || !lab::is_alive(helper));
    // The host's program makes another link.
    eventually("gpg signs again", || signs(&lab.target));
    bridge.stop();
    assert!(undone());
    assert_clear(&lab.target);
}

#[test]
fn an_interrupted_start_leaves_nothing() {
    let lab = Lab::with_key();
    let before = configure(&lab.target, Some("keyid-format long"));
    // Interrupted at each moment from the first look at the target to the bridge that works.
    for seen in ["none", "gpg.conf", "socket"] {
        let mut command = lab.up_command(&[]);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let mut child = command.spawn().unwrap();
        eventually("the start is under way", || {
            child.try_wait().unwrap().is_some()
                || match seen {
                    "gpg.conf" => state(&lab.target.file("gpg.conf")) != before,
                    "socket" => lab.target.socket().exists(),
                    // Once it runs, only root may look at its descriptors.
                    _ => fs::read_dir(format!("/proc/{}/fd", child.id()))
                        .map_or(true, |descriptors| descriptors.count() > 5),
                }
        });
        signal(child.id(), Signal::TERM);
        eventually("the program ends", || child.try_wait().unwrap().is_some());
        eventually("everything is undone", || {
            state(&lab.target.file("gpg.conf")) == before && !lab.target.socket().exists()
        });
    }
}

#[test]
fn a_stale_socket_is_replaced() {
    let lab = Lab::with_key();
    lab::leave_dead_socket(&lab.target.socket());
    let bridge = lab.up();
    assert!(signs(&lab.target));
    bridge.stop();
    assert_clear(&lab.target);
}

#[test]
fn an_agent_without_keys_makes_way() {
    let lab = Lab::with_key();
    lab.target.launch_agent();
    let stray = lab.target.agent_pid();
    let bridge = lab.up();
    eventually("the stray agent ends", || !lab::is_alive(stray));
    assert!(signs(&lab.target));
    bridge.stop();
}

#[test]
fn a_socket_that_was_taken_away_comes_back() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    fs::remove_file(lab.target.socket()).unwrap();
    eventually("the socket is bound again", || UnixStream::connect(lab.target.socket()).is_ok());
    assert!(signs(&lab.target));
    bridge.stop();
    assert_clear(&lab.target);
}

#[test]
fn a_second_bridge_to_the_same_home_is_refused_and_the_first_goes_on() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let before = snapshot(lab.target.path());
    // Of somebody who doesn't see the first one.
    let state = lab.at("other-state");
    let refused = lab::output(lab.up_command(&[]).env("KEYBRIDGE_STATE", state));
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(lab.target.socket().to_str().unwrap()), "{said}");
    assert!(said.contains("another bridge"), "{said}");
    assert_eq!(snapshot(lab.target.path()), before);
    assert!(signs(&lab.target));
    bridge.stop();
    assert_clear(&lab.target);
}

#[test]
fn an_agent_that_dies_in_mid_command_is_told_and_started_again() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let agent = lab.host.agent_pid();
    let mut idle = Client::greeted(&bridge.socket());
    let mut waiting = Client::greeted(&bridge.socket());
    // Stopped, so that the command is under way for as long as it takes.
    signal(agent, Signal::STOP);
    waiting.send("GETINFO version\n");
    signal(agent, Signal::KILL);
    assert_eq!(text(&waiting.response()), NO_AGENT);
    assert_eq!(waiting.rest(), b"");
    // One that had asked nothing is not left waiting.
    let rest = text(&idle.rest());
    assert!(rest.is_empty() || rest == NO_AGENT, "{rest}");

    // A process that is ending still takes connections for a moment.
    eventually("the agent is gone", || !lab::is_alive(agent));
    let mut next = Client::greeted(&bridge.socket());
    assert_eq!(next.ask("GETINFO version"), version_answer());
    assert_ne!(lab.host.agent_pid(), agent);
    assert!(signs(&lab.target));
    drop(next);
    bridge.stop();
}

/// The bridge can find the command and the agent's end at once, and is not to take the end first.
#[test]
fn a_command_that_was_sent_before_the_agent_died_is_answered() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let agent = lab.host.agent_pid();
    let mut clients: Vec<_> = (0..8).map(|_| Client::greeted(&bridge.socket())).collect();
    signal(bridge.host_pid(), Signal::STOP);
    for client in &mut clients {
        client.send("GETINFO version\n");
    }
    signal(agent, Signal::KILL);
    eventually("the agent is gone", || !lab::is_alive(agent));
    signal(bridge.host_pid(), Signal::CONT);
    for mut client in clients {
        assert_eq!(text(&client.response()), NO_AGENT);
        assert_eq!(client.rest(), b"");
    }
    bridge.stop();
}

#[test]
fn an_agent_that_dies_in_an_inquiry_is_told() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    let grip = &lab.host.keygrips()[1];
    let mut client = Client::greeted(&bridge.socket());
    assert_eq!(client.ask(format!("SETKEY {grip}")), "OK\n");
    assert!(client.ask("PKDECRYPT").ends_with("INQUIRE CIPHERTEXT\n"));
    let agent = lab.host.agent_pid();
    signal(agent, Signal::KILL);
    assert_eq!(text(&client.response()), NO_AGENT);
    assert_eq!(client.rest(), b"");
    eventually("the agent is gone", || !lab::is_alive(agent));
    assert!(signs(&lab.target));
    bridge.stop();
}

#[test]
fn an_agent_that_is_away_is_told_at_once_and_used_when_it_is_back() {
    let mut lab = Lab::with_key();
    let away = lab.at("away");
    let script = format!(
        "[ \"$1\" = --launch ] && [ -e '{}' ] && {{ echo 'no agent today' >&2; exit 1; }}\n\
         exec {} \"$@\"\n",
        away.display(),
        lab::program("gpgconf").display()
    );
    lab.put_before("gpgconf", &script);
    let bridge = lab.up();
    fs::write(&away, "").unwrap();
    let agent = lab.host.agent_pid();
    signal(agent, Signal::KILL);
    eventually("the agent is gone", || !lab::is_alive(agent));
    for _ in 0..3 {
        let mut client = Client::connect(&bridge.socket());
        assert_eq!(text(&client.rest()), NO_AGENT);
    }
    let failed = lab::feed(&mut lab.target.gpg(["--detach-sign"]), b"words");
    assert!(text(&failed.stderr).contains("No agent running"), "{}", text(&failed.stderr));
    fs::remove_file(&away).unwrap();
    eventually("the agent is used again", || {
        Client::connect(&bridge.socket()).line().starts_with("OK")
    });
    assert!(signs(&lab.target));
    bridge.stop();
}

#[test]
fn keys_that_came_stay_and_are_told_as_unchanged() {
    let lab = Lab::with_key();
    let bridge = lab.up();
    assert_eq!(bridge.ready()["keys"]["new"], 1, "{}", bridge.ready());
    bridge.stop();
    let bridge = lab.up();
    let keys = &bridge.ready()["keys"];
    assert_eq!((&keys["new"], &keys["unchanged"]), (&0.into(), &1.into()), "{keys}");
    bridge.stop();
    run(&mut lab.host.gpg(["--quick-add-uid", &lab.host.fingerprint(), "Second <second@x>"]));
    let bridge = lab.up();
    assert_eq!(bridge.ready()["keys"]["updated"], 1, "{}", bridge.ready());
    run_with(&mut lab.target.gpg(["--encrypt", "-r", "second@x"]), b"words");
    bridge.stop();
}
