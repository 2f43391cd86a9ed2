//! A bridge that lets a target change a real ssh-agent, and what it doesn't let it do even then.

use std::cell::RefCell;
use std::process::Output;
use std::rc::Rc;

use crate::agent_home::{FoundAgent, SshHome, complaint, local};
use crate::bridge_helper::{Client, Pair, ssh_pair};
use crate::ssh_wire::{FAILURE, SUCCESS, blob, frame, keys_in, sign, sign_data, string};
use keybridge::ssh_agent::{SshDialer, SshPlaces};
use keybridge_lab::output_beside;
use keybridge_proto::Lane;
use keybridge_proto::ssh::MessageType;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// What OpenSSH sent at a login: verifiable by any agent.
const BIND: &[u8] =
    include_bytes!("../../../keybridge-proto/tests/golden/ssh/extension-session-bind");

type Recorded = Rc<RefCell<Vec<u8>>>;

/// Listens between the bridge and the agent, and notes every byte that goes to the agent.
fn record(home: &SshHome) -> (SshDialer, Recorded) {
    let recorded = Recorded::default();
    let path = home.file("recorder.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (agent, noted) = (home.socket(), Rc::clone(&recorded));
    tokio::task::spawn_local(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let agent = UnixStream::connect(&agent).await.unwrap();
            tokio::task::spawn_local(relay(client, agent, Rc::clone(&noted)));
        }
    });
    let places = SshPlaces { auth_sock: Some(path), ..home.places() };
    (SshDialer::new(places), recorded)
}

async fn relay(client: UnixStream, agent: UnixStream, noted: Recorded) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_agent, mut to_agent) = agent.into_split();
    let there = async {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
            noted.borrow_mut().extend_from_slice(&buffer[..count]);
            to_agent.write_all(&buffer[..count]).await.unwrap();
        }
    };
    tokio::select! {
        () = there => {}
        _ = tokio::io::copy(&mut from_agent, &mut to_client) => {}
    }
}

async fn ssh_add(home: &SshHome, arguments: &[&str]) -> Output {
    let mut command = home.command("ssh-add");
    command.env("SSH_AUTH_SOCK", home.file("target.sock")).args(arguments);
    output_beside(command, b"").await
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn with_the_users_word_plain_keys_come_and_go_and_the_agent_is_locked() {
    let home = SshHome::with_key();
    home.script("askpass", "echo secret");
    for kind in ["ed25519", "rsa", "ecdsa"] {
        let file = home.file(kind);
        let file = file.to_str().unwrap();
        home.ok("ssh-keygen", &["-q", "-t", kind, "-N", "", "-C", kind, "-f", file]);
        let public = format!("{kind}.pub");
        home.ok("ssh-keygen", &["-q", "-s", "key", "-I", kind, "-n", "me", &public]);
    }
    home.make_key("host-key");
    let host_key = std::fs::read_to_string(home.file("host-key.pub")).unwrap();
    std::fs::write(home.file("hosts"), format!("there {host_key}")).unwrap();
    local(async {
        let Pair { bridge: _bridge, helper } = ssh_pair(home.dialer(), |settings| {
            settings.policy.allow_ssh_changes = true;
        })
        .await;
        helper.listen_ssh(&home.file("target.sock"));
        for limits in
            [&[][..], &["-t", "60"], &["-c"], &["-t", "60", "-c", "-H", "hosts", "-h", "there"]]
        {
            for key in ["ed25519", "rsa", "ecdsa"] {
                let added = ssh_add(&home, &[limits, &["-q", key]].concat()).await;
                assert!(added.status.success(), "{limits:?} {key}: {added:?}");
            }
            assert_eq!(home.keys().lines().count(), 7, "three keys, their certificates, and `key`");
            for key in ["ed25519", "rsa", "ecdsa"] {
                let removed = ssh_add(&home, &["-q", "-d", key]).await;
                assert!(removed.status.success(), "{key}: {removed:?}");
            }
            assert_eq!(home.keys().lines().count(), 1);
        }
        assert!(ssh_add(&home, &["-x"]).await.status.success());
        assert_eq!(home.keys(), "The agent has no identities.\n");
        assert!(ssh_add(&home, &["-X"]).await.status.success());
        assert_eq!(home.keys().lines().count(), 1);
        assert!(ssh_add(&home, &["-D"]).await.status.success());
        assert_eq!(home.keys(), "The agent has no identities.\n");
    });
}

/// The private half of a key, as a request to add it carries it.
fn ed25519() -> Vec<u8> {
    [string(b"ssh-ed25519"), string(&[1; 32]), string(&[2; 64]), string(b"planted")].concat()
}

#[test]
fn nothing_that_makes_the_agent_load_a_library_reaches_it() {
    let home = SshHome::with_key();
    home.script("askpass", "echo 1234");
    local(async {
        let (dialer, recorded) = record(&home);
        let Pair { bridge: _bridge, helper } =
            ssh_pair(dialer, |settings| settings.policy.allow_ssh_changes = true).await;
        helper.listen_ssh(&home.file("target.sock"));
        let before = home.keys();
        for arguments in [
            &["-s", "/usr/lib/evil.so"][..],
            &["-t", "9", "-s", "/usr/lib/evil.so"],
            &["-e", "/usr/lib/evil.so"],
        ] {
            let refused = ssh_add(&home, arguments).await;
            assert!(!refused.status.success() && !complaint(&refused).is_empty(), "{refused:?}");
        }
        let provider = [&[255][..], &string(b"sk-provider@openssh.com"), &string(b"/lib/evil.so")];
        let provider = provider.concat();
        let sk = [
            string(b"sk-ssh-ed25519@openssh.com"),
            string(&[1; 32]),
            string(b"ssh:evil.so"),
            vec![1],
            string(b"handle"),
            string(b""),
            string(b"planted"),
        ]
        .concat();
        let associated = [&[255][..], &string(b"associated-certs-v00@openssh.com"), &[1]].concat();
        let client = helper.client_of(Lane::Ssh);
        for kind in [MessageType::ADD_IDENTITY, MessageType::ADD_ID_CONSTRAINED] {
            for body in [
                [&ed25519()[..], &provider].concat(),
                [&ed25519()[..], &[2], &provider].concat(),
                [&sk[..], &provider].concat(),
                sk.clone(),
                [&ed25519()[..], &associated, b"evil.so"].concat(),
                [&ed25519()[..], &[99], b"evil.so"].concat(),
            ] {
                assert_eq!(client.request(&frame(kind, &body)).await.unwrap(), FAILURE);
            }
        }
        let extension = frame(MessageType::EXTENSION, &string(b"load@evil.so"));
        let failure = frame(MessageType::EXTENSION_FAILURE, b"");
        assert_eq!(client.request(&extension).await.unwrap(), failure);
        assert_eq!(client.request(&frame(MessageType(7), b"evil.so")).await.unwrap(), FAILURE);
        assert_eq!(home.keys(), before);
        let recorded = recorded.borrow();
        for part in [&b"evil.so"[..], b"planted", b"sk-provider"] {
            assert!(!contains(&recorded, part), "{}", String::from_utf8_lossy(part));
        }
    });
}

/// The fields of the session that `BIND` is about: the key of its host, and its id.
fn bound_session() -> (Vec<u8>, Vec<u8>) {
    let mut rest = &BIND[5..];
    let mut next = || {
        let (length, after) = rest.split_first_chunk().unwrap();
        let (field, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        rest = after;
        field.to_vec()
    };
    assert_eq!(next(), b"session-bind@openssh.com");
    (next(), next())
}

/// What a login at that session has signed.
fn login(key: &[u8]) -> Vec<u8> {
    let (host_key, session) = bound_session();
    [
        string(&session),
        vec![50],
        string(b"me"),
        string(b"ssh-connection"),
        string(b"publickey-hostbound-v00@openssh.com"),
        vec![1],
        string(b"ssh-ed25519"),
        string(key),
        string(&host_key),
    ]
    .concat()
}

async fn lists(client: &Client) -> Vec<String> {
    keys_in(&client.request(&keybridge_proto::ssh::Request::LIST).await.unwrap())
}

/// What SECURITY.md says of keys with destinations.
#[test]
fn a_key_with_a_destination_is_listed_and_signs_only_a_login_there() {
    use base64::Engine as _;
    let home = SshHome::new();
    home.start();
    let (host_key, _) = bound_session();
    let host_key = base64::engine::general_purpose::STANDARD.encode(host_key);
    home.make_key("elsewhere-host");
    let elsewhere = std::fs::read_to_string(home.file("elsewhere-host.pub")).unwrap();
    let hosts = format!("there ssh-ed25519 {host_key}\nelsewhere {elsewhere}");
    std::fs::write(home.file("hosts"), hosts).unwrap();
    for host in ["there", "elsewhere"] {
        home.make_key(host);
        home.add(&["-q", "-H", "hosts", "-h", host, host]);
    }
    let [there, elsewhere] = ["there", "elsewhere"].map(|key| blob(&home, key));
    local(async {
        let Pair { bridge: _bridge, helper } = ssh_pair(home.dialer(), |_| {}).await;
        let client = helper.client_of(Lane::Ssh);
        let message = [b"SSHSIG", &string(b"git")[..], &string(b""), &string(b"sha512")].concat();
        let message = [message, string(&[4; 64])].concat();
        // Not bound to a session: each key is listed, and none signs.
        assert_eq!(lists(&client).await, ["there", "elsewhere"]);
        for data in [&login(&there)[..], &message, b"text"] {
            assert_eq!(client.request(&sign_data(&there, data)).await.unwrap(), FAILURE);
        }
        // Bound to a session with `there`: its key is listed, and signs that login and nothing else.
        assert_eq!(client.request(BIND).await.unwrap(), SUCCESS);
        assert_eq!(lists(&client).await, ["there"]);
        let signed = client.request(&sign_data(&there, &login(&there))).await.unwrap();
        assert_eq!(MessageType(signed[4]), MessageType::SIGN_RESPONSE);
        assert_eq!(client.request(&sign_data(&there, &message)).await.unwrap(), FAILURE);
        assert_eq!(client.request(&sign(&there)).await.unwrap(), FAILURE);
        let login = sign_data(&elsewhere, &login(&elsewhere));
        assert_eq!(client.request(&login).await.unwrap(), FAILURE);
    });
}
