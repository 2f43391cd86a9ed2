//! Finding and dialling a real ssh-agent, in each of the places where it can be named.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use crate::agent_home::{FoundAgent, Home, SshHome, gnupg, local};
use keybridge::ssh_agent::{NoSshAgent, Outcome, Place, SshDialer, SshPlaces};
use keybridge::{Error, ErrorKind};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, UnixStream};

/// Real ssh with a configuration of the test's own; notes each run in the file `runs`.
fn ssh_with(home: &SshHome, config: &str) -> PathBuf {
    let file = home.file("config");
    std::fs::write(&file, config).unwrap();
    let text = format!(
        "echo run >>{}\nexec ssh -F {} \"$@\"",
        home.file("runs").display(),
        file.display()
    );
    home.script("ssh", &text)
}

fn runs(home: &SshHome) -> usize {
    std::fs::read_to_string(home.file("runs")).map_or(0, |text| text.lines().count())
}

/// The place and the socket that are found.
async fn found(dialer: &SshDialer) -> (Place, PathBuf) {
    let (found, _) = dialer.find().await.unwrap();
    (found.place, found.path)
}

async fn nobody(dialer: &SshDialer) -> NoSshAgent {
    dialer.dial().await.unwrap_err()
}

fn outcome(nobody: &NoSshAgent, place: Place) -> Option<Outcome> {
    nobody
        .attempts
        .iter()
        .find(|attempt| attempt.place == place)
        .map(|attempt| attempt.outcome.clone())
}

#[test]
fn places_are_looked_at_in_their_order_and_again_at_each_connection() {
    let [setting, auth_sock, identity] = [(); 3].map(|()| SshHome::with_key());
    auth_sock.make_key("second");
    auth_sock.add(&["second"]);
    let gpg = Home::new();
    std::fs::write(gpg.file("gpg-agent.conf"), "enable-ssh-support\n").unwrap();
    gpg.launch_agent();
    local(async {
        let config = format!("IdentityAgent {}\n", identity.socket().display());
        let places = SshPlaces {
            setting: None,
            auth_sock: Some(auth_sock.socket()),
            ssh: ssh_with(&identity, &config),
            gnupg: Some(gnupg(&gpg)),
        };
        let with_setting = SshPlaces { setting: Some(setting.socket()), ..places.clone() };
        let strict = SshDialer::new(with_setting);
        assert_eq!(found(&strict).await, (Place::Setting, setting.socket()));
        let dialer = SshDialer::new(places);
        let (agent, keys) = dialer.find().await.unwrap();
        assert_eq!(agent.to_string(), format!("{} (SSH_AUTH_SOCK)", auth_sock.socket().display()));
        assert_eq!(keys.identities().len(), 2);
        assert_eq!(runs(&identity), 0, "ssh is asked only when it is its turn");

        auth_sock.kill();
        assert_eq!(found(&dialer).await, (Place::IdentityAgent, identity.socket()));
        identity.kill();
        assert_eq!(found(&dialer).await, (Place::GpgAgent, gpg.dirs("agent-ssh-socket")));
        auth_sock.start();
        assert_eq!(found(&dialer).await, (Place::AuthSock, auth_sock.socket()));
        dialer.clone().set_auth_sock(Some(setting.socket()));
        assert_eq!(found(&dialer).await, (Place::AuthSock, setting.socket()));

        // A setting is the only place, also when nobody is there.
        setting.kill();
        let nobody = nobody(&strict).await;
        assert_eq!(nobody.attempts.len(), 1);
        let error = Error::from(nobody);
        assert_eq!(error.kind, ErrorKind::NoAgent);
        let refused = "Connection refused (os error 111)";
        let socket = setting.socket();
        let expected = format!(
            "no ssh-agent answers (the setting ssh-socket: {}: {refused})",
            socket.display()
        );
        assert_eq!(error.message, expected);
    });
}

#[test]
fn an_identity_agent_is_resolved_as_ssh_resolves_it() {
    let home = SshHome::with_key();
    symlink(home.socket(), home.file("a b")).unwrap();
    local(async {
        let folder = home.file("");
        let folder = folder.display();
        for (value, expected) in [
            (format!("{folder}agent.sock"), home.socket()),
            (format!("\"{folder}a b\""), home.file("a b")),
            // Above the root there is the root.
            (format!("%d/../../../../..{folder}agent.sock"), home.socket()),
        ] {
            let config = format!("Host *\n  IdentityAgent {value}\n");
            let places =
                SshPlaces { auth_sock: None, ssh: ssh_with(&home, &config), ..home.places() };
            let (place, path) = found(&SshDialer::new(places)).await;
            assert_eq!(place, Place::IdentityAgent, "{value}");
            assert_eq!(path.canonicalize().unwrap(), expected.canonicalize().unwrap(), "{value}");
        }
        // The variable of the last `up` is the one that counts.
        let config = "IdentityAgent ${SSH_AUTH_SOCK}.other\n";
        let places = SshPlaces {
            auth_sock: Some(home.file("gone")),
            ssh: ssh_with(&home, config),
            ..home.places()
        };
        symlink(home.socket(), home.file("gone.other")).unwrap();
        let dialer = SshDialer::new(places);
        assert_eq!(found(&dialer).await, (Place::IdentityAgent, home.file("gone.other")));
        symlink(home.socket(), home.file("new.other")).unwrap();
        dialer.set_auth_sock(Some(home.file("new")));
        assert_eq!(found(&dialer).await, (Place::IdentityAgent, home.file("new.other")));
    });
}

#[test]
fn a_configuration_that_names_no_agent_is_told() {
    let home = SshHome::new();
    local(async {
        for (config, expected) in [
            ("", Outcome::NotSet),
            ("IdentityAgent SSH_AUTH_SOCK\n", Outcome::NotSet),
            ("IdentityAgent $KEYBRIDGE_TEST_UNSET\n", Outcome::NotSet),
            ("IdentityAgent none\n", Outcome::None),
        ] {
            let gpg = Home::new();
            let places = SshPlaces {
                auth_sock: None,
                ssh: ssh_with(&home, config),
                gnupg: Some(gnupg(&gpg)),
                ..home.places()
            };
            let nobody = nobody(&SshDialer::new(places)).await;
            assert_eq!(outcome(&nobody, Place::IdentityAgent), Some(expected.clone()), "{config}");
            // Whoever wants none gets none.
            let gpg_agent = outcome(&nobody, Place::GpgAgent);
            assert_eq!(gpg_agent.is_none(), expected == Outcome::None, "{config}");
        }
        let places = |ssh| SshPlaces { auth_sock: None, ssh, ..home.places() };
        let broken = nobody(&SshDialer::new(places(ssh_with(&home, "Nonsense x\n")))).await;
        let Some(Outcome::Unknown(problem)) = outcome(&broken, Place::IdentityAgent) else {
            panic!("{broken}");
        };
        assert!(problem.starts_with("ssh -G failed (exit status: 255): "), "{problem}");
        let missing = nobody(&SshDialer::new(places("/nonexistent/ssh".into()))).await;
        assert!(missing.to_string().contains("/nonexistent/ssh can't be started"), "{missing}");
        let flood = home.script("flood", "exec cat /dev/zero");
        let flood = nobody(&SshDialer::new(places(flood))).await;
        assert!(flood.to_string().contains("more than 262144 bytes"), "{flood}");
        let hang = home.script("hang", "exec sleep 60");
        tokio::time::pause();
        let hang = nobody(&SshDialer::new(places(hang))).await;
        assert!(hang.to_string().contains("within 3 s"), "{hang}");
    });
}

#[test]
fn a_flood_of_connections_is_no_flood_of_processes() {
    let home = SshHome::with_key();
    local(async {
        let config = format!("IdentityAgent {}\n", home.socket().display());
        let places = SshPlaces { auth_sock: None, ssh: ssh_with(&home, &config), ..home.places() };
        let dialer = SshDialer::new(places);
        let dials = (0..100).map(|_| {
            let dialer = dialer.clone();
            tokio::task::spawn_local(async move { dialer.dial().await.map(drop) })
        });
        for dial in dials.collect::<Vec<_>>() {
            dial.await.unwrap().unwrap();
        }
        // Once, or again after two seconds on a busy machine.
        assert!((1..=3).contains(&runs(&home)), "{}", runs(&home));
    });
}

#[test]
fn a_socket_that_we_serve_is_never_dialled_by_whatever_path() {
    let home = SshHome::with_key();
    let other = SshHome::with_key();
    local(async {
        let (soft, hard) = (home.file("soft"), home.file("hard"));
        symlink(home.socket(), &soft).unwrap();
        std::fs::hard_link(home.socket(), &hard).unwrap();
        let config = format!("IdentityAgent {}\n", other.socket().display());
        let places = SshPlaces { ssh: ssh_with(&home, &config), ..home.places() };
        let dialer = SshDialer::new(places);
        assert_eq!(found(&dialer).await, (Place::AuthSock, home.socket()));
        for served in [home.socket(), soft.clone()] {
            dialer.set_own_socket(served);
            for path in [&home.socket(), &soft, &hard] {
                dialer.set_auth_sock(Some(path.clone()));
                // The next place is looked at instead.
                assert_eq!(found(&dialer).await, (Place::IdentityAgent, other.socket()));
            }
        }
        dialer.set_own_socket(other.socket());
        dialer.set_auth_sock(Some(other.socket()));
        let nobody = nobody(&dialer).await;
        let ours = |path: PathBuf| Some(Outcome::Ours(path));
        assert_eq!(outcome(&nobody, Place::AuthSock), ours(other.socket()));
        assert_eq!(outcome(&nobody, Place::IdentityAgent), ours(other.socket()));
        assert!(nobody.to_string().contains("leads back to keybridge"), "{nobody}");
        dialer.set_auth_sock(Some(hard.clone()));
        assert_eq!(found(&dialer).await, (Place::AuthSock, hard));
    });
}

#[test]
fn an_agent_that_speaks_something_else_is_told() {
    let gpg = Home::new();
    gpg.launch_agent();
    let home = SshHome::new();
    local(async {
        // Assuan's greeting is no frame.
        let places = SshPlaces { auth_sock: Some(gpg.socket()), ..home.places() };
        let error = SshDialer::new(places).find().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoAgent);
        let told = "S.gpg-agent (SSH_AUTH_SOCK): unexpected answer: expected a frame";
        assert!(error.message.contains(told), "{error}");
    });
}

/// On a Mac, launchd listens in a folder of its own, and a link leads there.
#[test]
fn the_socket_of_launchd_is_as_good_as_any() {
    let home = SshHome::with_key();
    let folder = home.file("private/tmp/com.apple.launchd.Ab3xYz");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::rename(home.socket(), folder.join("Listeners")).unwrap();
    symlink(home.file("private/tmp"), home.file("tmp")).unwrap();
    let socket = home.file("tmp/com.apple.launchd.Ab3xYz/Listeners");
    local(async {
        let places = SshPlaces { auth_sock: Some(socket.clone()), ..home.places() };
        assert_eq!(found(&SshDialer::new(places)).await, (Place::AuthSock, socket));
    });
}

#[test]
fn an_agent_that_hangs_is_not_waited_for_without_end() {
    let home = SshHome::with_key();
    home.signal_agent(Signal::STOP);
    local(async {
        tokio::time::pause();
        let error = home.dialer().find().await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::NoAgent);
        assert_eq!(error.message, "the ssh-agent doesn't answer within 5 s");
    });
}

/// As an agent of Cygwin listens, in front of a real one.
async fn cygwin_relay(listener: TcpListener, nonce: [u8; 16], agent: PathBuf) {
    let (mut client, _) = listener.accept().await.unwrap();
    let (mut shown, mut credentials) = ([0; 16], [0; 8]);
    client.read_exact(&mut shown).await.unwrap();
    assert_eq!(shown, nonce);
    client.write_all(&nonce).await.unwrap();
    client.read_exact(&mut credentials).await.unwrap();
    client.write_all(&credentials).await.unwrap();
    let mut agent = UnixStream::connect(agent).await.unwrap();
    copy_bidirectional(&mut client, &mut agent).await.unwrap();
}

#[test]
fn an_agent_behind_a_socket_file_is_opened_first() {
    let home = SshHome::with_key();
    local(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let nonce = *b"0123456789abcdef";
        let words: Vec<String> = nonce
            .chunks(4)
            .map(|word| format!("{:08X}", u32::from_ne_bytes(word.try_into().unwrap())))
            .collect();
        let file = home.file("file");
        std::fs::write(&file, format!("!<socket >{port} s {}\0", words.join("-"))).unwrap();
        tokio::task::spawn_local(cygwin_relay(listener, nonce, home.socket()));
        let places = SshPlaces { setting: Some(file.clone()), ..home.places() };
        let (found, keys) = SshDialer::new(places).find().await.unwrap();
        assert_eq!((found.path, keys.identities().len()), (file, 1));
    });
}

#[test]
fn the_usual_places_are_those_of_this_process() {
    let places = SshPlaces::new(None);
    assert_eq!(places.ssh, Path::new("ssh"));
    let variable = std::env::var_os("SSH_AUTH_SOCK").filter(|value| !value.is_empty());
    assert_eq!(places.auth_sock, variable.map(PathBuf::from));
}

#[test]
fn keys_with_destinations_are_counted_though_no_agent_tells_which_they_are() {
    let home = SshHome::with_key();
    home.make_key("host-key");
    let host_key = std::fs::read_to_string(home.file("host-key.pub")).unwrap();
    std::fs::write(home.file("hosts"), format!("there {host_key}")).unwrap();
    local(async {
        assert_eq!(home.dialer().limited_keys().await, None);
        for key in ["one", "two"] {
            home.make_key(key);
            home.add(&["-q", "-H", "hosts", "-h", "there", key]);
        }
        let places = SshPlaces { ssh: "ssh".into(), ..home.places() };
        let limited = SshDialer::new(places).limited_keys().await.unwrap();
        assert_eq!(limited.count, 2);
        assert!(limited.ssh.is_some());
        assert_eq!(home.keys().lines().count(), 3, "nothing has changed");
    });
}
