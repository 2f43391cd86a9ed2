//! A bridge that lends some of the keys of a real ssh-agent.

use crate::agent_home::{FoundAgent, Home, SshHome, gnupg, local};
use crate::bridge_helper::{Client, Pair, ssh_pair};
use crate::ssh_wire::{FAILURE, blob, frame, keys_in, sign, string};
use keybridge::ssh_agent::SshDialer;
use keybridge_lab::output_beside;
use keybridge_proto::Lane;
use keybridge_proto::gate::Policy;
use keybridge_proto::ssh::{Fingerprint, KeySelection, MessageType, Request};

fn policy(words: &[&str]) -> Policy {
    let ssh_keys = KeySelection::of_words(words.iter().copied()).unwrap();
    Policy { ssh_keys, ..Policy::default() }
}

fn fingerprint(home: &SshHome, key: &str) -> String {
    Fingerprint::of(&blob(home, key)).unwrap().to_string()
}

/// An agent with the keys `work-1`, `work-2` and `home`, which are their comments too.
fn three_keys() -> SshHome {
    let home = SshHome::new();
    home.start();
    for key in ["work-1", "work-2", "home"] {
        home.make_key(key);
        home.add(&["-q", key]);
    }
    home
}

/// Whether a client gets a signature with a key.
async fn signs(client: &Client, key: &[u8]) -> bool {
    let answer = client.request(&sign(key)).await.unwrap();
    match MessageType(answer[4]) {
        MessageType::SIGN_RESPONSE => true,
        MessageType::FAILURE => false,
        other => panic!("{other}"),
    }
}

async fn lists(client: &Client) -> Vec<String> {
    keys_in(&client.request(&Request::LIST).await.unwrap())
}

#[test]
fn a_target_sees_and_uses_only_the_keys_that_are_lent() {
    let home = three_keys();
    let print = fingerprint(&home, "work-2");
    for (words, lent) in [
        (&[&*print][..], &["work-2"][..]),
        (&["work-*"], &["work-1", "work-2"]),
        (&["h?me", &print], &["work-2", "home"]),
        (&["nothing"], &[]),
    ] {
        local(async {
            let Pair { bridge: _bridge, helper } =
                ssh_pair(home.dialer(), |settings| settings.policy = policy(words)).await;
            let socket = home.file("target.sock");
            helper.listen_ssh(&socket);
            let mut list = home.command("ssh-add");
            list.arg("-L").env("SSH_AUTH_SOCK", &socket);
            let listed = String::from_utf8(output_beside(list, b"").await.stdout).unwrap();
            let expected: String = lent
                .iter()
                .map(|key| std::fs::read_to_string(home.file(&format!("{key}.pub"))).unwrap())
                .collect();
            let expected =
                if lent.is_empty() { "The agent has no identities.\n" } else { &expected };
            assert_eq!(listed, expected, "{words:?}");
            let client = helper.client_of(Lane::Ssh);
            for key in ["work-1", "work-2", "home"] {
                let is_lent = lent.contains(&key);
                assert_eq!(signs(&client, &blob(&home, key)).await, is_lent, "{words:?} {key}");
            }
            std::fs::remove_file(socket).unwrap();
        });
    }
}

#[test]
fn a_session_keeps_its_comments_and_never_what_the_choice_no_longer_names() {
    let home = three_keys();
    local(async {
        let Pair { bridge, helper } =
            ssh_pair(home.dialer(), |settings| settings.policy = policy(&["work-*"])).await;
        let first = helper.client_of(Lane::Ssh);
        assert_eq!(lists(&first).await, ["work-1", "work-2"]);
        home.make_key("work-3");
        home.add(&["-q", "work-3"]);
        assert_eq!(lists(&first).await, ["work-1", "work-2"]);
        assert!(!signs(&first, &blob(&home, "work-3")).await);
        let second = helper.client_of(Lane::Ssh);
        assert_eq!(lists(&second).await, ["work-1", "work-2", "work-3"]);
        assert!(signs(&second, &blob(&home, "work-3")).await);
        bridge.set_ssh_keys(KeySelection::of_words(["home"]).unwrap());
        // What it has seen of the agent was for other words.
        assert_eq!(lists(&second).await, [""; 0]);
        assert!(!signs(&second, &blob(&home, "work-3")).await);
        assert!(!signs(&first, &blob(&home, "work-1")).await);
        let third = helper.client_of(Lane::Ssh);
        assert_eq!(lists(&third).await, ["home"]);
        assert!(!signs(&third, &blob(&home, "work-3")).await);
    });
}

/// Has an authority certify keys that are there.
fn certify(home: &SshHome, keys: &[&str]) {
    home.make_key("authority");
    for key in keys {
        let public = format!("{key}.pub");
        home.ok("ssh-keygen", &["-q", "-s", "authority", "-I", key, "-n", "me", &public]);
    }
}

#[test]
fn a_certificate_counts_as_its_key() {
    let home = SshHome::new();
    home.start();
    for (name, kind) in [("lent", "ed25519"), ("rsa", "rsa"), ("ecdsa", "ecdsa"), ("other", "rsa")]
    {
        let file = home.file(name);
        let file = file.to_str().unwrap();
        home.ok("ssh-keygen", &["-q", "-t", kind, "-N", "", "-C", name, "-f", file]);
    }
    certify(&home, &["lent", "rsa", "ecdsa", "other"]);
    home.add(&["-q", "lent", "rsa", "ecdsa", "other"]);
    assert_eq!(home.keys().lines().count(), 8, "each key, and its certificate");
    let prints = ["lent", "rsa", "ecdsa"].map(|key| fingerprint(&home, key));
    let prints: Vec<&str> = prints.iter().map(String::as_str).collect();
    for words in [&prints[..], &["lent", "rsa", "ecdsa"]] {
        local(async {
            let Pair { bridge: _bridge, helper } =
                ssh_pair(home.dialer(), |settings| settings.policy = policy(words)).await;
            let client = helper.client_of(Lane::Ssh);
            assert_eq!(lists(&client).await, ["lent", "lent", "rsa", "rsa", "ecdsa", "ecdsa"]);
            for key in ["lent", "rsa", "ecdsa"] {
                assert!(signs(&client, &blob(&home, key)).await);
                assert!(signs(&client, &blob(&home, &format!("{key}-cert"))).await);
            }
            assert!(!signs(&client, &blob(&home, "other")).await);
            assert!(!signs(&client, &blob(&home, "other-cert")).await);
        });
    }
}

/// An agent doesn't check that a certificate belongs to the private key that comes with it. So whoever
/// can add keys can give any public key a comment.
#[test]
fn a_certificate_with_a_chosen_comment_does_not_get_another_key_lent() {
    let home = three_keys();
    certify(&home, &["home"]);
    let certificate = blob(&home, "home-cert");
    let body = [
        string(b"ssh-ed25519-cert-v01@openssh.com"),
        string(&certificate),
        blob(&home, "home").split_off(4 + 11),
        string(&[2; 64]),
        string(b"work-0"),
    ];
    local(async {
        let Pair { bridge: _bridge, helper } = ssh_pair(home.dialer(), |settings| {
            settings.policy.allow_ssh_changes = true;
        })
        .await;
        let planter = helper.client_of(Lane::Ssh);
        let add = frame(MessageType::ADD_IDENTITY, &body.concat());
        assert_eq!(planter.request(&add).await.unwrap(), frame(MessageType::SUCCESS, b""));
        assert_eq!(lists(&planter).await, ["work-1", "work-2", "home", "work-0"]);
        let Pair { bridge: _bridge, helper } =
            ssh_pair(home.dialer(), |settings| settings.policy = policy(&["work-*"])).await;
        let client = helper.client_of(Lane::Ssh);
        assert_eq!(lists(&client).await, ["work-1", "work-2"]);
        assert!(!signs(&client, &blob(&home, "home")).await);
        assert!(!signs(&client, &certificate).await);
    });
}

#[test]
fn where_comments_choose_keys_a_target_adds_none() {
    let home = three_keys();
    home.make_key("work-9");
    local(async {
        let Pair { bridge: _bridge, helper } = ssh_pair(home.dialer(), |settings| {
            settings.policy = Policy { allow_ssh_changes: true, ..policy(&["work-*"]) };
        })
        .await;
        helper.listen_ssh(&home.file("target.sock"));
        let mut add = home.command("ssh-add");
        add.args(["-q", "work-9"]).env("SSH_AUTH_SOCK", home.file("target.sock"));
        assert!(!output_beside(add, b"").await.status.success());
        let mut remove = home.command("ssh-add");
        remove.args(["-q", "-d", "home.pub"]).env("SSH_AUTH_SOCK", home.file("target.sock"));
        assert!(!output_beside(remove, b"").await.status.success());
        assert_eq!(home.keys().lines().count(), 3);
        let mut remove = home.command("ssh-add");
        remove.args(["-q", "-d", "work-1.pub"]).env("SSH_AUTH_SOCK", home.file("target.sock"));
        assert!(output_beside(remove, b"").await.status.success());
        assert_eq!(home.keys().lines().count(), 2);
    });
}

/// gpg-agent with two keys for ssh.
fn gpg_agent(home: &SshHome) -> Home {
    let gpg = Home::with_key("lent@test");
    gpg.add_key("other@test");
    let grips = ["lent@test", "other@test"].map(|name| format!("{} 0\n", gpg.keygrip_of(name)));
    std::fs::write(gpg.file("gpg-agent.conf"), "enable-ssh-support\n").unwrap();
    std::fs::write(gpg.file("sshcontrol"), grips.concat()).unwrap();
    gpg.end_agents();
    gpg.launch_agent();
    let mut list = home.command("ssh-add");
    list.arg("-L").env("SSH_AUTH_SOCK", gpg.dirs("agent-ssh-socket"));
    let listed = String::from_utf8(list.output().unwrap().stdout).unwrap();
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 2, "{listed}");
    for (line, file) in lines.iter().zip(["lent.pub", "other.pub"]) {
        std::fs::write(home.file(file), line).unwrap();
    }
    gpg
}

#[test]
fn the_keys_of_a_gpg_agent_are_narrowed_too() {
    let home = SshHome::new();
    let gpg = gpg_agent(&home);
    let print = fingerprint(&home, "lent");
    local(async {
        let mut places = home.places();
        places.gnupg = Some(gnupg(&gpg));
        let dialer = SshDialer::new(places);
        let (_, listed) = dialer.find().await.unwrap();
        let comment =
            String::from_utf8(listed.identities().iter().next().unwrap().comment.to_vec());
        // A comment that both keys have names both.
        for (words, other) in [(&[&*print][..], false), (&[&comment.unwrap()], true)] {
            let Pair { bridge: _bridge, helper } =
                ssh_pair(dialer.clone(), |settings| settings.policy = policy(words)).await;
            let client = helper.client_of(Lane::Ssh);
            assert_eq!(lists(&client).await.len(), if other { 2 } else { 1 });
            assert!(signs(&client, &blob(&home, "lent")).await);
            assert_eq!(signs(&client, &blob(&home, "other")).await, other);
        }
    });
}

/// gpg-agent takes the nonce of a certificate for the certificate: it would sign with the key in there.
#[test]
fn a_key_inside_the_nonce_of_a_certificate_is_not_lent() {
    let home = SshHome::new();
    let gpg = gpg_agent(&home);
    let name = string(b"ssh-ed25519-cert-v01@openssh.com");
    let [lent, other] = ["lent", "other"].map(|key| blob(&home, key).split_off(4 + 11));
    let hidden = [&name[..], &string(b""), &other].concat();
    let crafted = [&name[..], &string(&hidden), &lent, &[0; 60]].concat();
    let print = fingerprint(&home, "lent");
    local(async {
        let mut places = home.places();
        places.gnupg = Some(gnupg(&gpg));
        let dialer = SshDialer::new(places);
        // gpg-agent would sign with the hidden key, whose name nobody would know.
        let Pair { bridge: _bridge, helper } = ssh_pair(dialer.clone(), |_| {}).await;
        let client = helper.client_of(Lane::Ssh);
        assert!(signs(&client, &blob(&home, "other")).await);
        assert_eq!(client.request(&sign(&crafted)).await.unwrap(), FAILURE);
        let Pair { bridge: _bridge, helper } =
            ssh_pair(dialer, |settings| settings.policy = policy(&[&print])).await;
        let client = helper.client_of(Lane::Ssh);
        assert!(signs(&client, &blob(&home, "lent")).await);
        assert_eq!(client.request(&sign(&crafted)).await.unwrap(), FAILURE);
    });
}
