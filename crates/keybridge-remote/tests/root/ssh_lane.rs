//! The ssh lane with the real ssh and its agent: where the socket is, who is led there, and what is left.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Output;

use crate::lab::{self, SshClient, SshHome, User, agreeable, run};
use keybridge_lab::leave_dead_socket;
use keybridge_proto::report::FailureKind;

const CONFIG: &[u8] = b"# mine\nHost own\n  IdentityAgent /own/agent\nHost other\n  User bob";

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// Which agent ssh would ask for a host.
async fn agent_for(user: &User, host: &str, named: Option<&Path>) -> Option<String> {
    let environment = named.map(|path| ("SSH_AUTH_SOCK", path));
    let output = user.run_with("ssh", &["-G", host], environment.as_slice()).await;
    assert!(output.status.success(), "{output:?}");
    let words = String::from_utf8(output.stdout).unwrap();
    words.lines().find_map(|line| line.strip_prefix("identityagent ")).map(str::to_owned)
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn ssh_is_led_to_the_socket_and_the_users_own_settings_win() {
    run(async {
        for original in [Some(CONFIG), Some(b"".as_slice()), None] {
            let (user, agent) = (User::new(), SshHome::started());
            if let Some(original) = original {
                user.make_folder();
                std::fs::write(user.file(".ssh/config"), original).unwrap();
            }
            let before = user.content();
            let (helper, ready) = user.helper("ssh", &agent.socket()).ready().await;
            let socket = user.socket().display().to_string();
            assert_eq!(ready.sockets.ssh, Some(socket.clone()));
            assert_eq!((ready.sockets.gpg, ready.warnings), (None, vec![]));
            assert_eq!((mode(&user.socket()), mode(&user.file(".ssh"))), (0o600, 0o700));
            if original.is_none() {
                assert_eq!(mode(&user.file(".ssh/config")), 0o600);
            }
            for host in ["other", "third"] {
                assert_eq!(agent_for(&user, host, None).await, Some(socket.clone()));
                // As with ssh -A, or a person's own agent.
                let named = Path::new("/some where/agent");
                assert_eq!(agent_for(&user, host, Some(named)).await, None);
                let empty = Path::new("");
                assert_eq!(agent_for(&user, host, Some(empty)).await, Some(socket.clone()));
            }
            if original == Some(CONFIG) {
                assert_eq!(agent_for(&user, "own", None).await.as_deref(), Some("/own/agent"));
            }
            assert!(helper.stop().await.success());
            assert_eq!(user.content(), before);
        }
    });
}

#[test]
fn lines_that_are_added_meanwhile_are_not_under_ours() {
    run(async {
        let (user, agent) = (User::new(), SshHome::started());
        user.make_folder();
        std::fs::write(user.file(".ssh/config"), CONFIG).unwrap();
        let (helper, _) = user.helper("ssh", &agent.socket()).ready().await;
        let mut config = std::fs::read(user.file(".ssh/config")).unwrap();
        config.extend_from_slice(b"User carol\n");
        std::fs::write(user.file(".ssh/config"), config).unwrap();
        let named = [("SSH_AUTH_SOCK", Path::new("/named"))];
        let output = user.run_with("ssh", &["-G", "third"], &named).await;
        assert!(text(&output).lines().any(|line| line == "user carol"), "{output:?}");
        assert!(helper.stop().await.success());
        let left = std::fs::read(user.file(".ssh/config")).unwrap();
        assert_eq!(left, [CONFIG, b"\nUser carol\n"].concat());
    });
}

#[test]
fn keys_are_listed_files_signed_and_logins_made_with_the_key_at_home() {
    run(async {
        let (user, agent) = (User::new(), SshHome::with_key());
        let (helper, _) = user.helper("ssh", &agent.socket()).ready().await;
        let socket = user.socket();
        let named = [("SSH_AUTH_SOCK", socket.as_path())];
        let listed = user.run_with("ssh-add", &["-L"], &named).await;
        assert_eq!(String::from_utf8(listed.stdout).unwrap(), agent.public_key("key"));

        // Only the public half is there.
        let key = user.file("key.pub").display().to_string();
        std::fs::write(&key, agent.public_key("key")).unwrap();
        std::fs::write(user.file("text"), "text").unwrap();
        let file = user.file("text").display().to_string();
        let sign = ["-Y", "sign", "-n", "file", "-f", &key, &file];
        let signed = user.run_with("ssh-keygen", &sign, &named).await;
        assert!(signed.status.success(), "{signed:?}");
        let signature = format!("{file}.sig");
        let check = ["-Y", "check-novalidate", "-n", "file", "-s", &signature];
        let mut checking = user.command("ssh-keygen");
        checking.args(check).stdin(std::fs::File::open(&file).unwrap());
        assert!(checking.output().await.unwrap().status.success());

        // ssh finds the agent by itself.
        let login = sshd(&user, &agent.public_key("key")).await;
        let words: Vec<&str> = login.iter().map(String::as_str).collect();
        let said = user.run("ssh", &[&words[..], &["host", "echo", "logged in"]].concat()).await;
        assert_eq!(said.stdout, b"logged in\n", "{said:?}");
        assert!(helper.stop().await.success());
        let refused = user.run("ssh", &[&words[..], &["host", "true"]].concat()).await;
        assert!(text(&refused).contains("Permission denied"), "{refused:?}");
    });
}

/// Options with which ssh reaches a sshd that takes this key alone.
async fn sshd(user: &User, key: &str) -> Vec<String> {
    let host_key = user.elsewhere("host_key").display().to_string();
    let keys = user.elsewhere("authorized").display().to_string();
    let made = user.run("ssh-keygen", &["-q", "-t", "ed25519", "-N", "", "-f", &host_key]).await;
    assert!(made.status.success(), "{made:?}");
    std::fs::write(&keys, key).unwrap();
    std::fs::create_dir_all("/run/sshd").unwrap();
    let config = user.elsewhere("sshd_config").display().to_string();
    let settings = format!(
        "HostKey {host_key}\nAuthorizedKeysFile {keys}\nUsePAM no\nStrictModes no\n\
         PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
    );
    std::fs::write(&config, settings).unwrap();
    ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
        .map(str::to_owned)
        .into_iter()
        .chain(["-o".into(), format!("ProxyCommand=/usr/sbin/sshd -i -e -f {config}")])
        .collect()
}

#[test]
fn the_path_in_the_environment_is_taken_where_nothing_lives() {
    run(async {
        let (user, agent) = (User::new(), SshHome::started());
        let folder = user.elsewhere("run");
        std::fs::create_dir(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
        let named = folder.join("agent 1");
        let setup =
            || user.helper("ssh", &agent.socket()).env("SSH_AUTH_SOCK", Some(named.as_os_str()));
        for stale in [false, true] {
            if stale {
                leave_dead_socket(&named);
            }
            let (helper, ready) = setup().ready().await;
            let socket = named.display().to_string();
            assert_eq!((ready.sockets.ssh, ready.warnings), (Some(socket.clone()), vec![]));
            assert_eq!(mode(&named), 0o600);
            assert!(!user.has_socket());
            // Programs that don't have the environment come there too.
            assert_eq!(agent_for(&user, "host", None).await, Some(socket));
            SshClient::connect(&named).await;
            assert!(helper.stop().await.success());
            assert!(!named.exists() && user.content().is_empty());
        }
    });
}

#[test]
fn a_path_in_the_environment_that_cannot_be_had_is_left_alone() {
    run(async {
        let (user, agent) = (User::new(), SshHome::started());
        let theirs = SshHome::started();
        let (open, link) = (user.elsewhere("open"), user.elsewhere("link"));
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        symlink("nowhere", &link).unwrap();
        for (named, why) in [
            (theirs.socket(), "ssh-agent (pid"),
            (open.join("agent"), "can be written by others"),
            (user.elsewhere("missing/agent"), "doesn't exist"),
            (link, "is a link"),
        ] {
            let setup = user.helper("ssh", &agent.socket()).arg("--replace");
            let setup = setup.env("SSH_AUTH_SOCK", Some(named.as_os_str()));
            let (helper, ready) = setup.ready().await;
            assert_eq!(ready.sockets.ssh, Some(user.socket().display().to_string()));
            assert_eq!(ready.warnings.len(), 1, "{ready:?}");
            assert!(ready.warnings[0].contains(why), "{ready:?}");
            assert!(ready.warnings[0].contains(named.to_str().unwrap()), "{ready:?}");
            assert!(helper.stop().await.success());
            assert!(user.content().is_empty());
        }
        let mut client = SshClient::connect(&theirs.socket()).await;
        assert_eq!(client.ask(&keybridge_proto::ssh::Request::LIST).await, lab::NO_KEYS);
    });
}

#[test]
fn somebody_else_at_the_socket_is_named_and_replaced_only_if_asked() {
    run(async {
        let (user, agent, gpg) = (User::new(), SshHome::started(), agreeable());
        user.make_folder();
        let theirs = SshHome::started();
        std::fs::rename(theirs.socket(), user.socket()).unwrap();
        let (helper, ready) =
            user.helper_with("gpg,ssh", &gpg.path(), &agent.socket()).ready().await;
        assert!(ready.sockets.gpg.is_some() && ready.sockets.ssh.is_none(), "{ready:?}");
        let named = format!("ssh is not bridged: {} is in use: ", user.socket().display());
        assert!(ready.warnings[0].starts_with(&named), "{ready:?}");
        assert!(helper.stop().await.success());

        for setup in [
            user.helper("ssh", &agent.socket()),
            user.helper_with("gpg,ssh", &gpg.path(), &agent.socket()).arg("--need=ssh"),
        ] {
            let failure = setup.failure().await;
            assert_eq!(failure.kind, FailureKind::InUse, "{failure:?}");
            assert!(failure.hints.iter().any(|hint| hint.contains("--replace")), "{failure:?}");
        }
        let home: Vec<_> = user.content().into_iter().map(|(path, _)| path).collect();
        assert_eq!(home, [user.file(".ssh"), user.socket()]);

        let (helper, ready) = user.helper("ssh", &agent.socket()).arg("--replace").ready().await;
        assert_eq!(ready.sockets.ssh, Some(user.socket().display().to_string()));
        assert!(helper.stop().await.success());
    });
}

#[test]
fn a_target_without_gnupg_has_its_ssh_lane() {
    run(async {
        let (user, agent) = (User::new(), SshHome::started());
        let setup = |lanes| user.helper(lanes, &agent.socket()).without_programs();
        let (helper, ready) = setup("gpg,ssh").ready().await;
        assert_eq!(ready.sockets.ssh, Some(user.socket().display().to_string()));
        assert_eq!((&ready.sockets.gpg, ready.gnupg.as_str()), (&None, ""));
        let missing =
            "gpg is not bridged: there is no gpg on the PATH of the target; install gnupg";
        assert!(ready.warnings[0].starts_with(missing), "{ready:?}");
        // Keys that come all the same harm nobody.
        helper.send_keys(b"trust", b"export").await;
        assert!(helper.stop().await.success());
        for setup in [setup("gpg"), setup("gpg,ssh").arg("--need").arg("gpg")] {
            let failure = setup.failure().await;
            assert_eq!(failure.kind, FailureKind::NoGnupg, "{failure:?}");
        }
        assert!(user.content().is_empty());
    });
}

#[test]
fn both_lanes_failing_are_one_failure_with_both_reasons() {
    run(async {
        let user = User::new();
        std::fs::write(user.file(".ssh"), "a file").unwrap();
        let setup = user.helper("gpg,ssh", Path::new("/nonexistent")).without_programs();
        let failure = setup.failure().await;
        assert_eq!(failure.kind, FailureKind::NoGnupg, "{failure:?}");
        for part in ["gpg: there is no gpg", "ssh: ssh's folder", "is not a folder"] {
            assert!(failure.message.contains(part), "{failure:?}");
        }
    });
}

#[test]
fn a_gnupg_that_is_there_and_cannot_be_bridged_is_a_failure() {
    run(async {
        let (user, agent) = (User::new(), SshHome::started());
        std::fs::write(user.file(".gnupg"), "a file").unwrap();
        let failure = user.helper("gpg,ssh", &agent.socket()).failure().await;
        assert_eq!(failure.kind, FailureKind::NotPermitted, "{failure:?}");
        assert!(failure.message.starts_with("the GnuPG home "), "{failure:?}");
        assert!(!user.file(".ssh").exists());
    });
}

#[test]
fn settings_that_cannot_be_edited_are_a_warning() {
    run(async {
        let (user, agent) = (User::new(), SshHome::started());
        user.make_folder();
        std::fs::create_dir(user.file(".ssh/config")).unwrap();
        let (helper, ready) = user.helper("ssh", &agent.socket()).arg("--need=ssh").ready().await;
        assert!(ready.warnings[0].contains(".ssh/config is not a regular file"), "{ready:?}");
        let mut client = SshClient::connect(&user.socket()).await;
        assert_eq!(client.ask(&keybridge_proto::ssh::Request::LIST).await, lab::NO_KEYS);
        assert!(helper.stop().await.success());
    });
}
