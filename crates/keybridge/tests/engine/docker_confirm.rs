//! A key whose file says `Confirm: restricted`. gpg-agent knows that from 2.3.7 on: here one of 2.4 is in a
//! container, and shows the dialogs of a person who is a script.

use std::rc::Rc;

use keybridge::git::GitKeys;
use keybridge::gnupg::Gnupg;
use keybridge::keyring::{Keyring, Lending, SharedCeiling};
use keybridge_proto::git::{Answer, Format, Request};
use keybridge_proto::session::Operations;
use keybridge_proto::ssh::SelectionInForce;

use crate::lab::{Container, Image, Lab, eventually, feed, on_this_thread, text, write_program};

const OBJECT: &[u8] = b"tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\
    author A <a@x> 1700000000 +0100\ncommitter A <a@x> 1700000001 +0000\n\na commit\n";

/// Notes that it was asked, and answers what a file has.
const PINENTRY: &str = r#"#!/bin/sh
cd "${0%/*}"
echo OK
while read -r verb rest; do
    case $verb in
    CONFIRM) echo asked >>asked; cat answer ;;
    *) echo OK ;;
    esac
done
"#;

#[test]
fn a_signature_for_git_is_confirmed_where_the_file_of_the_key_says_so() {
    let lab = Lab::with_key();
    let host = &lab.host;
    let key_file = host.file("private-keys-v1.d").join(format!("{}.key", host.keygrips()[0]));
    let key = std::fs::read(&key_file).unwrap();
    std::fs::write(&key_file, [b"Confirm: restricted\n", &key[..]].concat()).unwrap();
    let pinentry = host.file("pinentry");
    write_program(&pinentry, PINENTRY);
    let settings = format!("pinentry-program {}\n", pinentry.display());
    std::fs::write(host.file("gpg-agent.conf"), settings).unwrap();
    host.end_agents();
    let (folder, home) = (lab.folder().display(), host.path().display());
    let options =
        ["--volume", &format!("{folder}:{folder}"), "--env", &format!("GNUPGHOME={home}")];
    let container = Container::start(Image::Trixie, &options);
    container.sh(None, "gpgconf --launch gpg-agent");
    eventually("the agent listens", || host.file("S.gpg-agent").exists());
    if !host.has_socket() {
        // Here GnuPG looks below /run/user.
        let leads_there = format!("%Assuan%\nsocket={home}/S.gpg-agent\n");
        std::fs::write(host.socket(), leads_there).unwrap();
    }
    let version = text(&host.ok("gpg-connect-agent", &["GETINFO version", "/bye"]).stdout);
    assert!(version.starts_with("D 2.4."), "{version}");
    let asked = || std::fs::read_to_string(host.file("asked")).unwrap_or_default().lines().count();
    let request = Request {
        format: Format::Openpgp,
        key: host.fingerprint().into_bytes(),
        object: OBJECT.to_vec(),
    };
    on_this_thread(async {
        let gnupg = Gnupg::new(Some(host.path().to_owned()));
        let ceiling = SharedCeiling::default();
        let (keyring, _) = Keyring::open(gnupg, Lending::default(), &ceiling).await.unwrap();
        let keys = GitKeys { openpgp: Some(Rc::new(keyring)), ssh: None };
        let signer = keys.signer(&SelectionInForce::default(), &Operations::default());
        std::fs::write(host.file("answer"), "OK\n").unwrap();
        let Answer::Signed { signature, .. } = signer.answer(&request).await else { panic!() };
        assert_eq!(asked(), 1);
        let object = lab.file("object", OBJECT);
        feed(host.gpg(["--verify", "-"]).arg(object), &signature);
        std::fs::write(host.file("answer"), "ERR 83886194 Not confirmed <Pinentry>\n").unwrap();
        for _ in 0..3 {
            let answer = signer.answer(&request).await;
            assert!(matches!(answer, Answer::Refused(_)), "{answer:?}");
        }
        // Who has said no is not asked again at once.
        assert_eq!(asked(), 2);
    });
    // The host's own gpg needs no confirmation.
    let own = feed(&mut host.gpg(["--armor", "--detach-sign"]), OBJECT);
    assert!(own.status.success() && asked() == 2, "{own:?}");
}
