//! `ssh-keys`: a container sees and uses the keys that it names.

use crate::lab::{self, Image, output, run, text};
use crate::ssh_lab::{SshLab, User, complaint};
use keybridge_lab::SshHome;

/// A host whose agent has the keys `work` and `private`.
fn two_keys(image: Image, user: User) -> SshLab {
    let home = SshHome::new();
    home.start();
    for key in ["work", "private"] {
        home.make_key(key);
        home.add(&["-q", key]);
    }
    SshLab::with(image, &[], user, home)
}

/// A key's line of `ssh-add -l`.
fn line(lab: &SshLab, key: &str) -> String {
    let keys = lab.home.keys();
    format!("{}\n", keys.lines().find(|line| line.contains(&format!(" {key} "))).unwrap())
}

fn fingerprint(lab: &SshLab, key: &str) -> String {
    line(lab, key).split(' ').nth(1).unwrap().to_owned()
}

/// Signs a file in the container with a key whose public half is there.
fn signs(lab: &SshLab, key: &str) -> bool {
    lab.write("/tmp/key.pub", lab.public_key(key));
    lab.write("/tmp/text", "a commit");
    let sign = "rm -f /tmp/text.sig; ssh-keygen -Y sign -n git -f /tmp/key.pub /tmp/text";
    lab.try_run(sign).status.success()
}

#[test]
fn a_container_sees_and_uses_the_keys_that_are_named() {
    let lab = two_keys(Image::Bookworm, User::Dev);
    let shown = lab.up(&["--lanes", "ssh", "--ssh-keys", &fingerprint(&lab, "work")]);
    assert!(shown.contains(", 1 of 2 keys ("), "{shown}");
    assert_eq!(lab.run(["ssh-add", "-l"]), line(&lab, "work"));
    assert!(signs(&lab, "work") && !signs(&lab, "private"));

    // The next `up` names others, and nothing restarts.
    let helpers = lab.docker.helpers();
    let shown = lab.up(&["--lanes", "ssh", "--ssh-keys", "pri*"]);
    assert!(shown.contains("is bridged already"), "{shown}");
    assert_eq!(lab.run(["ssh-add", "-l"]), line(&lab, "private"));
    assert!(signs(&lab, "private") && !signs(&lab, "work"));
    // One that names none leaves it as it is.
    lab.up(&["--lanes", "ssh"]);
    assert_eq!(lab.run(["ssh-add", "-l"]), line(&lab, "private"));
    let said = complaint(&output(&mut lab.up_command(&["--ssh-keys", "nobody"])));
    assert!(said.contains("your ssh-agent has no key nobody"), "{said}");
    assert_eq!(lab.run(["ssh-add", "-l"]), line(&lab, "private"));
    lab.up(&["--ssh-keys", "all"]);
    assert_eq!(lab.run(["ssh-add", "-l"]), lab.home.keys());
    assert_eq!(lab.docker.helpers(), helpers);
}

/// What was lent before is lent again after an error, and nothing else: also where it is gone meanwhile.
#[test]
fn a_choice_that_is_half_wrong_lends_no_other_key() {
    let lab = two_keys(Image::Bookworm, User::Dev);
    let host = &lab.docker.lab.host;
    let first = host.fingerprint();
    host.add_key("Other <other@keybridge.example>");
    lab.up(&["--lend", &first]);
    host.ok("gpg", &["--batch", "--yes", "--delete-secret-keys", &first]);
    let half_wrong = ["--lend", "other@keybridge.example", "--ssh-keys", "nobody"];
    let said = complaint(&output(&mut lab.up_command(&half_wrong)));
    assert!(said.contains("your ssh-agent has no key nobody"), "{said}");
    let other = host.keygrip_of("other@keybridge.example");
    let ask = format!("gpg-connect-agent --no-autostart 'HAVEKEY {other}' /bye");
    assert_eq!(lab.sh(&ask).split(' ').next(), Some("ERR"));
}

#[test]
fn keys_that_are_not_there_are_an_error_that_lists_those_that_are() {
    let lab = two_keys(Image::Trixie, User::Dev);
    let before = lab.container().listing();
    let missing = format!("SHA256:{}", "A".repeat(43));
    let work = fingerprint(&lab, "work");
    for (keys, word) in [("nobody@*", "nobody@*"), (&missing, &*missing), ("work,x?", "x?")] {
        // Also where no lane is named.
        for lanes in [&["--lanes", "ssh"][..], &[]] {
            let up = output(&mut lab.up_command(&[lanes, &["--ssh-keys", keys]].concat()));
            let said = complaint(&up);
            assert_eq!(up.status.code(), Some(1), "{said}");
            assert!(
                said.contains(&format!("ssh-keys: your ssh-agent has no key {word}\n")),
                "{said}"
            );
            assert!(said.contains(&format!("  → {work} work\n")), "{said}");
            assert!(said.contains(&format!("  → {} private\n", fingerprint(&lab, "private"))));
            lab::eventually("no bridge is left", || lab.docker.bridges().is_empty());
        }
    }
    lab.container().assert_unchanged(&before);
    for (keys, word) in [("SHA256:short", "43 characters"), ("", "ssh-keys is empty")] {
        let up = output(&mut lab.up_command(&["--lanes", "ssh", &format!("--ssh-keys={keys}")]));
        let said = complaint(&up);
        assert_eq!(up.status.code(), Some(2), "{said}");
        assert!(said.contains(word), "{said}");
    }
}

/// A locked agent lists nothing, and one that is given its keys when they are needed neither.
#[test]
fn an_agent_without_keys_is_lent_with_a_warning_and_its_keys_when_they_come() {
    let lab = two_keys(Image::Bookworm, User::Root);
    lab.home.script("askpass", "echo secret");
    lab.home.add(&["-x"]);
    let shown = lab.up(&["--lanes", "ssh", "--ssh-keys", "work"]);
    assert!(
        shown.contains("! your ssh-agent has no keys now; those that ssh-keys names"),
        "{shown}"
    );
    let list = lab.try_run("ssh-add -l");
    assert_eq!(text(&list.stdout), "The agent has no identities.\n");
    lab.home.add(&["-X"]);
    assert_eq!(lab.run(["ssh-add", "-l"]), line(&lab, "work"));
    // The key goes, and the link is made again: that is no failure of the bridge.
    lab.home.add(&["-q", "-d", "work.pub"]);
    let name = &lab.container().name;
    run(std::process::Command::new("docker").args(["restart", "-t", "0", name]));
    lab::eventually("the bridge is back", || {
        let status = lab.status();
        status["state"] == "ready" && status["reconnects"].as_u64() >= Some(1)
    });
    let list = lab.try_run("ssh-add -l");
    assert_eq!(text(&list.stdout), "The agent has no identities.\n");
}
