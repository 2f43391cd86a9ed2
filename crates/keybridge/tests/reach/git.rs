//! git on a host that ssh leads to, whose commits the host with the keys reads and signs.

use crate::lab::{GitRound, Image, SigningKey, run};
use crate::ssh_host::SshHost;

#[track_caller]
fn signs(image: Image, key: SigningKey) {
    let host = SshHost::new(image);
    let round = GitRound::new(&host.scene.lab, key);
    run(round.lend(&mut host.scene.keybridge(["up", &SshHost::address()])));
    round.is_signed_and_verified_there(|script| host.scene.container.sh(Some("dev"), script));
    host.down();
}

#[test]
fn an_openpgp_key() {
    signs(Image::Trixie, SigningKey::OpenPgp);
}

#[test]
fn an_ssh_key() {
    signs(Image::Bookworm, SigningKey::Ssh);
}
