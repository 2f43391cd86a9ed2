//! The bridge between a helper in the same process and a real ssh-agent, asked by the real programs.

use std::path::Path;
use std::process::{Command, Output};

use crate::agent_home::{FoundAgent, Home, SshHome, complaint, gnupg, local};
use crate::bridge_helper::{Client, Helper, Pair, idle, pair, ssh_pair};
use crate::ssh_wire::{blob, sign};
use keybridge::ssh_agent::SshDialer;
use keybridge_lab::{FAILURE, SUCCESS, output_beside, until};
use keybridge_proto::Lane;
use keybridge_proto::gate::Policy;
use keybridge_proto::ssh::{Frame, MessageType, Request, Response};

const EXTENSION_FAILURE: [u8; 5] = [0, 0, 0, 1, 28];
use rustix::process::Signal;

/// What OpenSSH sent at a login: verifiable by any agent.
const BIND: &[u8] =
    include_bytes!("../../../keybridge-proto/tests/golden/ssh/extension-session-bind");

/// The same for a host key of another kind: the name of a file there.
fn bind_of(kind: &str) -> Vec<u8> {
    std::fs::read(Path::new(BINDS).join(kind)).unwrap()
}

const BINDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../keybridge-proto/tests/golden/binds");

/// A program in the target: its agent is the bridge.
fn in_target(home: &SshHome, program: &str, arguments: &[&str]) -> Command {
    let mut command = home.command(program);
    command.env("SSH_AUTH_SOCK", home.file("target.sock")).args(arguments);
    command
}

async fn run(home: &SshHome, program: &str, arguments: &[&str]) -> Output {
    output_beside(in_target(home, program, arguments), b"").await
}

/// Signs a file as git does, and has the signature verified.
async fn signs(home: &SshHome, public_key: &str) {
    std::fs::write(home.file("text"), "a commit").unwrap();
    let _ = std::fs::remove_file(home.file("text.sig"));
    let arguments = ["-Y", "sign", "-f", public_key, "-n", "git", "text"];
    let signed = run(home, "ssh-keygen", &arguments).await;
    assert!(signed.status.success(), "{signed:?}");
    verify(home, public_key);
}

fn verify(home: &SshHome, public_key: &str) {
    let key = std::fs::read_to_string(home.file(public_key)).unwrap();
    std::fs::write(home.file("signers"), format!("me@test {key}")).unwrap();
    let mut verify = home.command("ssh-keygen");
    verify.args(["-Y", "verify", "-f", "signers", "-I", "me@test", "-n", "git", "-s", "text.sig"]);
    verify.stdin(std::fs::File::open(home.file("text")).unwrap());
    let verified = verify.output().unwrap();
    assert!(verified.status.success(), "{verified:?}");
}

fn keys_in(answer: &[u8]) -> u32 {
    let (frame, _) = Frame::parse(answer).unwrap().unwrap();
    match Response::read(&frame) {
        Ok(Response::Identities(identities)) => identities.len(),
        other => panic!("{other:?}"),
    }
}

async fn lists(client: &Client) -> u32 {
    keys_in(&client.request(&Request::LIST).await.unwrap())
}

fn ssh_client(helper: &Helper) -> Client {
    helper.client_of(Lane::Ssh)
}

#[test]
fn keys_are_listed_and_sign_with_the_real_programs() {
    let home = SshHome::with_key();
    local(async {
        let Pair { bridge, helper } = ssh_pair(home.dialer(), |_| {}).await;
        helper.listen_ssh(&home.file("target.sock"));
        let listed = run(&home, "ssh-add", &["-l"]).await;
        assert_eq!(String::from_utf8(listed.stdout).unwrap(), home.keys());
        // The private key isn't needed where the signature is asked for.
        std::fs::rename(home.file("key"), home.file("away")).unwrap();
        signs(&home, "key.pub").await;
        idle(&bridge).await;
        let stats = bridge.stats();
        assert_eq!((stats.ssh.open, stats.ssh.total, stats.gpg.total), (0, 2, 0));
        assert!(stats.ssh.bytes_in > 100 && stats.ssh.bytes_out > 100, "{stats:?}");
    });
}

#[test]
fn what_changes_the_agent_fails_in_the_target_and_changes_nothing_at_home() {
    let home = SshHome::with_key();
    home.make_key("other");
    home.script("askpass", "echo planted");
    local(async {
        let Pair { bridge: _bridge, helper } = ssh_pair(home.dialer(), |_| {}).await;
        helper.listen_ssh(&home.file("target.sock"));
        let before = home.keys();
        for arguments in [
            &["other"][..],
            &["-c", "other"],
            &["-t", "60", "other"],
            &["-d", "key.pub"],
            &["-D"],
            &["-x"],
            &["-X"],
            &["-s", "/usr/lib/nothing.so"],
            &["-e", "/usr/lib/nothing.so"],
        ] {
            let output = run(&home, "ssh-add", arguments).await;
            assert!(!output.status.success(), "{arguments:?}: {output:?}");
            assert_eq!(home.keys(), before, "{arguments:?}");
        }
        let added = run(&home, "ssh-add", &["other"]).await;
        assert_eq!(
            complaint(&added),
            "Could not add identity \"other\": agent refused operation\n"
        );
        signs(&home, "key.pub").await;
    });
}

#[test]
fn with_the_users_word_the_agent_can_be_changed() {
    let home = SshHome::with_key();
    home.make_key("other");
    local(async {
        let policy = Policy { allow_ssh_changes: true, ..Policy::default() };
        let Pair { bridge: _bridge, helper } =
            ssh_pair(home.dialer(), |settings| settings.policy = policy).await;
        helper.listen_ssh(&home.file("target.sock"));
        assert!(run(&home, "ssh-add", &["other"]).await.status.success());
        assert_eq!(home.keys().lines().count(), 2);
    });
}

#[test]
fn a_session_bind_passes_and_belongs_to_its_connection() {
    let home = SshHome::with_key();
    // A key for a host that is not the one of the session.
    home.make_key("bound");
    home.make_key("host-key");
    let host_key = std::fs::read_to_string(home.file("host-key.pub")).unwrap();
    std::fs::write(home.file("hosts"), format!("there {host_key}")).unwrap();
    home.add(&["-H", "hosts", "-h", "there", "bound"]);
    local(async {
        let Pair { bridge: _bridge, helper } = ssh_pair(home.dialer(), |_| {}).await;
        let (bound, free) = (ssh_client(&helper), ssh_client(&helper));
        assert_eq!(lists(&bound).await, 2);
        assert_eq!(bound.request(BIND).await.unwrap(), SUCCESS);
        assert_eq!(lists(&bound).await, 1, "the key for another host is hidden");
        assert_eq!(lists(&free).await, 2);
        // The agent agrees with what is verified of other kinds of host keys.
        for kind in std::fs::read_dir(BINDS).unwrap() {
            let bind = std::fs::read(kind.unwrap().path()).unwrap();
            assert_eq!(ssh_client(&helper).request(&bind).await.unwrap(), SUCCESS);
        }
    });
}

#[test]
fn a_login_that_is_not_bound_to_its_host_is_never_signed() {
    let home = SshHome::with_key();
    local(async {
        let Pair { bridge: _bridge, helper } = ssh_pair(home.dialer(), |_| {}).await;
        let sign = sign(&blob(&home, "key"));
        let is_signed = |answer: &[u8]| answer[4] == MessageType::SIGN_RESPONSE.0;
        // For forwarding, then for a login there: what ssh does on one connection.
        let mut forwarding = BIND.to_vec();
        *forwarding.last_mut().unwrap() = 1;
        let hops = ssh_client(&helper);
        let (login, another) = (bind_of("ed25519"), bind_of("ecdsa-256"));
        for bind in [&forwarding, &login, &another] {
            let is_known = bind != &another;
            let answer = hops.request(bind).await.unwrap();
            assert_eq!(
                answer == SUCCESS,
                is_known,
                "after a login's bind the agent takes no other"
            );
            assert_eq!(is_signed(&hops.request(&sign).await.unwrap()), is_known);
        }
        let mut forged = BIND.to_vec();
        forged[100] ^= 1;
        let client = ssh_client(&helper);
        assert!(is_signed(&client.request(&sign).await.unwrap()));
        assert_eq!(client.request(&forged).await.unwrap(), EXTENSION_FAILURE);
        assert_eq!(client.request(&sign).await.unwrap(), FAILURE);
        assert_eq!(client.request(BIND).await.unwrap(), EXTENSION_FAILURE);
        assert_eq!(client.request(&sign).await.unwrap(), FAILURE);
    });
}

#[test]
fn requests_that_are_sent_together_are_answered_in_order() {
    let home = SshHome::with_key();
    local(async {
        let Pair { bridge: _bridge, helper } = ssh_pair(home.dialer(), |_| {}).await;
        let client = ssh_client(&helper);
        let (remove_all, unknown) = ([0, 0, 0, 1, 19], [0, 0, 0, 6, 27, 0, 0, 0, 1, b'x']);
        let stream = [&Request::LIST[..], &remove_all, &unknown, &Request::LIST].concat();
        assert!(client.stream.write_all(&stream.repeat(50)).await);
        client.stream.finish();
        let mut answers = Vec::new();
        while let Some(answer) = client.frame().await {
            answers.push(answer);
        }
        assert_eq!(answers.len(), 200, "the end of its input is not its end");
        for four in answers.chunks(4) {
            assert_eq!((keys_in(&four[0]), keys_in(&four[3])), (1, 1));
            assert_eq!([&four[1][..], &four[2]], [FAILURE, EXTENSION_FAILURE]);
        }
    });
}

#[test]
fn frames_that_are_none_end_one_connection_with_a_failure_and_harm_no_other() {
    let home = SshHome::with_key();
    local(async {
        let Pair { bridge, helper } = ssh_pair(home.dialer(), |_| {}).await;
        let honest = ssh_client(&helper);
        assert_eq!(lists(&honest).await, 1);
        for bytes in [&b"\0\0\0\0"[..], b"\0\x04\0\x01\x0d", b"\xff\xff\xff\xff", b"GET / HTTP/1.1"]
        {
            let client = ssh_client(&helper);
            assert_eq!(client.request(bytes).await.unwrap(), FAILURE, "{bytes:?}");
            assert_eq!(client.frame().await, None, "{bytes:?}");
        }
        let cut = ssh_client(&helper);
        assert!(cut.stream.write_all(b"\0\0\x01\0\x0d\0\0\0\x33cut").await);
        cut.stream.finish();
        assert_eq!(cut.frame().await.unwrap(), FAILURE);
        assert_eq!(cut.frame().await, None);
        // The largest request that there can be gets the agent's own answer.
        let key = vec![1; 300];
        let data = vec![2; 256 * 1024 - 1 - 4 - key.len() - 4 - 4];
        let string = |bytes: &[u8]| [&length(bytes)[..], bytes].concat();
        let body = [string(&key), string(&data), vec![0; 4]].concat();
        let largest = [&length(&[&[13], &body[..]].concat())[..], &[13], &body].concat();
        assert_eq!(honest.request(&largest).await.unwrap(), FAILURE);
        assert_eq!(lists(&honest).await, 1);
        drop((honest, cut));
        idle(&bridge).await;
    });
}

fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap().to_be_bytes()
}

#[test]
fn without_an_agent_ssh_add_says_so_and_with_one_it_works_again() {
    let home = SshHome::new();
    let gpg = Home::new();
    local(async {
        let Pair { bridge: _bridge, helper } = pair(&gpg, |settings| {
            settings.lanes = Lane::ALL.to_vec();
            settings.ssh = Some(home.dialer());
        })
        .await;
        helper.listen_ssh(&home.file("target.sock"));
        let listed = run(&home, "ssh-add", &["-l"]).await;
        assert_eq!(complaint(&listed), "error fetching identities: agent refused operation\n");
        assert_eq!(listed.status.code(), Some(1));
        let client = helper.client();
        assert!(client.line().await.unwrap().starts_with("OK "), "the gpg lane goes on");
        home.start();
        home.make_key("key");
        home.add(&["key"]);
        let listed = run(&home, "ssh-add", &["-l"]).await;
        assert_eq!(String::from_utf8(listed.stdout).unwrap(), home.keys());
    });
}

#[test]
fn an_agent_that_dies_in_mid_request_is_a_failure_and_the_next_client_works() {
    let home = SshHome::with_key();
    local(async {
        let Pair { bridge, helper } = ssh_pair(home.dialer(), |_| {}).await;
        let (waiting, idle_client) = (ssh_client(&helper), ssh_client(&helper));
        assert_eq!(lists(&waiting).await + lists(&idle_client).await, 2);
        home.signal_agent(Signal::STOP);
        let before = bridge.stats().ssh.bytes_in;
        assert!(waiting.stream.write_all(&Request::LIST).await);
        while bridge.stats().ssh.bytes_in == before {
            tokio::task::yield_now().await;
        }
        home.kill();
        assert_eq!(waiting.frame().await.unwrap(), FAILURE);
        assert_eq!(waiting.frame().await, None);
        assert_eq!(idle_client.frame().await, None, "no answer without a request");
        home.start();
        assert_eq!(lists(&ssh_client(&helper)).await, 0, "a new agent has no keys");
    });
}

#[test]
fn a_client_that_hangs_up_ends_its_connection_to_the_agent_at_once() {
    use tokio::io::AsyncReadExt;
    let home = SshHome::new();
    local(async {
        // Stands in for an agent that thinks for ever, since a real one answers a list.
        let agent = tokio::net::UnixListener::bind(home.socket()).unwrap();
        let Pair { bridge, helper } = ssh_pair(home.dialer(), |_| {}).await;
        let client = ssh_client(&helper);
        assert!(client.stream.write_all(&Request::LIST).await);
        let (mut connection, _) = agent.accept().await.unwrap();
        let mut request = [0; 5];
        connection.read_exact(&mut request).await.unwrap();
        assert_eq!(request, Request::LIST);
        drop(client);
        assert_eq!(connection.read(&mut request).await.unwrap(), 0);
        idle(&bridge).await;
    });
}

#[test]
fn a_client_that_reads_nothing_holds_up_no_other() {
    let home = SshHome::with_key();
    local(async {
        let Pair { bridge: _bridge, helper } = ssh_pair(home.dialer(), |_| {}).await;
        let deaf = ssh_client(&helper);
        let asking = async { while deaf.stream.write_all(&Request::LIST.repeat(100)).await {} };
        let other = async {
            let client = ssh_client(&helper);
            for _ in 0..100 {
                assert_eq!(lists(&client).await, 1);
            }
        };
        tokio::select! {
            () = asking => panic!("the stream of a client that reads nothing was closed"),
            () = other => {}
        }
    });
}

#[test]
fn past_the_cap_a_client_is_refused_and_the_others_go_on() {
    let home = SshHome::with_key();
    local(async {
        let Pair { bridge, helper } =
            ssh_pair(home.dialer(), |settings| settings.max_sessions = 2).await;
        let (first, second) = (ssh_client(&helper), ssh_client(&helper));
        assert_eq!(lists(&first).await + lists(&second).await, 2);
        let third = ssh_client(&helper);
        assert_eq!(third.request(&Request::LIST).await.unwrap(), FAILURE);
        assert_eq!(third.request(BIND).await.unwrap(), FAILURE);
        third.stream.finish();
        assert_eq!(third.frame().await, None);
        assert_eq!(lists(&first).await, 1);
        drop((first, second, third));
        idle(&bridge).await;
        assert_eq!(lists(&ssh_client(&helper)).await, 1);
    });
}

#[test]
fn a_lane_without_a_dialer_refuses() {
    let gpg = Home::new();
    local(async {
        let Pair { bridge: _bridge, helper } =
            pair(&gpg, |settings| settings.lanes = Lane::ALL.to_vec()).await;
        let client = ssh_client(&helper);
        assert_eq!(client.request(&Request::LIST).await.unwrap(), FAILURE);
    });
}

/// Starts a signature that waits until something is written to the pipe; the program that asks says
/// so by the file `asked`.
fn begin_to_sign(home: &SshHome, public_key: &str) -> tokio::task::JoinHandle<Output> {
    std::fs::write(home.file("text"), "a commit").unwrap();
    let arguments = ["-Y", "sign", "-f", public_key, "-n", "git", "text"];
    tokio::task::spawn_local(output_beside(in_target(home, "ssh-keygen", &arguments), b""))
}

async fn is_asked(home: &SshHome) {
    let asked = home.file("asked");
    until("somebody is asked", || asked.exists()).await;
}

fn ask_script(home: &SshHome) -> String {
    let pipe = home.make_fifo("pipe");
    format!(": >{}; read answer <{}", home.file("asked").display(), pipe.display())
}

/// gpg-agent speaks with many clients at once also while a dialog waits.
#[test]
fn two_hundred_clients_are_not_delayed_by_a_signature_that_waits_for_a_person() {
    let home = SshHome::new();
    let gpg = Home::with_key("confirm@test");
    let ask = ask_script(&home);
    let pinentry = home.script(
        "pinentry",
        &format!(
            "echo OK\nwhile read -r verb rest; do\n  case $verb in CONFIRM) {ask};; esac\n  echo OK\n\
             done"
        ),
    );
    let config = format!("enable-ssh-support\npinentry-program {}\n", pinentry.display());
    std::fs::write(gpg.file("gpg-agent.conf"), config).unwrap();
    let control = format!("{} 0 confirm\n", gpg.keygrip_of("confirm@test"));
    std::fs::write(gpg.file("sshcontrol"), control).unwrap();
    gpg.end_agents();
    gpg.launch_agent();
    let mut list = home.command("ssh-add");
    list.arg("-L").env("SSH_AUTH_SOCK", gpg.dirs("agent-ssh-socket"));
    std::fs::write(home.file("key.pub"), list.output().unwrap().stdout).unwrap();
    local(async {
        let mut places = home.places();
        places.gnupg = Some(gnupg(&gpg));
        let Pair { bridge, helper } = ssh_pair(SshDialer::new(places), |_| {}).await;
        helper.listen_ssh(&home.file("target.sock"));
        let signature = begin_to_sign(&home, "key.pub");
        is_asked(&home).await;
        let clients: Vec<Client> = (0..200).map(|_| ssh_client(&helper)).collect();
        for client in &clients {
            assert!(client.stream.write_all(&Request::LIST).await);
        }
        for client in &clients {
            assert_eq!(keys_in(&client.frame().await.unwrap()), 1);
        }
        assert!(!signature.is_finished(), "the person is still being asked");
        assert_eq!(bridge.stats().ssh.open, 201);
        answer(&home.file("pipe")).await;
        let signed = signature.await.unwrap();
        assert!(signed.status.success(), "{signed:?}");
        verify(&home, "key.pub");
    });
}

/// OpenSSH's agent does nothing else while its dialog waits, at home as in a target. Only its own clients
/// wait for it: not those of the other lane, and not those of another agent.
#[test]
fn while_openssh_waits_for_a_person_only_its_own_clients_wait() {
    let home = SshHome::new();
    let another = SshHome::with_key();
    let gpg = Home::new();
    let ask = ask_script(&home);
    home.script("askpass", &ask);
    home.start();
    home.make_key("key");
    home.add(&["-c", "key"]);
    local(async {
        let Pair { bridge, helper } = pair(&gpg, |settings| {
            settings.lanes = Lane::ALL.to_vec();
            settings.ssh = Some(home.dialer());
        })
        .await;
        helper.listen_ssh(&home.file("target.sock"));
        std::fs::rename(home.file("key"), home.file("away")).unwrap();
        let signature = begin_to_sign(&home, "key.pub");
        is_asked(&home).await;
        let patient: Vec<Client> = (0..100).map(|_| ssh_client(&helper)).collect();
        let before = bridge.stats().ssh.bytes_in;
        for client in &patient {
            assert!(client.stream.write_all(&Request::LIST).await);
        }
        while bridge.stats().ssh.bytes_in < before + 100 * Request::LIST.len() as u64 {
            tokio::task::yield_now().await;
        }
        let other = helper.client();
        assert!(other.line().await.unwrap().starts_with("OK "));
        assert_eq!(other.ask("NOP").await, ["OK"]);
        bridge.set_auth_sock(&another.socket());
        let clients: Vec<Client> = (0..100).map(|_| ssh_client(&helper)).collect();
        for client in &clients {
            assert_eq!(lists(client).await, 1);
        }
        assert!(!signature.is_finished(), "the person is still being asked");
        for client in &patient {
            assert!(client.take_frame().is_none(), "nobody but the agent lists its keys");
        }
        answer(&home.file("pipe")).await;
        for client in &patient {
            assert_eq!(keys_in(&client.frame().await.unwrap()), 1);
        }
        assert!(signature.await.unwrap().status.success());
        verify(&home, "key.pub");
    });
}

/// OpenSSH's agent asks also for clients that are gone, one after the other.
#[test]
fn a_target_that_hangs_up_and_asks_again_lines_up_no_more_than_four_dialogs() {
    let home = SshHome::new();
    let (asked, pipe) = (home.file("asked"), home.make_fifo("pipe"));
    let ask = format!("echo asked >>{}; read answer <{}; exit 1", asked.display(), pipe.display());
    home.script("askpass", &ask);
    home.start();
    home.make_key("key");
    home.add(&["-q", "-c", "key"]);
    local(async {
        let Pair { bridge, helper } = ssh_pair(home.dialer(), |_| {}).await;
        let questions = || std::fs::read_to_string(&asked).unwrap_or_default().lines().count();
        for _ in 0..20 {
            let client = ssh_client(&helper);
            let before = bridge.stats().ssh.bytes_in;
            assert!(client.stream.write_all(&sign(&blob(&home, "key"))).await);
            until("the request is there", || bridge.stats().ssh.bytes_in > before).await;
            drop(client);
        }
        idle(&bridge).await;
        for count in 1..=4 {
            until("a person is asked", || questions() == count).await;
            answer(&pipe).await;
        }
        // The agent answers others only when nobody is asked any more.
        assert_eq!(lists(&ssh_client(&helper)).await, 1);
        assert_eq!(questions(), 4);
    });
}

/// The person says yes.
async fn answer(pipe: &Path) {
    tokio::fs::write(pipe, "yes\n").await.unwrap();
}
