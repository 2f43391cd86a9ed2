//! The entries that git runs, with the real helper behind them and a host that gives one answer.

use std::process::Output;

use keybridge_lab::text;
use keybridge_proto::git::{Answer, Format, MAX_FRAME};

use crate::lab::{GitHome, OBJECT, run};

/// The last word of each line that a coding agent has to follow.
const STOP: &str = "stop and tell the user, do not commit unsigned";

fn not_lent() -> Answer {
    Answer::NotLent("KEY isn't lent for signing".to_owned())
}

/// The lines of the entry itself.
fn said(output: &Output) -> Vec<String> {
    let all = text(&output.stderr);
    let lines = all.lines().filter_map(|line| line.strip_prefix("keybridge: "));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_host_gets_the_object_and_git_gets_the_signature() {
    run(async {
        let home = GitHome::new();
        let answer =
            Answer::Signed { status: "[GNUPG:] x\n".into(), signature: b"signature".into() };
        let (helper, _) = home.helper().answering(answer).ready().await;
        for signed in [home.sign().await, home.sign_in_sandbox().await] {
            assert!(signed.status.success(), "{signed:?}");
            let written = (&signed.stdout[..], &signed.stderr[..]);
            assert_eq!(written, (&b"signature"[..], &b"[GNUPG:] x\n"[..]));
        }
        for request in helper.git_requests() {
            assert_eq!((request.format, &request.key[..]), (Format::Openpgp, &b"KEY"[..]));
            assert_eq!(request.object, OBJECT);
        }
        assert_eq!(helper.git_requests().len(), 2);
        assert!(helper.stop().await.success());
    });
}

#[test]
fn without_gpg_in_the_target_a_line_says_why_the_host_does_not_sign() {
    run(async {
        let home = GitHome::new();
        let (helper, _) = home.helper().answering(not_lent()).ready().await;
        let line = format!(
            "the host doesn't sign this: KEY isn't lent for signing, and there is no gpg in this \
             target; {STOP}"
        );
        for failed in [home.sign().await, home.sign_in_sandbox().await] {
            assert_eq!((failed.status.code(), said(&failed)), (Some(127), vec![line.clone()]));
            assert!(failed.stdout.is_empty());
        }
        assert!(helper.stop().await.success());
    });
}

#[test]
fn when_gpg_in_the_target_fails_too_a_line_says_why_the_host_does_not_sign() {
    run(async {
        let home = GitHome::new();
        home.program("gpg", "echo 'gpg: no agent' >&2; exit 2");
        home.program("ssh-keygen", "echo 'no key' >&2; exit 3");
        let (helper, _) = home.helper().answering(not_lent()).ready().await;
        let line = format!("the host doesn't sign this: KEY isn't lent for signing; {STOP}");
        for failed in [home.sign().await, home.sign_in_sandbox().await] {
            assert_eq!((failed.status.code(), said(&failed)), (Some(2), vec![line.clone()]));
            assert!(text(&failed.stderr).starts_with("gpg: no agent\n"), "{failed:?}");
        }
        let (key, object) = (home.at("key.pub"), home.at("object"));
        std::fs::write(&key, PUBLIC_KEY).unwrap();
        std::fs::write(&object, OBJECT).unwrap();
        let (key, object) = (key.display().to_string(), object.display().to_string());
        let words = ["-Y", "sign", "-n", "git", "-f", &key, &object];
        let entry = home.entry_in_sandbox(".keybridge-ssh-keygen", &words);
        let failed = keybridge_lab::output_beside(entry, b"").await;
        assert_eq!((failed.status.code(), said(&failed)), (Some(3), vec![line]));
        // One that signs has nothing to explain.
        home.program("gpg", "/bin/cat; echo 'own status' >&2");
        for signed in [home.sign().await, home.sign_in_sandbox().await] {
            assert!(signed.status.success(), "{signed:?}");
            assert_eq!((&signed.stdout[..], &signed.stderr[..]), (OBJECT, &b"own status\n"[..]));
        }
        assert!(helper.stop().await.success());
    });
}

#[test]
fn without_a_bridge_a_line_says_so_only_where_there_is_no_gpg() {
    run(async {
        let home = GitHome::new();
        let (helper, _) = home.helper().ready().await;
        helper.kill().await;
        let failed = home.sign().await;
        let line = format!("there is no bridge, and there is no gpg in this target; {STOP}");
        assert_eq!((failed.status.code(), said(&failed)), (Some(127), vec![line]));
        // Nor is there anything that a bridge would do.
        let list = home.entry(".keybridge-gpg", &["--list-keys"]);
        let failed = keybridge_lab::output_beside(list, b"").await;
        let line = "there is no gpg in this target".to_owned();
        assert_eq!((failed.status.code(), said(&failed)), (Some(127), vec![line]));
        home.program("gpg", "/bin/cat; echo 'own status' >&2");
        let signed = home.sign().await;
        assert!(signed.status.success(), "{signed:?}");
        assert_eq!((&signed.stdout[..], &signed.stderr[..]), (OBJECT, &b"own status\n"[..]));
        home.program("gpg", "exit 9");
        let failed = home.sign().await;
        assert_eq!((failed.status.code(), said(&failed)), (Some(9), vec![]));
    });
}

#[test]
fn in_a_sandbox_without_a_bridge_a_line_says_what_to_do() {
    run(async {
        let home = GitHome::new();
        home.program("gpg", "exit 2");
        let (helper, _) = home.helper().ready().await;
        helper.kill().await;
        let line = format!(
            "no bridge serves this sandbox: have the user run `keybridge up` outside of it; {STOP}"
        );
        for mark in ["SANDBOX_RUNTIME", "CODEX_SANDBOX_NETWORK_DISABLED"] {
            let failed = home.sign_with(&[(mark, "1")]).await;
            assert_eq!((failed.status.code(), said(&failed)), (Some(2), vec![line.clone()]));
        }
        // Where the sandbox itself forbids the socket, nothing has to name it.
        let failed = home.sign_in_sandbox().await;
        assert_eq!((failed.status.code(), said(&failed)), (Some(2), vec![line.clone()]));
        std::fs::remove_file(home.at("bin/gpg")).unwrap();
        let missing = "there is no gpg in this target".to_owned();
        assert_eq!(said(&home.sign_in_sandbox().await), [line, missing]);
    });
}

#[test]
fn entries_and_scripts_do_not_run_each_other_for_ever() {
    run(async {
        let home = GitHome::new();
        let (helper, _) = home.helper().answering(not_lent()).ready().await;
        let entry = home.file(".keybridge-gpg");
        home.program("gpg", &format!("echo again >&2; exec {} \"$@\"", entry.display()));
        let failed = home.sign().await;
        assert_eq!(failed.status.code(), Some(1));
        let all = text(&failed.stderr);
        assert_eq!(all.lines().filter(|line| *line == "again").count(), 2, "{all}");
        let line = "and gpg in this target only runs keybridge again; ";
        assert!(said(&failed)[0].contains(line), "{all}");
        assert!(helper.stop().await.success());
    });
}

#[test]
fn a_file_that_may_not_be_run_is_passed_over() {
    run(async {
        let home = GitHome::new();
        let (helper, _) = home.helper().answering(not_lent()).ready().await;
        std::fs::create_dir(home.at("bin/first")).unwrap();
        std::fs::write(home.at("bin/first/gpg"), "no program").unwrap();
        home.program("gpg", "/bin/cat");
        let path = [home.at("bin/first"), home.at("bin")].map(|place| place.display().to_string());
        let signed = home.sign_with(&[("PATH", &path.join(":"))]).await;
        assert!(signed.status.success(), "{signed:?}");
        assert_eq!(signed.stdout, OBJECT);
        assert!(helper.stop().await.success());
    });
}

#[test]
fn what_is_too_long_for_the_host_is_signed_by_gpg_in_the_target_or_a_line_says_why() {
    run(async {
        let home = GitHome::new();
        let (helper, _) = home.helper().answering(not_lent()).ready().await;
        let object = keybridge_lab::noise(3 * MAX_FRAME);
        let sign = async || {
            let entry = home.entry(".keybridge-gpg", &["-bsau", "BOT"]);
            keybridge_lab::output_beside(entry, &object).await
        };
        let why = "the host doesn't sign a commit or a tag over 1048576 bytes";
        let missing = format!("{why}, and there is no gpg in this target; {STOP}");
        assert_eq!(said(&sign().await), [missing]);
        home.program("gpg", "/bin/cat");
        let signed = sign().await;
        assert!(signed.status.success() && signed.stdout == object, "{}", text(&signed.stderr));
        home.program("gpg", "/bin/cat >/dev/null; exit 2");
        let failed = sign().await;
        assert_eq!(
            (failed.status.code(), said(&failed)),
            (Some(2), vec![format!("{why}; {STOP}")])
        );
        assert!(helper.git_requests().is_empty());
        assert!(helper.stop().await.success());
    });
}

#[test]
fn the_users_own_file_of_allowed_signers_is_never_overridden() {
    run(async {
        let home = GitHome::new();
        let own = home.home().join("own-signers");
        let setting = format!("[gpg \"ssh\"]\n\tallowedSignersFile = {}\n", own.display());
        let included = home.at("included");
        std::fs::write(&included, &setting).unwrap();
        let include = format!("[include]\n\tpath = {}\n", included.display());
        let (user, system) = (home.home().join(".gitconfig"), home.at("system"));
        let named = async || {
            let key = format!("ssh={}", PUBLIC_KEY.trim());
            let helper = home.helper_of(crate::lab::program(), &key);
            let (helper, ready) = helper.ready().await;
            assert_eq!(ready.warnings, Vec::<String>::new());
            let settings = std::fs::read_to_string(home.file(".keybridge-git")).unwrap();
            assert!(helper.stop().await.success());
            settings.contains("allowedSignersFile")
        };
        assert!(named().await);
        for (file, content) in [(&user, &setting), (&user, &include), (&system, &setting)] {
            std::fs::write(file, content).unwrap();
            assert!(!named().await, "{file:?}: {content}");
            std::fs::remove_file(file).unwrap();
        }
        // After ours, which an earlier helper has left.
        let ours = home.file(".keybridge-git-signers");
        let ours = format!("[gpg \"ssh\"]\n\tallowedSignersFile = {}\n", ours.display());
        std::fs::write(&user, &ours).unwrap();
        assert!(named().await);
        std::fs::write(&user, setting + &ours).unwrap();
        assert!(!named().await);
    });
}

/// One that nobody has the secret half of.
const PUBLIC_KEY: &str = "ssh-ed25519 \
    AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f a comment\n";
