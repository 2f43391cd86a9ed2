//! What is broken in the target.

use crate::lab::{Image, run, systemd};
use crate::scene::{EMAIL, Scene};

/// Packs the packages that have gpg again, removes them, and has apt find them in a folder: the container has
/// no network.
const REMOVE_GPG: &str = r#"
exec 3>&1 >/dev/null
mkdir /srv/packages
cd /srv
for name in gnupg gpg gpg-wks-client gpg-wks-server; do
    mkdir -p $name/DEBIAN
    dpkg-query --status $name | sed '/^Status:/d; /^Conffiles:/d; /^ \//d' >$name/DEBIAN/control
    dpkg --listfiles $name | while read -r file; do
        [ ! -f "$file" ] || cp --parents --no-dereference "$file" $name
    done
    dpkg-deb --build -Znone $name packages/$name.deb
    dpkg-deb --field packages/$name.deb >>packages/Packages
    printf 'Filename: ./%s.deb\nSize: %s\nSHA256: %s\n\n' $name "$(stat -c %s packages/$name.deb)" \
        "$(sha256sum packages/$name.deb | cut -d ' ' -f 1)" >>packages/Packages
done
apt-get purge -y gpg
rm -f /etc/apt/sources.list.d/*
echo 'deb [trusted=yes] file:/srv/packages ./' >/etc/apt/sources.list
"#;

#[test]
fn no_gpg() {
    let scene = Scene::new();
    scene.container().sh(Some("root"), REMOVE_GPG);
    scene.assert_found_and_fixed("target-gpg", 3, &["there is no gpg in the target"]);
}

#[test]
fn a_systemd_unit_in_the_way() {
    let scene = Scene::with(Image::Systemd, &systemd::OPTIONS, Some("dev"));
    systemd::await_boot(scene.container());
    systemd::log_in(scene.container());
    let fix = scene.assert_found_and_fixed("agent-starters", 1, &["gpg-agent.socket"]);
    assert!(fix.contains("--replace"), "{fix}");
}

#[test]
fn no_public_key() {
    let scene = Scene::bridged();
    let key = scene.lab().host.fingerprint();
    scene.sh(&format!("gpg --batch --yes --delete-keys {key}"));
    scene.assert_found_and_fixed("public-keys", 1, &["lacks the public key", &key]);
}

#[test]
fn a_public_key_that_is_stale() {
    let scene = Scene::bridged();
    let key = scene.lab().host.fingerprint();
    run(&mut scene.lab().host.gpg(["--quick-set-expire", &key, "2y"]));
    scene.assert_found_and_fixed("public-keys", 1, &["older", &key, "expires"]);
}

#[test]
fn no_trust() {
    let scene = Scene::bridged();
    let key = scene.lab().host.fingerprint();
    scene.sh(&format!("echo {key}:2: | gpg --batch --import-ownertrust"));
    scene.assert_found_and_fixed("ownertrust", 0, &[&key]);
}

#[test]
fn an_agent_with_keys_that_has_the_socket() {
    let scene = Scene::new();
    // As somebody has done who worked in the container before.
    scene.sh("gpg --batch --passphrase '' --quick-gen-key 'There <there@keybridge.example>'");
    scene.assert_found_and_fixed("target-socket", 1, &["gpg-agent", "secret keys"]);
}

#[test]
fn a_gnupg_home_of_another_owner() {
    let scene = Scene::with(Image::Bookworm, &[], Some("dev"));
    scene.container().sh(Some("root"), "mkdir -m 700 /home/dev/.gnupg");
    let diagnosis = scene.diagnose();
    assert_eq!(diagnosis.json["first"], "target-home", "{}", diagnosis.text);
    assert!(diagnosis.text.contains("look at the folder in the target"), "{}", diagnosis.text);
}

#[test]
fn git_without_a_signing_key() {
    let scene = Scene::bridged();
    // Without one, gpg looks for a key with this address.
    scene.sh("git config --global --unset user.signingkey
        git config --global user.email there@keybridge.example");
    let fix = scene.assert_found("git-signing", 0, &["no user.signingkey"]);
    let fixed = scene.type_in(&fix);
    assert!(fixed.status.success(), "{fixed:?}");
    let set = scene.sh("git init -q /tmp/work; git -C /tmp/work config user.signingkey");
    assert_eq!(set.trim(), scene.lab().host.fingerprint());
    // The address is a problem of its own.
    scene.assert_found_and_fixed("git-email", 0, &["there@keybridge.example"]);
}

#[test]
fn git_that_always_signs_without_a_signing_key() {
    let scene = Scene::bridged();
    scene.sh("git config --global --unset user.signingkey
        git config --global --unset user.email
        git config --global commit.gpgsign true");
    let fix = scene.assert_found("git-signing", 1, &["no user.signingkey"]);
    let fixed = scene.type_in(&fix);
    assert!(fixed.status.success(), "{fixed:?}");
    scene.assert_found_and_fixed("git-email", 0, &["no user.email"]);
    scene.sh(
        "git init -q /tmp/work && git -C /tmp/work -c user.name=x commit -q --allow-empty -m x",
    );
}

#[test]
fn an_email_that_is_not_on_the_key() {
    let scene = Scene::bridged();
    scene.sh("git config --global user.email there@keybridge.example");
    scene.assert_found_and_fixed("git-email", 0, &["there@keybridge.example"]);
    assert_eq!(scene.sh("git config user.email").trim(), EMAIL);
}
