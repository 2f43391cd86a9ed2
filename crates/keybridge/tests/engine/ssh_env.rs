//! `keybridge env` and `keybridge run`: programs that read `SSH_AUTH_SOCK` alone find the lane.

use std::process::Command;

use crate::lab::{Image, KEYBRIDGE, feed, noise, output, run, text};
use crate::ssh_lab::{SshLab, User, complaint};

#[test]
fn env_prints_what_each_shell_reads() {
    let lab = SshLab::new(Image::Bookworm, User::Dev);
    let name = lab.container().name.clone();
    let unbridged = output(&mut lab.keybridge(["env", &name]));
    assert_eq!(unbridged.status.code(), Some(3));
    assert!(complaint(&unbridged).contains("is not bridged"), "{unbridged:?}");
    assert_eq!(text(&unbridged.stdout), "", "a shell would run it");

    lab.up(&["--lanes", "ssh"]);
    let env = |shell: &[&str]| {
        let words = ["env", &name].into_iter().chain(shell.iter().copied());
        text(&run(&mut lab.keybridge(words)))
    };
    let socket = lab.socket();
    assert_eq!(env(&[]), env(&["--shell", "sh"]));
    assert_eq!(env(&["--shell", "fish"]), format!("set -gx SSH_AUTH_SOCK '{socket}'\n"));
    assert_eq!(env(&["--shell", "powershell"]), format!("$env:SSH_AUTH_SOCK = '{socket}'\n"));
    for shell in ["sh", "bash"] {
        // By way of a file, as a person would have it in a profile.
        lab.write("/tmp/profile", env(&[]));
        let listed = lab.sh(&format!("{shell} -c '. /tmp/profile && ssh-add -l'"));
        assert_eq!(listed, lab.home.keys());
        let listed = lab.sh(&format!("{shell} -c 'eval \"$(cat /tmp/profile)\"; ssh-add -l'"));
        assert_eq!(listed, lab.home.keys());
    }
}

#[test]
fn run_brings_the_bridge_up_and_its_output_and_status_are_the_commands_own() {
    let lab = SshLab::new(Image::Trixie, User::Dev);
    let name = lab.container().name.clone();
    let options = ["--lanes", "gpg,ssh", "--user", "dev"];
    let run_in = |script: &str| {
        let words = ["run", &name].into_iter().chain(options).chain(["--", "sh", "-c", script]);
        lab.keybridge(words)
    };
    assert_eq!(lab.docker.bridges().len(), 0);
    let first = output(&mut run_in("ssh-add -l; echo words >&2; exit 7"));
    assert_eq!(text(&first.stdout), lab.home.keys());
    let said = text(&first.stderr);
    assert!(said.contains(" is bridged now, and stays so (lent: 2 keys of gpg-agent "), "{said}");
    assert_eq!(said.lines().last(), Some("words"));
    assert_eq!(first.status.code(), Some(7));
    assert_eq!(lab.status()["state"], "ready");

    let second = output(&mut run_in("id -un; echo \"$SSH_AUTH_SOCK\""));
    assert_eq!(text(&second.stdout), format!("dev\n{}\n", lab.socket()));
    assert!(second.status.success());
    let input = feed(&mut run_in("wc -c"), &noise(100_000));
    assert_eq!(text(&input.stdout).trim(), "100000");
    let signed = feed(&mut run_in("gpg --batch --clear-sign"), b"words\n");
    assert!(text(&signed.stdout).contains("-----BEGIN PGP SIGNATURE-----"), "{signed:?}");
    assert_eq!(lab.docker.bridges().len(), 1);
}

/// Words that begin with a dash, spaces and signs of the shell are the command's.
#[test]
fn run_passes_words_as_they_are() {
    let lab = SshLab::new(Image::Bookworm, User::Root);
    lab.up(&["--lanes", "ssh"]);
    let words = ["printf", "%s\\n", "a b", "$HOME", "--user", "it's", "*", ""];
    assert_eq!(lab.run(words), "a b\n$HOME\n--user\nit's\n*\n\n");
}

#[test]
fn run_says_what_is_not_there() {
    let lab = SshLab::new(Image::Bookworm, User::Root);
    let gone = output(&mut lab.keybridge(["run", "kbt-none", "--", "true"]));
    assert_eq!(gone.status.code(), Some(3));
    assert!(complaint(&gone).contains("kbt-none"), "{gone:?}");
    lab.up(&["--lanes", "ssh"]);
    let unknown = output(&mut lab.run_command(["no-such-program"]));
    // As the engine has it, by its version.
    assert!(matches!(unknown.status.code(), Some(126 | 127)), "{unknown:?}");
    let said = text(&unknown.stdout) + &text(&unknown.stderr);
    assert!(said.contains("no-such-program"), "{said}");
}

/// Runs `keybridge run` at a terminal of its own.
fn at_a_terminal(lab: &SshLab, script: &str) -> Command {
    let name = &lab.container().name;
    let line = format!("{KEYBRIDGE} run {name} --user {} -- sh -c '{script}'", lab.user.name());
    let keybridge = lab.keybridge([]);
    let mut command = keybridge_lab::command("script");
    command.args(["-qec", &line, "/dev/null"]).env_clear();
    command.envs(keybridge.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("SHELL", "/bin/sh").env("TERM", "xterm");
    command
}

#[test]
fn run_at_a_terminal_gives_the_command_one() {
    let lab = SshLab::new(Image::Trixie, User::Dev);
    lab.up(&["--lanes", "ssh"]);
    let shown = output(&mut at_a_terminal(&lab, "tty; test -t 1 && ssh-add -l; exit 5"));
    let said = text(&shown.stdout);
    assert!(said.contains("/dev/pts/"), "{said}");
    assert!(said.contains(lab.home.keys().trim()), "{said}");
    assert_eq!(shown.status.code(), Some(5), "{said}");
    // Keys that are typed are the command's too.
    let typed = feed(&mut at_a_terminal(&lab, "read line; echo got:$line"), b"words\n");
    assert!(text(&typed.stdout).contains("got:words"), "{}", text(&typed.stdout));
    // Without a terminal there is none.
    let plain = lab.try_run("tty");
    assert_eq!(text(&plain.stdout), "not a tty\n");
}
