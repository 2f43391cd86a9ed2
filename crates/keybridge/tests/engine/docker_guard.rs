//! The socket in a container is kept, unless an agent with secret keys has it.

use crate::lab::{Docker, Image, eventually, output, text};

/// Does something to the socket in the container, and waits until gpg signs there again.
#[track_caller]
fn signs_again_after(docker: &Docker, script: &str) {
    docker.container.sh(None, script);
    eventually("gpg signs there again", || docker.signs(None).status.success());
}

/// An agent of another home, whose socket then takes the place of ours at one stroke: one that is
/// started at the path can come too late for it.
const STRAY: &str = "mkdir -m 700 /tmp/stray
    gpg-agent --homedir /tmp/stray --daemon >/tmp/started
    mv -f /tmp/stray/S.gpg-agent ~/.gnupg/S.gpg-agent";

#[test]
fn a_socket_that_was_removed_is_back() {
    let docker = Docker::new(Image::Trixie, &[]);
    docker.up(&[]);
    for _ in 0..3 {
        signs_again_after(&docker, "rm ~/.gnupg/S.gpg-agent");
    }
    let log = docker.log();
    assert!(log.contains("was removed or replaced, and is bound again"), "{log}");
    docker.down();
    assert_eq!(docker.helpers(), Vec::<String>::new());
}

#[test]
fn an_agent_that_is_started_there_does_not_keep_the_socket() {
    for image in [Image::Bookworm, Image::Trixie] {
        let docker = Docker::new(image, &[]);
        docker.up(&[]);
        let script = "rm ~/.gnupg/S.gpg-agent; gpg-agent --daemon >/tmp/started 2>&1 || true";
        signs_again_after(&docker, script);
        docker.down();
        assert_eq!(docker.helpers(), Vec::<String>::new());
    }
}

#[test]
fn an_agent_that_has_the_socket_is_ended() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.up(&[]);
    signs_again_after(&docker, STRAY);
    eventually("the stray agent has ended", || docker.container.processes("gpg-agent").is_empty());
    docker.down();
}

#[test]
fn an_agent_without_keys_makes_way_for_a_bridge() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.container.sh(None, "mkdir -m 700 ~/.gnupg; gpg-agent --daemon >/dev/null");
    assert_eq!(docker.container.processes("gpg-agent").len(), 1);
    docker.up(&[]);
    assert!(docker.signs(None).status.success());
    eventually("the agent has ended", || docker.container.processes("gpg-agent").is_empty());
}

const MAKE_KEY: &str = "gpg --batch --passphrase '' --quick-gen-key there@keybridge.example \
                        ed25519 sign never 2>/dev/null";

#[test]
fn an_agent_with_secret_keys_keeps_its_socket_and_up_says_who_it_is() {
    let docker = Docker::new(Image::Trixie, &[]);
    let container = &docker.container;
    container.sh(None, MAKE_KEY);
    let agents = container.processes("gpg-agent");
    assert_eq!(agents.len(), 1);
    let before = container.listing();
    let refused = output(&mut docker.up_command(&[]));
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    let pid = agents[0].split(' ').next().unwrap();
    assert!(said.contains(&format!("gpg-agent (pid {pid})")), "{said}");
    assert!(said.contains("secret keys") && said.contains("  → "), "{said}");
    assert_eq!(container.processes("gpg-agent"), agents);
    container.sh(None, "echo words | gpg --batch --clear-sign -u there@keybridge.example");
    assert_eq!(docker.helpers(), Vec::<String>::new());
    assert_eq!(docker.bridges().len(), 0);
    container.assert_unchanged(&before);
}

#[test]
fn an_agent_with_secret_keys_that_takes_the_socket_later_is_left_alone() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let container = &docker.container;
    docker.up(&[]);
    // In another home first, since gpg could not start an agent in the bridged one.
    container.sh(None, "mkdir -m 700 /tmp/stray");
    container.sh(None, &format!("export GNUPGHOME=/tmp/stray; {MAKE_KEY}"));
    let agents = container.processes("gpg-agent");
    assert_eq!(agents.len(), 1);
    container.sh(None, "mv -f /tmp/stray/S.gpg-agent ~/.gnupg/S.gpg-agent");
    eventually("the helper has seen it", || {
        docker.log().contains("is a gpg-agent with secret keys")
    });
    let keys = "gpg-connect-agent --no-autostart 'KEYINFO --list' /bye";
    assert!(container.sh(None, keys).contains("S KEYINFO "));
    docker.down();
    assert_eq!(container.processes("gpg-agent"), agents);
    assert!(container.sh(None, keys).contains("S KEYINFO "));
    assert_eq!(docker.helpers(), Vec::<String>::new());
}
