//! git in the real sandboxes of coding agents, which `scripts/test --sandboxes` installs: on the host
//! itself, and in a container.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    missing_docs,
    unreachable_pub,
    reason = "a panic is how a test fails"
)]

#[path = "../lab/mod.rs"]
mod lab;

use std::path::PathBuf;
use std::process::{Command, Output};

use rustix::process::Signal;

use crate::lab::{Bridge, Docker, Image, Lab, eventually, output, run, signal, text};

/// The sandboxes, by the programs that run a command in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sandbox {
    /// `@anthropic-ai/sandbox-runtime`, where a socket can't be made.
    Runtime,
    /// `@openai/codex`, where a socket can't be connected.
    Codex,
}

/// Where they are installed.
fn programs() -> PathBuf {
    let folder = std::env::var_os("KEYBRIDGE_SANDBOXES")
        .expect("KEYBRIDGE_SANDBOXES doesn't name their folder: run scripts/test --sandboxes");
    PathBuf::from(folder).join("node_modules/.bin")
}

/// What the sandbox's configuration has to say: only the folder of the work may be written to.
const SETTINGS: &str = r#"{"network": {"allowedDomains": [], "deniedDomains": []},
    "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}"#;

/// Commits and tags in a repository of its own. A sandbox of Codex lets nobody write to a `.git`.
const SCRIPT: &str = r#"set -e
    export GIT_DIR="$PWD/store.git" GIT_WORK_TREE="$PWD"
    git commit --quiet --allow-empty -S -m one
    git commit --quiet --allow-empty -S -m two
    git tag -s -m 'a tag' v1"#;

/// What fails in a sandbox: gpg reaches no agent there.
const PLAIN_GPG: &str = r#"export GIT_DIR="$PWD/store.git" GIT_WORK_TREE="$PWD"
    git -c gpg.program=gpg -c gpg.openpgp.program=gpg commit --quiet --allow-empty -S -m plain"#;

/// What git runs to have a commit signed; git itself shows what it says only from 2.41 on.
const ENTRY: &str = r#"tree=4b825dc642cb6eb9a060e54bf8d69288fbee4904
    who='A <a@x> 1700000000 +0100'
    printf 'tree %s\nauthor %s\ncommitter %s\n\na commit\n' "$tree" "$who" "$who" \
        | ~/.keybridge/.keybridge-gpg --status-fd=2 -bsau lab@keybridge.example"#;

/// Without a bridge behind the pipes one line says what to do, and nothing is signed.
#[track_caller]
fn says_what_to_do(entry: &Output) {
    let said = text(&entry.stderr);
    assert!(!entry.status.success() && entry.stdout.is_empty(), "{entry:?}");
    let ours: Vec<_> = said.lines().filter(|line| line.starts_with("keybridge: ")).collect();
    let [line] = ours[..] else { panic!("{said}") };
    assert!(line.contains("have the user run `keybridge up`"), "{line}");
    assert!(line.contains("stop and tell the user, do not commit unsigned"), "{line}");
}

impl Sandbox {
    /// The words that run a script in it.
    fn words(self, script: &str) -> Vec<String> {
        let program = |name: &str| programs().join(name).display().to_string();
        let words = match self {
            Self::Runtime => {
                vec![program("srt"), "--settings".to_owned(), "settings.json".to_owned()]
            }
            Self::Codex => {
                let mode = r#"sandbox_mode="workspace-write""#;
                vec![program("codex"), "sandbox".to_owned(), "-c".to_owned(), mode.to_owned()]
            }
        };
        [words, ["sh", "-c", script].map(str::to_owned).into()].concat()
    }
}

/// A folder for the work, on the host.
fn work_folder(lab: &Lab) -> PathBuf {
    let work = lab.at("work");
    std::fs::create_dir(&work).unwrap();
    std::fs::write(work.join("settings.json"), SETTINGS).unwrap();
    run(lab.host.command("git").args(["init", "--quiet", "--bare"]).arg(work.join("store.git")));
    work
}

/// `PATH` with the programs first: they are scripts for the Node beside them.
fn path() -> String {
    format!("{}:{}", programs().display(), std::env::var("PATH").unwrap())
}

#[track_caller]
fn signs_here(sandbox: Sandbox) {
    let lab = Lab::with_key();
    let identity = "[user]\n\tname = Lab\n\temail = lab@keybridge.example\n";
    let key = lab.host.fingerprint();
    lab.file("home/.gitconfig", format!("{identity}\tsigningKey = {key}\n"));
    let mut up = lab.keybridge();
    up.args(["up", "here", "--foreground", "--json"]);
    let bridge = Bridge::start(up);
    let work = work_folder(&lab);
    let in_sandbox = |script: &str| -> Output {
        let words = sandbox.words(script);
        let mut command: Command = lab.host.command(&words[0]);
        output(command.args(&words[1..]).env("PATH", path()).current_dir(&work))
    };
    let signed = in_sandbox(SCRIPT);
    assert!(signed.status.success(), "{signed:?}");
    let git = |words: &[&str]| {
        run(lab.host.command("git").arg("--git-dir").arg(work.join("store.git")).args(words))
    };
    git(&["verify-commit", "HEAD", "HEAD~1"]);
    git(&["verify-tag", "v1"]);
    let plain = in_sandbox(PLAIN_GPG);
    assert!(!plain.status.success(), "{plain:?}");
    // The entries stay.
    bridge.kill();
    says_what_to_do(&in_sandbox(ENTRY));
    let unsigned = in_sandbox(SCRIPT);
    assert!(!unsigned.status.success(), "{unsigned:?}");
}

#[test]
fn the_sandbox_runtime_on_the_host() {
    signs_here(Sandbox::Runtime);
}

#[test]
fn codex_on_the_host() {
    signs_here(Sandbox::Codex);
}

#[track_caller]
fn signs_in_a_container(sandbox: Sandbox) {
    let folder = programs();
    let folder = folder.ancestors().nth(2).unwrap().display().to_string();
    let volume = format!("{folder}:{folder}:ro");
    // A sandbox in a container makes namespaces, and mounts its own /proc.
    let options = [
        "--cap-add=SYS_ADMIN",
        "--security-opt=seccomp=unconfined",
        "--security-opt=apparmor=unconfined",
        "--security-opt=systempaths=unconfined",
        "--volume",
        &volume,
    ];
    let docker = Docker::new(Image::Sandbox, &options);
    docker.up(&["--git"]);
    let in_container =
        |script: &str| output(&mut docker.container.command(None, ["sh", "-c", script]));
    let prepared = in_container(&format!(
        "set -e; git config --global user.name Lab; git config --global user.email l@x
         mkdir /srv/commits; cd /srv/commits; git init --quiet --bare store.git
         printf %s '{SETTINGS}' >settings.json"
    ));
    assert!(prepared.status.success(), "{prepared:?}");
    let in_sandbox = |script: &str| {
        let words = sandbox.words(script);
        let words: Vec<_> =
            words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        let path = programs().display().to_string();
        in_container(&format!("cd /srv/commits; PATH={path}:$PATH; {}", words.join(" ")))
    };
    let signed = in_sandbox(SCRIPT);
    assert!(signed.status.success(), "{signed:?}");
    let plain = in_sandbox(PLAIN_GPG);
    assert!(!plain.status.success(), "{plain:?}");
    let bundle = in_container("cd /srv/commits/store.git; git bundle create --quiet - --all");
    let bundle = docker.lab.file("bundle", bundle.stdout);
    let script = "set -e; git clone --quiet --mirror \"$1\" \"$2\"; cd \"$2\"
        git verify-tag v1; git rev-list --all | xargs git verify-commit";
    let mut verify = docker.lab.host.command("sh");
    run(verify.args(["-c", script, "sh"]).arg(bundle).arg(docker.lab.at("clone")));
    // Both programs are killed, so that the entries stay.
    let [bridge] = &docker.bridges()[..] else { panic!("one bridge") };
    signal(u32::try_from(bridge["pid"].as_u64().unwrap()).unwrap(), Signal::KILL);
    for helper in docker.helpers() {
        docker.container.sh(None, &format!("kill -KILL {}", helper.split(' ').next().unwrap()));
    }
    eventually("the helper has ended", || docker.helpers().is_empty());
    says_what_to_do(&in_sandbox(ENTRY));
}

#[test]
fn the_sandbox_runtime_in_a_container() {
    signs_in_a_container(Sandbox::Runtime);
}

#[test]
fn codex_in_a_container() {
    signs_in_a_container(Sandbox::Codex);
}
