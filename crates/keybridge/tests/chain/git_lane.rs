//! The real git in a second home, whose commits and tags the host reads and signs.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use std::mem::replace;

use keybridge_lab::SshHome;

use crate::lab::{
    Bridge, GitRound, Home, Lab, SigningKey, USER, eventually, feed, output, run, run_with, text,
    write_program,
};
use crate::second_command::agent_with;
use crate::settings::Scene;

/// A command that was changed in place.
fn take(command: &mut Command) -> Command {
    replace(command, Command::new(""))
}

/// A repository in the second home, and git there.
pub(crate) struct Work<'a> {
    lab: &'a Lab,
    pub(crate) repository: PathBuf,
}

impl<'a> Work<'a> {
    pub(crate) fn new(lab: &'a Lab) -> Self {
        let work = Self { lab, repository: lab.at("work") };
        std::fs::create_dir(&work.repository).unwrap();
        work.git(&["init", "--quiet", "--initial-branch=main"]);
        work
    }

    pub(crate) fn command(&self, home: &Home) -> Command {
        let mut git = home.command("git");
        git.env("GIT_CONFIG_NOSYSTEM", "1").current_dir(&self.repository);
        git.args(["-c", "user.name=Lab", "-c", "user.email=lab@keybridge.example"]);
        git
    }

    #[track_caller]
    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        text(&run(self.command(&self.lab.target).args(arguments)))
    }

    pub(crate) fn try_git(&self, arguments: &[&str]) -> Output {
        output(self.command(&self.lab.target).args(arguments))
    }

    #[track_caller]
    pub(crate) fn on_host(&self, arguments: &[&str]) -> String {
        text(&run(self.command(&self.lab.host).args(arguments)))
    }

    fn is_signed(&self, object: &str) -> bool {
        self.git(&["cat-file", "-p", object]).contains("\ngpgsig")
    }

    #[track_caller]
    pub(crate) fn commit(&self, message: &str, more: &[&str]) {
        self.git(&[&["commit", "--quiet", "--allow-empty", "-m", message], more].concat());
    }
}

fn entry(lab: &Lab, name: &str) -> PathBuf {
    lab.at("home/.keybridge").join(name)
}

fn git_lane(lab: &Lab) -> Bridge {
    lab.up_with(&["--lanes", "git", "--git"])
}

#[test]
fn a_bridge_of_git_alone_sets_nothing_else_up() {
    let lab = Lab::with_key();
    let settings = lab.file("home/.gitconfig", "[user]\n\tname = Somebody\n");
    let bridge = git_lane(&lab);
    let work = Work::new(&lab);
    work.commit("first\n\nJ\u{fc}rgen", &["-S"]);
    work.on_host(&["verify-commit", "HEAD"]);
    // GnuPG there has no agent and no keys of ours.
    let left: Vec<_> = std::fs::read_dir(lab.target.path()).unwrap().flatten().collect();
    let names: Vec<_> = left.iter().map(|file| file.file_name()).collect();
    assert!(!lab.target.has_socket() && !names.contains(&"gpg.conf".into()), "{names:?}");
    bridge.stop();
    assert_eq!(std::fs::read_to_string(settings).unwrap(), "[user]\n\tname = Somebody\n");
    assert!(!lab.at("home/.keybridge").exists());
}

#[test]
fn only_repositories_with_a_remote_sign_by_themselves() {
    let lab = Lab::with_key();
    let bridge = git_lane(&lab);
    let work = Work::new(&lab);
    work.commit("in a fixture", &[]);
    assert!(!work.is_signed("HEAD"));
    work.git(&["remote", "add", "origin", "https://git.example/x.git"]);
    work.commit("to be pushed", &[]);
    work.git(&["tag", "-m", "a tag", "v1"]);
    assert!(work.is_signed("HEAD"));
    work.on_host(&["verify-commit", "HEAD"]);
    work.on_host(&["verify-tag", "v1"]);
    bridge.stop();
}

#[track_caller]
fn a_round_is_signed(key: SigningKey) {
    let lab = Lab::with_key();
    let round = GitRound::new(&lab, key);
    let bridge = Bridge::start(take(round.lend(&mut lab.up_command(&[]))));
    round.is_signed_and_verified_there(|script| {
        text(&run(lab.target.command("sh").args(["-ec", script])))
    });
    bridge.stop();
}

#[test]
fn a_round_with_an_openpgp_key_is_signed() {
    a_round_is_signed(SigningKey::OpenPgp);
}

#[test]
fn a_round_with_an_ssh_key_is_signed() {
    a_round_is_signed(SigningKey::Ssh);
}

/// A lab whose user signs with a key of the ssh-agent, which the git lane lends.
fn with_ssh_key() -> (Lab, SshHome, String) {
    let (lab, agent) = (Lab::empty(), SshHome::with_key());
    let public = agent.file("key.pub");
    let settings = format!("[gpg]\n\tformat = ssh\n[user]\n\tsigningKey = {}\n", public.display());
    lab.file("home/.gitconfig", settings);
    let key = agent.public_key("key");
    (lab, agent, key)
}

#[test]
fn a_key_of_the_ssh_agent_signs_and_its_signatures_are_good_in_the_target() {
    let (lab, agent, key) = with_ssh_key();
    let mut up = lab.up_command(&["--lanes", "git", "--git"]);
    let bridge = Bridge::start(take(up.env("SSH_AUTH_SOCK", agent.socket())));
    let work = Work::new(&lab);
    let file = agent.file("key").display().to_string();
    let literal = format!("key::{}", key.trim());
    // Only the public half is there.
    lab.file("home/own.pub", &key);
    for (number, settings) in [
        vec![],
        vec!["-c".to_owned(), format!("user.signingKey={file}")],
        vec!["-c".to_owned(), format!("user.signingKey={file}.pub")],
        vec!["-c".to_owned(), format!("user.signingKey={literal}")],
        vec!["-c".to_owned(), format!("user.signingKey={}", key.trim())],
        vec!["-c".to_owned(), "user.signingKey=~/own.pub".to_owned()],
    ]
    .into_iter()
    .enumerate()
    {
        let (message, tag) = (number.to_string(), format!("v{number}"));
        let mut words: Vec<&str> = settings.iter().map(String::as_str).collect();
        words.extend(["commit", "--quiet", "--allow-empty", "-S", "-m", &message]);
        work.git(&words);
        assert_eq!(work.git(&["log", "-1", "--format=%G?"]), "G\n", "{settings:?}");
        let mut words: Vec<&str> = settings.iter().map(String::as_str).collect();
        words.extend(["tag", "-s", "-m", "a tag", &tag]);
        work.git(&words);
        work.git(&["verify-tag", &tag]);
    }
    // Nothing else has an agent there.
    assert!(!lab.at("home/.ssh/agent.sock").exists());
    bridge.stop();
}

#[test]
fn an_ssh_agent_that_is_away_while_the_bridge_comes_up_signs_once_it_is_there() {
    let (scene, agent) = (Scene::new(), SshHome::with_key());
    let public = agent.file("key.pub");
    let settings = format!("[gpg]\n\tformat = ssh\n[user]\n\tsigningKey = {}\n", public.display());
    scene.lab.file("home/.gitconfig", settings);
    let socket = scene.lab.at("agent.sock");
    let mut up = scene.lab.keybridge();
    up.args(["up", "--lanes", "git", "--git", &scene.address]).env("SSH_AUTH_SOCK", &socket);
    let up = output(up.env("XDG_RUNTIME_DIR", scene.lab.at("run")));
    let said = text(&[up.stdout, up.stderr].concat());
    assert!(up.status.success(), "{said}");
    assert!(said.contains("no ssh key signs for git until there is an agent"), "{said}");
    std::os::unix::fs::symlink(agent.socket(), &socket).unwrap();
    let work = Work::new(&scene.lab);
    work.commit("once it is there", &["-S"]);
    assert_eq!(work.git(&["log", "-1", "--format=%G?"]), "G\n");
    scene.keybridge(&["down", &scene.address]);
}

#[test]
fn a_command_that_names_the_ssh_key_does_so_on_both_sides() {
    let (lab, agent, key) = with_ssh_key();
    let command = "[gpg \"ssh\"]\n\tdefaultKeyCommand = ssh-add -L\n";
    lab.file("home/.gitconfig", format!("[gpg]\n\tformat = ssh\n{command}"));
    let mut up = lab.up_command(&["--lanes", "git", "--git"]);
    let bridge = Bridge::start(take(up.env("SSH_AUTH_SOCK", agent.socket())));
    let work = Work::new(&lab);
    work.commit("by the key that up has found", &["-S"]);
    assert_eq!(work.git(&["log", "-1", "--format=%G?"]), "G\n");
    // As a target's own settings may have it.
    let program = entry(&lab, ".keybridge-ssh-keygen");
    let own = lab.file(
        "own-settings",
        format!(
            "[gpg]\n\tformat = ssh\n[gpg \"ssh\"]\n\tprogram = {}\n\
             \tdefaultKeyCommand = echo 'key::{}'\n",
            program.display(),
            key.trim()
        ),
    );
    let mut commit = work.command(&lab.target);
    run(commit.env("GIT_CONFIG_GLOBAL", own).args(["commit", "-qS", "--allow-empty", "-m", "x"]));
    assert_eq!(work.git(&["log", "-1", "--format=%G?"]), "G\n");
    bridge.stop();
}

#[test]
fn a_key_file_that_is_only_in_the_target_signs_there() {
    let (lab, agent, _) = with_ssh_key();
    let mut up = lab.up_command(&["--lanes", "git", "--git"]);
    let bridge = Bridge::start(take(up.env("SSH_AUTH_SOCK", agent.socket())));
    let own = lab.at("own");
    let make = ["-q", "-t", "ed25519", "-N", "", "-f"];
    run(lab.target.command("ssh-keygen").args(make).arg(&own));
    let work = Work::new(&lab);
    let setting = format!("user.signingKey={}", own.display());
    work.git(&["-c", &setting, "commit", "--quiet", "--allow-empty", "-S", "-m", "own"]);
    assert!(work.is_signed("HEAD"));
    // A file that isn't there is ssh-keygen's to complain about.
    let missing = work.try_git(&[
        "-c",
        "user.signingKey=/nonexistent",
        "commit",
        "--allow-empty",
        "-S",
        "-m",
        "x",
    ]);
    assert!(!missing.status.success());
    bridge.stop();
}

#[test]
fn a_key_that_is_not_lent_goes_on_working_in_the_target() {
    let lab = Lab::with_key();
    let bridge = git_lane(&lab);
    lab.target.add_key("Bot <bot@keybridge.example>");
    let bot = lab.target.fingerprint();
    let work = Work::new(&lab);
    work.commit("by a bot", &[&format!("-S{bot}")]);
    let said = work.try_git(&["verify-commit", "--raw", "HEAD"]);
    assert!(said.status.success() && text(&said.stderr).contains(&bot), "{said:?}");
    bridge.stop();
}

#[test]
fn what_is_no_commit_is_refused_with_a_line() {
    let lab = Lab::with_key();
    let bridge = git_lane(&lab);
    let key = lab.host.fingerprint();
    let ask = |object: &[u8]| {
        let mut gpg = lab.target.command(entry(&lab, ".keybridge-gpg"));
        feed(gpg.args(["--status-fd=2", "-bsau", &key]), object)
    };
    let refused = ask(b"tree x\n\nnothing\n");
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && refused.stdout.is_empty(), "{said}");
    assert!(said.starts_with("keybridge: refused on the host: ") && said.lines().count() == 1);
    assert!(said.contains("do not commit unsigned"), "{said}");
    let large = ask(&vec![b'x'; 2 * 1024 * 1024]);
    let said = text(&large.stderr);
    assert!(!large.status.success() && said.contains("over 1048576 bytes"), "{said}");
    bridge.stop();
}

#[test]
fn anything_but_a_signature_is_for_the_program_that_would_have_run() {
    let lab = Lab::with_key();
    let other = lab.at("bin/my gpg");
    write_program(&other, "#!/bin/sh\nprintf '<%s>' \"$@\"\ncat\nexit 7\n");
    let before = format!("[gpg]\n\tprogram = \"{}\"\n", other.display());
    let settings = lab.file("home/.gitconfig", &before);
    let bridge = git_lane(&lab);
    let gpg = |words: &[&str]| {
        let mut gpg = lab.target.command(entry(&lab, ".keybridge-gpg"));
        feed(gpg.args(words).env("GIT_CONFIG_NOSYSTEM", "1"), b"bytes\xff\0")
    };
    let ran = gpg(&["--verify", "a b", ""]);
    assert_eq!(ran.status.code(), Some(7), "{ran:?}");
    assert_eq!(ran.stdout, b"<--verify><a b><>bytes\xff\0");
    // So does a key that isn't lent, with what was read of the input.
    let ran = gpg(&["--status-fd=2", "-bsau", "nobody@x"]);
    assert_eq!(ran.status.code(), Some(7), "{ran:?}");
    assert_eq!(ran.stdout, b"<--status-fd=2><-bsau><nobody@x>bytes\xff\0");
    bridge.stop();
    assert_eq!(std::fs::read_to_string(settings).unwrap(), before);
}

/// Earlier versions of jj did so where no key was set.
#[test]
fn a_request_that_names_no_key_is_gpgs_own_which_signs_over_the_gpg_lane() {
    let lab = Lab::with_key();
    let bridge = lab.up_with(&["--lanes", "gpg,git", "--git"]);
    let object = lab.file("object", "bytes that are no commit\n");
    let mut gpg = lab.target.command(entry(&lab, ".keybridge-gpg"));
    let signature = run_with(gpg.arg("-ab"), &std::fs::read(&object).unwrap());
    run_with(lab.host.gpg(["--verify", "-"]).arg(object), &signature);
    bridge.stop();
}

#[test]
fn an_entry_without_a_bridge_is_as_git_without_keybridge() {
    let lab = Lab::with_key();
    let bridge = git_lane(&lab);
    let work = Work::new(&lab);
    lab.target.add_key(USER);
    let own = lab.target.fingerprint();
    let socket = entry(&lab, "git.sock");
    bridge.kill();
    eventually("nobody listens", || std::os::unix::net::UnixStream::connect(&socket).is_err());
    assert!(Path::new(&entry(&lab, ".keybridge-gpg")).exists());
    work.commit("by gpg in the target", &[&format!("-S{own}")]);
    work.git(&["verify-commit", "HEAD"]);
}

/// So many entries at once, and every one of them gets the signature of its own commit.
#[track_caller]
fn all_are_signed_at_once(count: usize, options: &[&str]) {
    /// gpg takes longer to verify a signature than the bridge to make one.
    const VERIFIED: usize = 40;
    let lab = Lab::with_key();
    let bridge = lab.up_with(&[&["--lanes", "git", "--git"], options].concat());
    let key = lab.host.fingerprint();
    let object = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\
        author A <a@x> 1700000000 +0100\ncommitter A <a@x> 1700000001 +0000\n\n";
    let running: Vec<_> = (0..count)
        .map(|number| {
            let object = lab.file(&number.to_string(), format!("{object}{number}\n"));
            // Not by pipes: a process may have fewer files open than there are entries.
            let file = |kind| File::create(object.with_extension(kind)).unwrap();
            let mut gpg = lab.target.command(entry(&lab, ".keybridge-gpg"));
            // As jj has it.
            gpg.args(["-abu", &key]).stdin(File::open(&object).unwrap());
            let entry = gpg.stdout(file("sig")).stderr(file("err")).spawn().unwrap();
            (object, entry)
        })
        .collect();
    for (number, (object, mut entry)) in running.into_iter().enumerate() {
        let ended = entry.wait().unwrap();
        let said = std::fs::read_to_string(object.with_extension("err")).unwrap();
        assert!(ended.success() && said.is_empty(), "{number}: {said}");
        if number % (count / VERIFIED) == 0 {
            run(lab.host.gpg(["--verify"]).arg(object.with_extension("sig")).arg(object));
        }
    }
    bridge.stop();
}

#[test]
fn more_requests_at_once_than_there_may_be_clients_are_all_signed() {
    all_are_signed_at_once(40, &["--max-sessions", "4"]);
}

#[test]
fn a_thousand_requests_at_once_are_all_signed() {
    all_are_signed_at_once(1000, &[]);
}

#[test]
fn up_says_what_jj_needs_where_it_sets_up_git() {
    let scene = Scene::new();
    let set = |shown: &str| -> Vec<PathBuf> {
        let lines = shown.lines().filter_map(|line| line.split_once("jj config set --user "));
        let paths = lines.map(|(_, line)| line.split_once(".program ~/").unwrap().1);
        paths.map(|path| scene.lab.at("home").join(path)).collect()
    };
    let shown = scene.up(&["--lanes", "git", "--git"]);
    assert_eq!(set(&shown).len(), 2, "{shown}");
    assert!(set(&shown).iter().all(|path| path.is_file()), "{shown}");
    // Who adds a lane doesn't lose git's.
    let without_ssh = text(&scene.try_keybridge(&["env", &scene.address]).stderr);
    assert!(without_ssh.contains("up --lanes ssh,git "), "{without_ssh}");
    // Another up names nothing of git.
    assert!(!scene.up(&[]).contains("jj"));
    let json = scene.up(&["--git", "--json"]);
    serde_json::from_str::<serde_json::Value>(&json).unwrap();
    scene.keybridge(&["down", &scene.address]);
    let shown = scene.keybridge(&["up", "here"]);
    assert!(set(&shown).len() == 2 && !shown.contains("doesn't sign"), "{shown}");
    scene.keybridge(&["down", "here"]);
}

#[test]
fn a_bridge_of_git_alone_never_hides_what_it_lends_or_whose() {
    let scene = Scene::new();
    let (first, other) = (agent_with("first-key"), agent_with("other-key"));
    let up = |agent: &SshHome, options: &[&str]| {
        let mut up = scene.lab.keybridge();
        up.args(["up", &scene.address]).args(options).env("SSH_AUTH_SOCK", agent.socket());
        text(&run(up.env("XDG_RUNTIME_DIR", scene.lab.at("run"))))
    };
    // Without its secret half beside it.
    let signs = |agent: &SshHome, name: &str| {
        let key = scene.lab.file(name, agent.public_key(name));
        let mut sign = scene.lab.target.command(entry(&scene.lab, ".keybridge-ssh-keygen"));
        sign.args(["-Y", "sign", "-n", "git", "-f"]).arg(key);
        let commit = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor A <a@x> 1 +0000\n\
                      committer A <a@x> 1 +0000\n\nx\n";
        text(&feed(&mut sign, commit.as_bytes()).stdout).contains("SSH SIGNATURE")
    };
    let shown = up(&first, &["--lanes", "git", "--git"]);
    let both =
        "lent: 2 keys of gpg-agent (commit, tag); every key of the ssh-agent (commit, tag)\n";
    assert!(shown.contains(both), "{shown}");
    assert!(scene.keybridge(&["status"]).contains(both));
    assert!(signs(&first, "first-key") && !signs(&other, "other-key"));
    assert!(up(&other, &[]).contains("; changed: ssh-agent"));
    let shown = up(&other, &["--ssh-keys", "other-*"]);
    assert!(shown.contains("of the ssh-agent's keys other-* (commit, tag)"), "{shown}");
    assert!(signs(&other, "other-key") && !signs(&first, "first-key"));
    let shown = up(&other, &["--lanes", "gpg,git", "--ssh-keys", "all"]);
    // Who names the lane of one agent lends git nothing of the other.
    assert!(shown.contains("(commit, tag, sign, decrypt)\n"), "{shown}");
    scene.keybridge(&["down", &scene.address]);
}
