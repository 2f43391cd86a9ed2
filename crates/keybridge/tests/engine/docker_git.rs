//! git in a container, whose commits the host reads and signs.

use crate::any_engine::git;
use crate::gate::make_certificate;
use crate::lab::{Docker, GitRound, Image, Program, SigningKey, run, text};

/// A round in a container that has no program of GnuPG's, and no ssh-keygen; the host alone can verify it.
#[track_caller]
fn signs_without_gnupg(image: Image, user: &str, home: &str, key: SigningKey) {
    let docker = Docker::new(image, &[]);
    let container = &docker.container;
    container.sh(None, "rm -f /usr/bin/gpg* /usr/bin/ssh-keygen");
    let round = GitRound::new(&docker.lab, key);
    let shown = text(&run(round.lend(&mut docker.up_command(&["--user", user]))));
    assert!(shown.contains("is bridged"), "{shown}");
    round.is_signed(|script| container.sh(Some(user), script));
    // Nothing of GnuPG's was set up, and nothing of the lane stays.
    docker.down();
    let left = container.sh(Some(user), &format!("ls -A {home}"));
    let ours = [".gnupg", ".keybridge", ".gitconfig"];
    assert!(!ours.iter().any(|name| left.contains(name)), "{left}");
}

#[test]
fn root_in_bookworm_without_gnupg() {
    signs_without_gnupg(Image::Bookworm, "root", "/root", SigningKey::OpenPgp);
}

#[test]
fn a_user_in_trixie_without_gnupg() {
    signs_without_gnupg(Image::Trixie, "dev", "/home/dev", SigningKey::OpenPgp);
}

#[test]
fn a_user_in_bookworm_without_ssh_keygen() {
    signs_without_gnupg(Image::Bookworm, "dev", "/home/dev", SigningKey::Ssh);
}

#[track_caller]
fn signs(image: Image, user: &str, key: SigningKey) {
    git::signs(Program::Docker, image, user, key);
}

#[test]
fn an_openpgp_key_for_root() {
    signs(Image::Trixie, "root", SigningKey::OpenPgp);
}

#[test]
fn an_openpgp_key_for_a_user() {
    signs(Image::Bookworm, "dev", SigningKey::OpenPgp);
}

#[test]
fn an_ssh_key_for_root() {
    signs(Image::Bookworm, "root", SigningKey::Ssh);
}

#[test]
fn an_ssh_key_for_a_user() {
    signs(Image::Trixie, "dev", SigningKey::Ssh);
}

/// Certificates are gpgsm's, which asks the agent over the gpg lane.
#[test]
fn a_certificate_signs_with_gpgsm_as_ever() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let certificate = make_certificate(&docker.lab.host);
    docker.up(&["--lanes", "gpg,git", "--git"]);
    let import = "printf 'disable-dirmngr\ndisable-crl-checks\n' >~/.gnupg/gpgsm.conf
        gpgsm --batch --import 2>/dev/null";
    docker.container.sh_with(None, import, &certificate);
    let commit = docker.container.sh(
        None,
        "cd \"$(mktemp -d)\"
        git init --quiet .
        git config user.name Lab
        git config user.email x509@keybridge.example
        git config user.signingKey x509@keybridge.example
        git config gpg.format x509
        git commit --quiet --allow-empty -S -m signed
        git verify-commit HEAD 2>/dev/null
        git cat-file commit HEAD",
    );
    assert!(commit.contains("\ngpgsig -----BEGIN SIGNED MESSAGE-----\n"), "{commit}");
}

/// What `gpg --list-packets` says of the kinds in a signature: each packet, its version and class, and each
/// subpacket with its number and whether it is hashed. The digest is what that version of gpg prefers.
const KINDS: &str = "gpg --batch --list-packets | sed -nE '
    s/^(:[a-z ]+:).*/\\1/p
    s/^\t(version [0-9]+), .*(sigclass .*)/\\1 \\2/p
    s/^\t((hashed |critical )*subpkt [0-9]+) .*/\\1/p'";

/// gpg in the target signs over the gpg lane what the host signs over the git lane.
#[track_caller]
fn packets_are_those_of_gpg_in_the_target(image: Image, version: &str) {
    let docker = Docker::new(image, &[]);
    let container = &docker.container;
    let said = container.sh(None, "gpg --version");
    assert!(said.starts_with(&format!("gpg (GnuPG) {version}.")), "{said}");
    docker.up(&["--lanes", "gpg,git", "--git"]);
    let object = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@x> 1700000000 +0100\n\
                  committer A <a@x> 1700000000 +0100\n\na commit\n";
    let host = &docker.lab.host;
    let (primary, signing) = (host.fingerprint(), &host.fingerprints()[1]);
    for key in [
        primary,
        format!("{signing}!"),
        "lab@keybridge.example".to_owned(),
        "<lab@keybridge.example>".to_owned(),
        "Lab <lab@keybridge.example>".to_owned(),
    ] {
        let kinds = |program: &str| {
            let script = format!("{program} --status-fd=2 -bsau '{key}' | {KINDS}");
            text(&container.sh_with(None, &script, object.as_bytes()))
        };
        let (ours, theirs) = (kinds("~/.keybridge/.keybridge-gpg"), kinds("gpg"));
        assert!(theirs.contains(":signature packet:\nversion 4 sigclass 0x00\n"), "{theirs}");
        assert!(theirs.contains("\nhashed subpkt 33\n"), "{theirs}");
        assert_eq!(ours, theirs, "{key}");
    }
}

#[test]
fn a_signature_has_the_packets_that_gpg_in_bookworm_gives_it() {
    packets_are_those_of_gpg_in_the_target(Image::Bookworm, "2.2");
}

#[test]
fn a_signature_has_the_packets_that_gpg_in_trixie_gives_it() {
    packets_are_those_of_gpg_in_the_target(Image::Trixie, "2.4");
}
