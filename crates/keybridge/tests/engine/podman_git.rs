//! git in containers of Podman's, whose commits the host reads and signs.

use crate::any_engine::git::signs;
use crate::lab::{Image, Program, SigningKey};

#[test]
fn an_openpgp_key_for_a_user() {
    signs(Program::Podman, Image::Trixie, "dev", SigningKey::OpenPgp);
}

#[test]
fn an_ssh_key_for_root() {
    signs(Program::Podman, Image::Bookworm, "root", SigningKey::Ssh);
}
