//! A round of all that git, jj and `GitButler` have signed, the same in every kind of place; the host verifies it.

use std::path::PathBuf;
use std::process::Command;

use super::{Lab, SshHome, run, run_with, text};

/// Whom the commits are by.
const EMAIL: &str = "lab@keybridge.example";

/// How many commits are rebased.
const REBASED: usize = 30;

/// What git signs with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SigningKey {
    /// The OpenPGP key of the lab's host.
    OpenPgp,
    /// The key of an ssh-agent, which the host's user has in the settings of git.
    Ssh,
}

/// A round, and what it is signed with.
pub struct GitRound<'a> {
    lab: &'a Lab,
    /// Without it git signs with the OpenPGP key.
    agent: Option<SshHome>,
}

/// The commits of git itself, with all that it writes into one.
const COMMITS: &str = r#"
    commit() { git commit --quiet --allow-empty "$@"; }
    commit -S -m one
    latin1=$(printf 'J\374rgen')
    git -c i18n.commitEncoding=ISO-8859-1 -c user.name="$latin1" \
        commit --quiet --allow-empty -S -m "by $latin1"
    git cat-file commit HEAD | LC_ALL=C grep -aqx 'encoding ISO-8859-1'
    git cat-file commit HEAD | LC_ALL=C grep -aq "^author $latin1 <"
    commit -S --allow-empty-message -m ''
    git tag -s -m 'a tag' v1
    git checkout --quiet -b side HEAD~1
    commit -S -m side
    git tag -s -m another v2
    git checkout --quiet main
    git merge --quiet -S --no-ff -m merge v2
    git commit --quiet --amend -S -m 'merge, amended'
    git cat-file commit HEAD | grep -q '^mergetag object '
    git checkout --quiet -b rebased
    for number in $(seq $rebased); do commit --no-gpg-sign -m $number; done
    git rebase --quiet --exec 'git commit --quiet --amend --allow-empty --no-edit -S' HEAD~$rebased
    git remote add origin https://git.example/x.git
    commit -m 'to be pushed'
    git tag -m 'to be pushed' v3
"#;

/// How many commits there are besides those that are rebased.
const OTHER_COMMITS: usize = 6;

/// Writes a commit, and puts the signature into it where jj and `GitButler` do.
const OBJECTS: &str = r#"
    object() {
        who='Lab <lab@keybridge.example> 1700000000 +0100'
        printf 'tree %s\nparent %s\nauthor %s\ncommitter %s\n%s\n\nby %s\n' \
            "$(git rev-parse 'HEAD^{tree}')" "$(git rev-parse HEAD)" "$who" "$who" "$2" "$1" >object
    }
    store() {
        { sed '/^$/Q' object; sed '1s/^/gpgsig /; 2,$s/^/ /' sig; sed -n '/^$/,$p' object; } >signed
        git update-ref "refs/heads/$1" "$(git hash-object -t commit -w signed)"
    }
    of_jj='change-id zyxwvutsrqponmlkzyxwvutsrqponmlk'
    of_gitbutler=$(printf 'gitbutler-headers-version 2\nchange-id 1')
    key=$(git config --type=path user.signingKey)
"#;

/// gpg, as jj and `GitButler` call it, and how many commits come of it.
const GPG: (&str, usize) = (
    r#"
    program=$(git config gpg.program)
    test "${program##*/}" = .keybridge-gpg
    object jj "$of_jj"
    "$program" -abu "$key" <object >sig
    store jj
    object gitbutler "$of_gitbutler"
    "$program" --status-fd=2 -bsau "$key" - <object >sig 2>status
    grep -q '^\[GNUPG:\] SIG_CREATED ' status
    store gitbutler
"#,
    2,
);

/// The same for ssh-keygen. `GitButler` has a path or a file with the key that stands in the settings.
const SSH_KEYGEN: (&str, usize) = (
    r#"
    program=$(git config gpg.ssh.program)
    test "${program##*/}" = .keybridge-ssh-keygen
    object jj "$of_jj"
    "$program" -Y sign -f "$key" -n git <object >sig
    store jj
    object gitbutler "$of_gitbutler"
    "$program" -Y sign -n git -f "$key" object </dev/null
    mv object.sig sig
    store gitbutler
    object literal "$of_gitbutler"
    install -m 600 "$key" literal
    "$program" -Y sign -n git -f literal -U object </dev/null
    mv object.sig sig
    store literal
"#,
    3,
);

/// In the target itself.
const VERIFY: &str = r#"
    git rev-list --all | xargs git verify-commit
    git verify-tag v1 v2 v3
    test "$(git log --all --format=%G? | sort -u)" = G
"#;

impl<'a> GitRound<'a> {
    /// A round in a lab, whose host has the key from now on.
    pub fn new(lab: &'a Lab, key: SigningKey) -> Self {
        let agent = (key == SigningKey::Ssh).then(|| {
            let agent = SshHome::with_key();
            let public = agent.file("key.pub").display().to_string();
            let settings = format!("[gpg]\n\tformat = ssh\n[user]\n\tsigningKey = {public}\n");
            lab.file("home/.gitconfig", settings);
            agent
        });
        Self { lab, agent }
    }

    /// Has `keybridge up` lend the key, over the git lane alone.
    pub fn lend<'b>(&self, up: &'b mut Command) -> &'b mut Command {
        if let Some(agent) = &self.agent {
            up.env("SSH_AUTH_SOCK", agent.socket());
        }
        up.args(["--lanes", "git", "--git"])
    }

    /// The round. `sh` runs a script in the target, which has to succeed.
    #[track_caller]
    pub fn is_signed(&self, sh: impl Fn(&str) -> String) {
        self.is_done(sh, "");
    }

    /// The same in a target that has program and key to verify it too.
    #[track_caller]
    pub fn is_signed_and_verified_there(&self, sh: impl Fn(&str) -> String) {
        if self.agent.is_none() {
            let host = &self.lab.host;
            let key = text(&run(&mut host.gpg(["--armor", "--export"])));
            let fingerprint = host.fingerprint();
            sh(&format!(
                "gpg --batch --quiet --import <<END\n{key}END
                echo {fingerprint}:6: | gpg --batch --quiet --import-ownertrust"
            ));
        }
        self.is_done(sh, VERIFY);
    }

    #[track_caller]
    fn is_done(&self, sh: impl Fn(&str) -> String, verify: &str) {
        let (others, count) = if self.agent.is_some() { SSH_KEYGEN } else { GPG };
        // Neither jj nor GitButler knows the longer format.
        for (format, rebased, others, count) in
            [("sha1", REBASED, [OBJECTS, others].concat(), count), ("sha256", 1, String::new(), 0)]
        {
            let archive = sh(&format!(
                "export GIT_CONFIG_NOSYSTEM=1
                folder=$(mktemp -d)
                cd \"$folder\"
                git init --quiet --object-format {format} --initial-branch=main .
                git config user.name Lab
                git config user.email {EMAIL}
                rebased={rebased}
                round() {{ {COMMITS}{others}{verify}
                }}
                round >&2
                tar -c .git | base64
                cd /
                rm -rf \"$folder\""
            ));
            self.verify(format, archive.as_bytes(), OTHER_COMMITS + rebased + count);
        }
    }

    /// All that the repository has is signed with the key, as the host sees it.
    #[track_caller]
    fn verify(&self, format: &str, archive: &[u8], commits: usize) {
        let folder = self.lab.at(&format!("round-{format}"));
        std::fs::create_dir(&folder).unwrap();
        let unpack = "base64 -d | tar -x --no-same-owner";
        run_with(self.lab.host.command("sh").args(["-c", unpack]).current_dir(&folder), archive);
        let signers = self.signers();
        let git = |words: &[&str]| {
            let mut git = self.lab.host.command("git");
            git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
            git.arg("-c").arg(format!("gpg.ssh.allowedSignersFile={}", signers.display()));
            text(&run(git.args(words).current_dir(&folder)))
        };
        let found = git(&["rev-list", "--all"]);
        let found: Vec<&str> = found.lines().collect();
        assert_eq!(found.len(), commits, "{format}");
        git(&[&["verify-commit"], &found[..]].concat());
        git(&["verify-tag", "v1", "v2", "v3"]);
    }

    /// The file of those who may sign with an ssh key: nobody, where it is an OpenPGP key.
    fn signers(&self) -> PathBuf {
        let line = |agent: &SshHome| format!("* namespaces=\"git\" {}", agent.public_key("key"));
        self.lab.file("signers", self.agent.as_ref().map(line).unwrap_or_default())
    }
}
