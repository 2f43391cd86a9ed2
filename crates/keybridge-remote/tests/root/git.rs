//! git in the target, set up to sign with a key at home.

use std::path::Path;
use std::process::Output;

use crate::lab::{self, Helper, Home, Setup, SshHome, User, run};
use keybridge_proto::report::Ready;

const TOKEN: &str = "0123456789abcdef";

/// Settings that forbid what the bridge sets, and end without a line's end.
const SETTINGS: &[u8] = b"# mine\n[user]\n\tname = Dev\n\temail = dev@example.org\n\
    \tsigningKey = other\n[commit]\n\tgpgSign = false\n[gpg]\n\tformat = x509\n[alias]\n\tst = status";

/// Runs git in a repository of the user's.
async fn git(user: &User, arguments: &[&str]) -> Output {
    let repository = user.elsewhere("repository").display().to_string();
    user.run("git", &[&["-C", &repository], arguments].concat()).await
}

async fn done(user: &User, arguments: &[&str]) -> String {
    let output = git(user, arguments).await;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A user with settings and a repository.
async fn user() -> User {
    let user = User::new();
    std::fs::write(user.file(".gitconfig"), SETTINGS).unwrap();
    std::fs::create_dir(user.elsewhere("repository")).unwrap();
    done(&user, &["init", "-q"]).await;
    user
}

/// A commit and a tag, as people make them.
async fn commit(user: &User) {
    done(user, &["commit", "-q", "--allow-empty", "-m", "one"]).await;
    done(user, &["tag", "-m", "two", "-f", "v1"]).await;
}

fn settings(user: &User) -> Vec<u8> {
    std::fs::read(user.file(".gitconfig")).unwrap()
}

fn with_ssh_key(user: &User, agent: &SshHome) -> Setup {
    let key = format!("ssh={}", agent.public_key("key").trim());
    user.helper("ssh", &agent.socket()).arg("--git").arg(key)
}

/// Checks the last commit and its tag against a key.
async fn verify(user: &User, agent: &SshHome) {
    let signers = user.elsewhere("signers");
    std::fs::write(&signers, format!("dev@example.org {}", agent.public_key("key"))).unwrap();
    let allowed = format!("gpg.ssh.allowedSignersFile={}", signers.display());
    done(user, &["-c", &allowed, "verify-commit", "HEAD"]).await;
    done(user, &["-c", &allowed, "verify-tag", "v1"]).await;
}

#[test]
fn a_plain_commit_is_signed_with_the_ssh_key_at_home() {
    run(async {
        let (user, agent) = (user().await, SshHome::with_key());
        let before = user.content();
        let (helper, ready) = with_ssh_key(&user, &agent).ready().await;
        assert_eq!(ready.warnings, Vec::<String>::new());
        assert!(settings(&user).starts_with(SETTINGS));
        commit(&user).await;
        verify(&user, &agent).await;
        // The user's other agent has no such key, and is the one that is asked.
        let empty = SshHome::started();
        let repository = user.elsewhere("repository").display().to_string();
        let words = ["-C", &repository, "commit", "-q", "--allow-empty", "-m", "three"];
        let other = [("SSH_AUTH_SOCK", empty.socket())];
        let other: Vec<(&str, &Path)> =
            other.iter().map(|(name, at)| (*name, at.as_path())).collect();
        let refused = user.run_with("git", &words, &other).await;
        assert!(!refused.status.success(), "{refused:?}");
        assert!(helper.stop().await.success());
        assert_eq!(user.content(), before);
    });
}

/// A helper that has a key of a GnuPG home, and its fingerprint.
async fn with_gpg_key(user: &User, host: &Home) -> (Helper, Ready) {
    let listed = host.gpg(&["--list-keys", "--with-colons"]).await.stdout;
    let listed = String::from_utf8(listed).unwrap();
    let fingerprint = listed.lines().find_map(|line| line.strip_prefix("fpr:::::::::")).unwrap();
    let key = format!("gpg={}", fingerprint.trim_end_matches(':'));
    let setup = user.helper_with("gpg", &host.extra_socket(), Path::new("/nonexistent"));
    let mut helper = setup.arg("--git").arg(key).spawn().await;
    helper.send_keys(b"", &host.gpg(&["--export"]).await.stdout).await;
    let ready = helper.ready().await;
    (helper, ready)
}

#[test]
fn a_plain_commit_is_signed_with_the_openpgp_key_at_home() {
    run(async {
        let host = Home::with_key("Dev <dev@example.org>").await;
        host.start_agent().await;
        let user = user().await;
        let (helper, ready) = with_gpg_key(&user, &host).await;
        assert_eq!(ready.warnings, Vec::<String>::new());
        commit(&user).await;
        done(&user, &["verify-commit", "HEAD"]).await;
        done(&user, &["verify-tag", "v1"]).await;
        assert!(helper.stop().await.success());
        assert_eq!(settings(&user), SETTINGS);
        let left = std::fs::read_dir(user.file(".gnupg")).unwrap();
        let names = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let ours: Vec<_> = names.filter(|name| name.contains("keybridge")).collect();
        // The record of imported keys stays with the keys.
        assert_eq!(ours, [".keybridge-imported"]);
    });
}

#[test]
fn what_the_user_sets_meanwhile_stays() {
    run(async {
        let (user, agent) = (user().await, SshHome::with_key());
        let (helper, _) = with_ssh_key(&user, &agent).ready().await;
        for value in ["user.own", "commit.own", "gpg.own", "tag.own", "include.path"] {
            done(&user, &["config", "--global", value, "mine"]).await;
        }
        done(&user, &["config", "--global", "--unset", "alias.st"]).await;
        commit(&user).await;
        assert!(helper.stop().await.success());
        let left = String::from_utf8(settings(&user)).unwrap();
        assert!(!left.contains("keybridge") && !left.contains("includeIf"), "{left}");
        for value in ["user.own", "commit.own", "gpg.own", "tag.own", "include.path"] {
            assert_eq!(done(&user, &["config", "--global", value]).await, "mine\n");
        }
    });
}

#[test]
fn the_settings_that_git_reads_are_the_ones_that_are_edited() {
    run(async {
        let (user, agent) = (User::new(), SshHome::with_key());
        let (xdg, named) = (user.elsewhere("xdg/git/config"), user.elsewhere("named"));
        std::fs::create_dir_all(xdg.parent().unwrap()).unwrap();
        std::fs::write(&xdg, "[a]\n\tb = c").unwrap();
        let folder = user.elsewhere("xdg");
        let (helper, _) = with_ssh_key(&user, &agent)
            .env("XDG_CONFIG_HOME", Some(folder.as_os_str()))
            .ready()
            .await;
        assert!(std::fs::read_to_string(&xdg).unwrap().contains("includeIf"));
        assert!(!user.file(".gitconfig").exists());
        assert!(helper.stop().await.success());
        assert_eq!(std::fs::read(&xdg).unwrap(), b"[a]\n\tb = c");

        let (helper, _) = with_ssh_key(&user, &agent)
            .env("GIT_CONFIG_GLOBAL", Some(named.as_os_str()))
            .ready()
            .await;
        assert!(named.exists() && !user.file(".gitconfig").exists());
        assert!(helper.stop().await.success());
        assert!(!named.exists());

        let (helper, _) = with_ssh_key(&user, &agent).ready().await;
        assert!(user.file(".gitconfig").exists());
        assert!(helper.stop().await.success());
        assert!(user.content().is_empty());
    });
}

#[test]
fn git_that_cannot_be_set_up_is_a_warning() {
    run(async {
        let (user, agent) = (User::new(), SshHome::with_key());
        let warning = async |setup: Setup| {
            let (helper, ready) = setup.ready().await;
            assert!(helper.stop().await.success());
            assert_eq!(ready.warnings.len(), 1, "{ready:?}");
            assert!(ready.warnings[0].starts_with("git is not set up to sign: "), "{ready:?}");
            ready.warnings[0].clone()
        };
        let missing = warning(with_ssh_key(&user, &agent).without_programs()).await;
        assert!(missing.ends_with("there is no git on the PATH of the target"), "{missing}");
        let nowhere = Path::new("/dev/null").as_os_str();
        let setup = with_ssh_key(&user, &agent).env("GIT_CONFIG_GLOBAL", Some(nowhere));
        let not_a_file = warning(setup).await;
        assert!(not_a_file.ends_with("/dev/null is not a regular file"), "{not_a_file}");
        assert!(user.content().is_empty());

        // The lane that it needs is not there.
        let agent = lab::agreeable();
        std::fs::write(user.file(".ssh"), "a file").unwrap();
        let setup = user.helper_with("gpg,ssh", &agent.path(), &agent.path());
        let (helper, ready) = setup.arg("--git=ssh=ssh-ed25519 AAAA").ready().await;
        assert_eq!(ready.warnings[1], "git is not set up to sign: ssh is not bridged", "{ready:?}");
        assert!(helper.stop().await.success());
    });
}

#[test]
fn the_next_helper_and_undo_take_away_what_an_older_one_set_up() {
    run(async {
        let (user, agent) = (user().await, SshHome::with_key());
        let before = user.content();
        let named = user.elsewhere("named");
        let signing = || {
            let setup = with_ssh_key(&user, &agent).of_bridge(TOKEN).outliving(600);
            setup.env("GIT_CONFIG_GLOBAL", Some(named.as_os_str()))
        };
        let (mut older, _) = signing().ready().await;
        assert!(named.exists());
        // One that has git sign by other settings, one that doesn't, one that is killed.
        let setup = with_ssh_key(&user, &agent).of_bridge(TOKEN).outliving(600);
        let (mut newer, _) = setup.ready().await;
        assert!(older.child.wait().await.unwrap().success());
        assert!(!named.exists());
        commit(&user).await;
        let setup = user.helper("ssh", &agent.socket()).of_bridge(TOKEN);
        let (last, _) = setup.ready().await;
        assert!(newer.child.wait().await.unwrap().success());
        assert_eq!(settings(&user), SETTINGS);
        assert!(last.stop().await.success());
        assert_eq!(user.content(), before);

        let (helper, _) = signing().ready().await;
        helper.kill().await;
        assert!(named.exists());
        user.undo(&[]).await;
        assert!(!named.exists());
        assert_eq!(user.content(), before);
    });
}
