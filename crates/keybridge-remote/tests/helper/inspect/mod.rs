//! `keybridge-remote inspect` with real parts: what it finds, and that it changes nothing.

mod keys;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use keybridge_proto::inspection::{
    HomeProblemKind, Inspection, KeyStatus, Listener, PublicKey, StarterKind,
};

use crate::lab::{self, Home, Setup, agreeable, run};

const TOKEN: &str = "0123456789abcdef";

/// A fingerprint that no key has.
const NO_KEY: &str = "00000000000000000000000000000000DEADBEEF";

fn command(home: &Home, arguments: &[&str]) -> Command {
    let mut command = home.command(lab::program());
    command.arg("inspect").args(arguments);
    command
}

async fn inspect_by(command: Command) -> Inspection {
    let output: Output = keybridge_lab::output_beside(command, b"").await;
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    Inspection::parse(&output.stdout).unwrap()
}

async fn inspect(home: &Home, arguments: &[&str]) -> Inspection {
    inspect_by(command(home, arguments)).await
}

fn the_key(found: &Inspection) -> &PublicKey {
    match &found.keys[0].status {
        KeyStatus::Present(key) => key,
        other => panic!("{other:?}"),
    }
}

/// Every file below the path, with all its times but that of the last read.
fn tree(path: &Path) -> BTreeMap<PathBuf, [i64; 6]> {
    let mut found = BTreeMap::new();
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let file = std::fs::symlink_metadata(&path).unwrap();
        if file.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let size = i64::try_from(file.len()).unwrap();
        let mode = i64::from(file.mode());
        let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()];
        let [a, b, c, d] = times;
        found.insert(path, [size, mode, a, b, c, d]);
    }
    found
}

/// A folder for the PATH in which a program is this script, before all others.
fn with_script(command: &mut Command, home: &Home, program: &str, script: &str) {
    let folder = home.file("programs");
    std::fs::create_dir_all(&folder).unwrap();
    keybridge_lab::write_program(&folder.join(program), script);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{}:{path}", folder.display()));
}

#[test]
fn a_clean_home_is_named_and_nothing_is_created() {
    run(async {
        let home = Home::new();
        let socket = home.socket();
        let before = tree(home.path());
        let found = inspect(&home, &["--key", NO_KEY, "--sign", NO_KEY]).await;
        assert_eq!(tree(home.path()), before);
        let uid = std::fs::metadata(home.path()).unwrap().uid();
        assert_eq!(found.user.uid, uid);
        let gnupg = found.gnupg.as_ref().unwrap();
        assert_eq!(gnupg.program, keybridge_lab::program("gpg").display().to_string());
        assert_eq!(gnupg.version.as_deref(), Ok(keybridge_lab::gpg_version()));
        assert_eq!(gnupg.home.as_deref(), home.path().to_str());
        assert!(gnupg.has_home && gnupg.home_problem.is_none());
        let lane = &found.lanes.gpg;
        assert_eq!(lane.socket.as_deref(), socket.to_str());
        assert_eq!(lane.listener, Listener::Nobody);
        assert_eq!((lane.is_set_up, &lane.problem), (Some(false), &None));
        assert_eq!(lane.starters, []);
        assert_eq!(found.keys[0].fingerprint, NO_KEY);
        assert_eq!(found.keys[0].status, KeyStatus::Missing);
        assert!(found.signature.unwrap().result.is_err());
    });
}

#[test]
fn a_user_without_a_home_of_gnupg_gets_none() {
    run(async {
        let user = Home::new();
        let mut command = command(&user, &["--key", NO_KEY]);
        command.env_remove("GNUPGHOME").env("HOME", user.path());
        let found = inspect_by(command).await;
        let gnupg = found.gnupg.unwrap();
        assert_eq!(gnupg.home.as_deref(), user.file(".gnupg").to_str());
        assert!(!gnupg.has_home && gnupg.home_problem.is_none());
        assert_eq!(found.keys[0].status, KeyStatus::Missing);
        assert_eq!(std::fs::read_dir(user.path()).unwrap().count(), 0);
    });
}

#[test]
fn a_target_without_gpg_and_git() {
    run(async {
        let home = Home::new();
        let mut command = command(&home, &["--key", NO_KEY, "--sign", NO_KEY]);
        command.env("PATH", "/nonexistent");
        let found = inspect_by(command).await;
        assert_eq!((&found.gnupg, &found.git), (&None, &None));
        assert!(found.lanes.gpg.problem.unwrap().contains("no gpg on the PATH"));
        assert!(matches!(&found.keys[0].status, KeyStatus::Unknown(why) if why.contains("no gpg")));
        assert!(found.signature.unwrap().result.unwrap_err().contains("no gpg"));
    });
}

#[test]
fn what_is_wrong_with_the_home_has_a_command_that_mends_it() {
    run(async {
        let home = Home::new();
        let problem = |found: Inspection| found.gnupg.and_then(|gnupg| gnupg.home_problem);
        keybridge_lab::set_mode(home.path(), 0o770);
        let found = problem(inspect(&home, &[]).await).unwrap();
        assert_eq!(found.kind, HomeProblemKind::TooOpen);
        home.ok("sh", &["-c", &found.fix.unwrap()]);
        assert_eq!(problem(inspect(&home, &[]).await), None);

        let file = home.file("it's a file");
        std::fs::write(&file, "").unwrap();
        let at_file = || {
            let mut command = command(&home, &[]);
            command.env("GNUPGHOME", &file);
            command
        };
        let found = inspect_by(at_file()).await;
        assert!(found.lanes.gpg.problem.is_some());
        let found = problem(found).unwrap();
        assert_eq!(found.kind, HomeProblemKind::Other);
        home.ok("sh", &["-c", &found.fix.unwrap()]);
        assert_eq!(problem(inspect_by(at_file()).await), None);
    });
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, for a second user")]
fn a_home_of_somebody_else_is_never_to_be_given_away() {
    run(async {
        let home = Home::with_key("Somebody <else@example.org>").await;
        let problem = |found: Inspection| found.gnupg.and_then(|gnupg| gnupg.home_problem);
        chown(home.path(), Some(4321), None).unwrap();
        let found = problem(inspect(&home, &[]).await).unwrap();
        assert_eq!(found.kind, HomeProblemKind::WrongOwner);
        assert!(found.message.contains("uid 4321"), "{found:?}");
        // A superuser who was shown a command would give away what the target has named.
        assert_eq!(found.fix.as_deref(), Some("bridge as uid 4321"));
    });
}

#[test]
fn a_stale_socket_and_one_that_says_nothing() {
    run(async {
        let home = Home::new();
        let listener = UnixListener::bind(home.socket()).unwrap();
        let found = inspect(&home, &[]).await;
        let Listener::Unknown(what) = found.lanes.gpg.listener else { panic!("{found:?}") };
        // On a busy machine two clocks may have run out at once.
        let is_silent = what.contains("within") || what.contains("doesn't answer");
        assert!(is_silent, "{what}");
        drop(listener);
        // A process that another thread starts just now may hold it for a moment.
        lab::until("nobody listens", || UnixStream::connect(home.socket()).is_err()).await;
        assert_eq!(inspect(&home, &[]).await.lanes.gpg.listener, Listener::Nobody);
        assert!(home.has_socket());
    });
}

#[test]
fn an_agent_with_and_without_secret_keys_signs_and_stays() {
    run(async {
        let home = Home::with_key("Own <own@example.org>").await;
        home.start_agent().await;
        let key = home.fingerprint();
        let before = tree(home.path());
        let found = inspect(&home, &["--key", &key.to_lowercase(), "--sign", &key]).await;
        assert_eq!(tree(home.path()), before);
        let Listener::Agent { pid, program, has_secret_keys } = found.lanes.gpg.listener.clone()
        else {
            panic!("{found:?}")
        };
        assert_eq!(pid, Some(home.agent_pid()));
        assert_eq!((program.as_deref(), has_secret_keys), (Some("gpg-agent"), Some(true)));
        let signature = found.signature.clone().unwrap();
        assert_eq!(signature.fingerprint, key);
        assert!(signature.result.is_ok(), "{signature:?}");
        let public = the_key(&found);
        assert_eq!(public.ownertrust, Some(6));
        assert_eq!((public.subkeys.len(), public.user_ids.len()), (1, 1));

        let empty = Home::new();
        empty.start_agent().await;
        let found = inspect(&empty, &[]).await.lanes.gpg.listener;
        assert!(matches!(found, Listener::Agent { has_secret_keys: Some(false), .. }), "{found:?}");
    });
}

#[test]
fn a_helper_is_known_with_and_without_a_link() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        let setup = Setup::new(home.path(), &agent.path()).of_bridge(TOKEN).outliving(60);
        let (helper, _) = setup.ready().await;
        let before = tree(home.path());
        let found = inspect(&home, &[]).await.lanes.gpg;
        assert_eq!(tree(home.path()), before);
        let pid = helper.child.id();
        let version = (!lab::is_emulated()).then(|| env!("CARGO_PKG_VERSION").into());
        let expected = Listener::Helper { pid, version };
        assert_eq!(found.listener, expected);
        assert_eq!((found.is_set_up, found.starters.as_slice()), (Some(true), &[][..]));
        helper.cut();
        lab::Client::turned_away(&home.socket()).await;
        assert_eq!(inspect(&home, &[]).await.lanes.gpg.listener, expected);
        helper.kill().await;
        let found = inspect(&home, &[]).await.lanes.gpg;
        assert_eq!(found.listener, Listener::Nobody);
    });
}

#[test]
fn a_line_that_defeats_ours_is_named_with_the_command_that_removes_it() {
    run(async {
        let (home, agent) = (Home::new(), agreeable());
        std::fs::write(home.file("gpg.conf"), "agent-program /the/users/own\n").unwrap();
        let (helper, _) = Setup::new(home.path(), &agent.path()).ready().await;
        assert_eq!(inspect(&home, &[]).await.lanes.gpg.starters, []);
        let conf = std::fs::read_to_string(home.file("gpg.conf")).unwrap();
        std::fs::write(
            home.file("gpg.conf"),
            conf.clone() + "  agent-program /usr/bin/gpg-agent\n",
        )
        .unwrap();
        let found = inspect(&home, &[]).await.lanes.gpg.starters;
        assert_eq!((found.len(), found[0].kind), (1, StarterKind::GpgConf));
        assert!(found[0].name.ends_with("gpg.conf: agent-program /usr/bin/gpg-agent"), "{found:?}");
        home.ok("sh", &["-c", &found[0].fix]);
        assert_eq!(inspect(&home, &[]).await.lanes.gpg.starters, []);
        assert_eq!(inspect(&home, &[]).await.lanes.gpg.is_set_up, Some(true));
        assert!(helper.stop().await.success());
    });
}

#[test]
fn gits_settings_come_with_their_files() {
    run(async {
        let home = Home::new();
        let (ours, with_remote) = (home.file("ours"), home.file("with-remote"));
        let settings = format!(
            "[user]\n\temail = a@example.org\n\tsigningkey = OLD\n[gpg]\n\tprogram = /bin/my gpg\n\
             [includeIf \"gitdir:/\"]\n\tpath = {}\n\
             [includeIf \"hasconfig:remote.*.url:**\"]\n\tpath = {}\n",
            ours.display(),
            with_remote.display()
        );
        std::fs::write(home.file(".gitconfig"), settings).unwrap();
        let lines = "[user]\n\tsigningkey = NEW\n[gpg]\n\tformat = openpgp\n\
                     [gpg \"ssh\"]\n\tprogram = /bin/ssh-keygen\n";
        std::fs::write(&ours, lines).unwrap();
        std::fs::write(&with_remote, "[commit]\n\tgpgsign\n").unwrap();
        let at_home = || {
            let mut command = command(&home, &[]);
            command.env("HOME", home.path());
            command
        };
        let before = tree(home.path());
        let git = inspect_by(at_home()).await.git.unwrap();
        assert_eq!(tree(home.path()), before);
        let version = keybridge_lab::text(&home.ok("git", &["--version"]).stdout);
        assert_eq!(version.trim_end(), format!("git version {}", git.version.unwrap()));
        assert_eq!(git.problem, None);
        for (setting, value, file) in [
            (git.email, "a@example.org", ".gitconfig"),
            (git.signing_key, "NEW", "ours"),
            (git.gpg_program, "/bin/my gpg", ".gitconfig"),
            (git.format, "openpgp", "ours"),
            (git.sign_commits, "true", "with-remote"),
            (git.ssh_program, "/bin/ssh-keygen", "ours"),
        ] {
            let setting = setting.expect(value);
            assert_eq!(setting.value, value);
            assert_eq!(setting.file.as_deref(), home.file(file).to_str());
        }
        // As editors and shells have it.
        let mut by_variables = at_home();
        by_variables.envs([
            ("GIT_CONFIG_COUNT", "1"),
            ("GIT_CONFIG_KEY_0", "gpg.openpgp.program"),
            ("GIT_CONFIG_VALUE_0", "/bin/other"),
        ]);
        let program = inspect_by(by_variables).await.git.unwrap().gpg_program.unwrap();
        assert_eq!((program.value.as_str(), program.file), ("/bin/other", None));
        let mut elsewhere = at_home();
        let other = home.file("other");
        std::fs::write(&other, "[gpg]\n\tprogram = /bin/third\n").unwrap();
        elsewhere.env("GIT_CONFIG_GLOBAL", &other);
        let git = inspect_by(elsewhere).await.git.unwrap();
        let program = git.gpg_program.unwrap();
        assert_eq!(program.file.as_deref(), other.to_str());
        assert_eq!((program.value.as_str(), git.signing_key), ("/bin/third", None));
        std::fs::write(home.file(".gitconfig"), "[user\n").unwrap();
        let git = inspect_by(at_home()).await.git.unwrap();
        assert!(git.problem.unwrap().contains("bad config"));
    });
}

#[test]
fn programs_that_hang_or_print_nonsense_are_named() {
    run(async {
        let home = Home::with_key("Own <own@example.org>").await;
        let key = home.fingerprint();
        let nonsense = "#!/bin/sh\nprintf 'hello \\033[31m\\377'\n";
        let endless = "#!/bin/sh\nexec yes \"$(printf 'pub:\\033[31m')\"\n";
        for (script, gpg, git) in [
            ("#!/bin/sh\nexec sleep 600\n", "no answer within", "no answer within"),
            (endless, "printed more than 65536 bytes", "printed more than 65536 bytes"),
            (nonsense, "got: hello \\u{1b}[31m\\xff", "got: hello \\u{1b}[31m\\xff"),
            ("#!/bin/sh\nexit 3\n", "exit status: 3", "expected git's version, got: "),
        ] {
            for (program, expected) in [("gpg", gpg), ("git", git)] {
                let mut command = command(&home, &["--key", &key, "--sign", &key]);
                with_script(&mut command, &home, program, script);
                let found = inspect_by(command).await;
                let version = match program {
                    "gpg" => found.gnupg.unwrap().version,
                    _ => found.git.unwrap().version,
                };
                let reason = version.unwrap_err();
                assert!(reason.contains(expected), "{program}: {reason}");
                std::fs::remove_dir_all(home.file("programs")).unwrap();
            }
        }
        let mut old = command(&home, &[]);
        with_script(&mut old, &home, "gpg", "#!/bin/sh\necho 'gpg (GnuPG) 2.0.22'\n");
        let found = inspect_by(old).await;
        assert_eq!(found.gnupg.unwrap().version.as_deref(), Ok("2.0.22"));
        let problem = found.lanes.gpg.problem.unwrap();
        assert!(problem.contains("GnuPG 2.0.22 is too old"), "{problem}");
        // One that works until it has to list and to sign.
        let gpg = keybridge_lab::program("gpg").display().to_string();
        let script = format!(
            "#!/bin/sh\ncase \"$*\" in *--version*) exec {gpg} \"$@\";; esac\nexec sleep 600\n"
        );
        let mut command = command(&home, &["--key", &key, "--sign", &key]);
        with_script(&mut command, &home, "gpg", &script);
        let found = inspect_by(command).await;
        assert!(
            matches!(&found.keys[0].status, KeyStatus::Unknown(why) if why.contains("no answer")),
            "{found:?}"
        );
        assert!(found.signature.unwrap().result.unwrap_err().contains("didn't sign within"));
    });
}

#[test]
fn pipes_in_the_place_of_files_are_named() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    run(async {
        let home = Home::with_key("Own <own@example.org>").await;
        let key = home.fingerprint();
        let pipe = |name: &str| {
            mknodat(CWD, home.file(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        };
        for name in ["gpg.conf", "common.conf", ".keybridge-lock", "included"] {
            pipe(name);
        }
        let settings = format!("[include]\n\tpath = {}\n", home.file("included").display());
        std::fs::write(home.file(".gitconfig"), settings).unwrap();
        let mut command = command(&home, &["--key", &key]);
        command.env("HOME", home.path());
        let found = inspect_by(command).await;
        assert_eq!(found.lanes.gpg.is_set_up, None);
        assert!(matches!(found.keys[0].status, KeyStatus::Present(_)), "{found:?}");
        assert!(found.git.unwrap().problem.unwrap().contains("no answer within"));
    });
}
