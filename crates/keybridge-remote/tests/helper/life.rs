//! From the start line to the last trace: what is there while a bridge serves, and what is left.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use crate::lab::{self, Client, Home, Setup, agreeable, run, until};

const CONF: &[u8] = b"# mine\r\nagent-program /usr/bin/gpg-agent\r\nno line end";

#[test]
fn ready_says_what_is_set_up() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (helper, ready) = Setup::new(home.path(), &agent.path()).ready().await;
        let uid = std::fs::metadata(home.path()).unwrap().uid();
        assert_eq!(ready.user.as_ref().unwrap().uid, uid);
        assert!(ready.gnupg.starts_with("2."), "{ready:?}");
        assert_eq!(ready.home, home.path().display().to_string());
        assert_eq!(ready.sockets.gpg, Some(home.socket().display().to_string()));
        assert_eq!(ready.warnings, Vec::<String>::new());
        let mode = std::fs::metadata(home.socket()).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert!(helper.stop().await.success());
    });
}

#[test]
fn stop_undoes_everything() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        std::fs::write(home.file("gpg.conf"), CONF).unwrap();
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let edited = std::fs::read(home.file("gpg.conf")).unwrap();
        assert!(edited.starts_with(CONF) && edited.len() > CONF.len());
        assert!(helper.stop().await.success());
        assert_eq!(std::fs::read(home.file("gpg.conf")).unwrap(), CONF);
        assert!(!home.has_socket() && !home.file(".keybridge-lock").exists());
    });
}

#[test]
fn the_end_of_the_link_and_signals_undo_everything() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        assert!(home.has_socket() && home.file("gpg.conf").exists());
        assert!(helper.hang_up().await.success());
        assert!(!home.has_socket() && !home.file("gpg.conf").exists());

        for signal in ["TERM", "INT", "HUP"] {
            let (mut helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
            let pid = helper.pid().to_string();
            let sent = home.run("kill", &["-s", signal, &pid], b"").await;
            assert!(sent.status.success());
            assert!(helper.child.wait().await.unwrap().success(), "{signal}");
            assert!(!home.has_socket() && !home.file("gpg.conf").exists(), "{signal}");
        }
    });
}

#[test]
fn a_killed_helper_leaves_nothing_that_the_next_one_does_not_undo() {
    run(async {
        for original in [Some(CONF), Some(b"".as_slice()), None] {
            let (home, agent) = (Home::new(), agreeable());
            if let Some(original) = original {
                std::fs::write(home.file("gpg.conf"), original).unwrap();
            }
            let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
            helper.kill().await;
            assert!(home.has_socket());
            let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
            let _client = Client::greeted(&home.socket()).await;
            assert!(helper.stop().await.success());
            assert_eq!(std::fs::read(home.file("gpg.conf")).ok().as_deref(), original);
            assert!(!home.has_socket());
        }
    });
}

#[test]
fn a_client_that_waits_is_told_that_the_agent_is_gone() {
    run(async {
        let home = Home::new();
        let agent = lab::ScriptedAgent::answering(|_| None);
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let mut waiting = Client::greeted(&home.socket()).await;
        waiting.send("PKSIGN\n").await;
        let mut idle = Client::greeted(&home.socket()).await;
        until("the command is on its way", || helper.log().contains("PKSIGN (6 bytes)")).await;
        assert!(helper.stop().await.success());
        assert_eq!(waiting.line().await, "ERR 67108941 No agent running <GPG Agent>\n");
        assert_eq!(waiting.line().await, "");
        assert_eq!(idle.line().await, "");
    });
}

#[test]
fn gpg_signs_and_decrypts_with_the_keys_of_another_home() {
    run(async {
        let host = Home::with_key("Alice <alice@example.org>").await;
        host.start_agent().await;
        let home = Home::new();
        let mut helper = Setup::new(home.path(), &host.extra_socket()).spawn().await;
        let export = host.gpg(&["--export"]).await.stdout;
        let trust = host.gpg(&["--export-ownertrust"]).await.stdout;
        helper.send_keys(&trust, &export).await;
        let keys = helper.ready().await.keys.unwrap();
        assert_eq!((keys.new, keys.ownertrust), (1, 1));

        let signed = home.gpg_with_input(&["--batch", "--detach-sign"], b"text").await;
        assert!(signed.status.success(), "{signed:?}");
        std::fs::write(home.file("signature"), &signed.stdout).unwrap();
        let signature = home.file("signature").display().to_string();
        let verified = host.gpg_with_input(&["--verify", &signature, "-"], b"text").await;
        assert!(verified.status.success(), "{verified:?}");

        let encrypt = ["--batch", "--encrypt", "--recipient", "alice@example.org"];
        let encrypted = home.gpg_with_input(&encrypt, b"secret").await;
        assert!(encrypted.status.success(), "{encrypted:?}");
        let decrypted = home.gpg_with_input(&["--batch", "--decrypt"], &encrypted.stdout).await;
        assert_eq!(decrypted.stdout, b"secret", "{decrypted:?}");

        // Without the bridge gpg says so and starts nothing.
        helper.kill().await;
        let failed = home.gpg_with_input(&["--batch", "--detach-sign"], b"text").await;
        assert!(!failed.status.success());
        let words = String::from_utf8_lossy(&failed.stderr).into_owned();
        assert!(words.contains("keybridge-is-down"), "{words}");
    });
}

#[test]
fn the_file_that_gpg_reads_is_the_one_that_is_edited() {
    run(async {
        const VALID: &[u8] = b"agent-program /usr/bin/gpg-agent\nno-greeting";
        let (home, agent) = (Home::new(), agreeable());
        let version = home.gpg(&["--version"]).await.stdout;
        let version = String::from_utf8(version).unwrap();
        let version = version.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
        let minor = version.rsplit_once('.').unwrap().0;
        for name in ["gpg.conf-2", &format!("gpg.conf-{minor}"), &format!("gpg.conf-{version}")] {
            std::fs::write(home.file(name), VALID).unwrap();
            let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
            assert!(std::fs::read(home.file(name)).unwrap().len() > VALID.len(), "{name}");
            helper.kill().await;
            // gpg itself tells that it has read the block.
            let key = ["--batch", "--passphrase", "", "--quick-gen-key", "Dave"];
            let failed = home.gpg(&key).await;
            let words = String::from_utf8_lossy(&failed.stderr).into_owned();
            assert!(words.contains("keybridge-is-down"), "{name}: {words}");
            let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
            assert!(helper.stop().await.success());
            assert_eq!(std::fs::read(home.file(name)).unwrap(), VALID, "{name}");
            assert!(!home.file("gpg.conf").exists());
        }
    });
}

#[test]
fn no_data_is_in_the_log_at_trace_level() {
    run(async {
        let home = Home::new();
        let agent = lab::ScriptedAgent::answering(|line| {
            Some(match line {
                "PKDECRYPT" => "INQUIRE CIPHERTEXT\n".into(),
                "END" => "D planted-answer\nS PADDING planted-status\nOK\n".into(),
                "planted-verb" => "ERR 1 planted-error\n".into(),
                line if line.starts_with("D ") => return None,
                _ => "OK\n".into(),
            })
        });
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        let mut client = Client::greeted(&home.socket()).await;
        client.ask("SETKEYDESC planted-text").await;
        client.ask("planted-verb").await;
        client.ask("PKDECRYPT").await;
        client.send("D planted-data\n").await;
        assert_eq!(client.ask("END").await.len(), 3);
        let log = helper.log_handle();
        assert!(helper.stop().await.success());
        until("the end of the log", || log.borrow().contains("ended")).await;
        let log = log.borrow();
        assert!(log.contains("SETKEYDESC (23 bytes)") && log.contains("D (14 bytes)"), "{log}");
        assert!(!log.contains("planted"), "{log}");
        assert!(!log.contains('\u{1b}'), "{log}");
    });
}
