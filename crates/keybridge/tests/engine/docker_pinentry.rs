//! A dialog of gpg-agent 2.4, which is in a container, and the end of the client that has caused it.

use keybridge::agent::{AgentDialer, GpgAgent};
use keybridge::gnupg::Gnupg;
use keybridge::interface::{CommandInterface, Settings};
use keybridge::keyring::Keyring;
use keybridge_proto::gate::{KeyGrip, Rights, Use};

use crate::lab::{Container, Image, Lab, PATIENCE, eventually};
use keybridge_lab::until;

/// A pinentry that waits for a person who never comes, and a key that needs one.
const SETUP: &str = r#"
cd "$GNUPGHOME"
printf '#!/bin/sh\necho OK\nwhile read -r verb rest; do case $verb in GETPIN)
echo >%s/asked; exec cat %s/never;; esac; echo OK; done\n' "$PWD" "$PWD" >pinentry
mkfifo never
chmod 755 pinentry
echo "pinentry-program $GNUPGHOME/pinentry" >gpg-agent.conf
gpg --batch --quiet --pinentry-mode loopback --passphrase secret --quick-gen-key a@test ed25519 sign
gpgconf --reload gpg-agent
gpg --with-colons --with-keygrip --list-keys | sed -n 's/^grp:*\([0-9A-F]*\):$/\1/p'
"#;

#[test]
fn a_session_that_is_ended_takes_its_dialog_with_it() {
    let lab = Lab::empty();
    let home = lab.at("shared");
    std::fs::create_dir(&home).unwrap();
    let place = home.to_str().unwrap();
    let container = Container::start(
        Image::Trixie,
        &["--volume", &format!("{place}:{place}"), "--env", &format!("GNUPGHOME={place}")],
    );
    let grip = container.sh(None, &format!("chmod 700 {place}; {SETUP}"));
    let asked = home.join("asked");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let dialer = AgentDialer::at(home.join("S.gpg-agent.extra"));
    let rights = Rights { sign: Use::OpenPgp, decrypt: Use::Denied };
    let lent = KeyGrip::parse(grip.trim().as_bytes()).map(|keygrip| (keygrip, rights));
    let agent = GpgAgent::new(dialer, Keyring::fixed(lent.into_iter().collect()));
    let interface =
        CommandInterface::new(Gnupg::new(Some(home.clone())), agent, Settings::default());
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let session = interface.connect_agent(None).await.unwrap().session_id.to_string();
        let steps = format!("SIGKEY {}\nSETHASH 8 {}\n", grip.trim(), "AB".repeat(32));
        assert_eq!(interface.send_commands(&session, &steps).await.unwrap(), "OK\nOK\n");
        let ending = async {
            until("somebody is asked", || asked.exists()).await;
            // The script says so right before it becomes the program that waits.
            until("the dialog waits", || container.processes("cat").len() == 1).await;
            interface.disconnect_agent(&session).await.unwrap();
        };
        let signing = interface.send_commands(&session, "PKSIGN");
        let both = async { tokio::join!(signing, ending) };
        let (signed, ()) = tokio::time::timeout(PATIENCE, both).await.unwrap();
        signed.unwrap_err();
        assert_eq!(interface.sessions(), 0);
    });
    eventually("the dialog is gone", || container.processes("cat").is_empty());
}
