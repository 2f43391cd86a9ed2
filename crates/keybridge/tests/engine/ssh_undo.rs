//! The settings of ssh and git in a container: the user's own lines count, and are the same after
//! `down`, byte for byte.

use crate::lab::{Image, text};
use crate::ssh_lab::{ACCOUNT, SshLab, Sshd, User, complaint};
use keybridge_lab::SshHome;

const PORT: u16 = 2201;

/// Settings of ssh that our lines have to get along with: what stands last is of one host alone, or a
/// line that is not ended, or empty, or in another style.
const SSH_CONFIGS: [&str; 7] = [
    "Host github.com\n    User git\n    IdentitiesOnly yes\n",
    "Host *\n  ServerAliveInterval 30\n\nMatch host gone.example user nobody\n  Port 2222",
    "# nothing but words, and no end to the line",
    "Host one\nHostName one.example\n\n\n\n",
    "Match exec \"false\"\n\tForwardAgent no\n\tUser nobody\n",
    "Host windows\r\n  User me\r\n",
    "",
];

const GIT_CONFIGS: [&str; 4] = [
    "[user]\n\tname = Lab\n\temail = lab@keybridge.example\n[alias]\n\tst = status",
    "[user]\n\tsigningkey = 0123456789ABCDEF\n[commit]\n\tgpgsign = false\n[gpg]\n\tformat = x509\n",
    "# words \u{fc}ber git\n[core]\n\tpager = less -R \\\n  -F\n\n",
    "",
];

/// A container whose sshd says which key it was that logged in.
fn lab(image: Image, user: User) -> SshLab {
    let lab = SshLab::new(image, user);
    let key = lab.public_key("key");
    lab.git_at_home(&[("gpg.format", "ssh"), ("user.signingKey", &key)]);
    lab
}

fn sshd(lab: &SshLab) -> Sshd<'_> {
    let sshd = Sshd::start(lab.container(), PORT);
    sshd.authorize(ACCOUNT, "command=\"echo bridged\"", &lab.public_key("key"));
    sshd
}

/// An agent of the container's user, with a key of its own. Gives back its socket.
fn own_agent(lab: &SshLab, sshd: &Sshd<'_>) -> String {
    lab.sh("ssh-keygen -q -t ed25519 -N '' -C own -f /tmp/own
        ssh-agent -a /tmp/own.sock >/dev/null
        SSH_AUTH_SOCK=/tmp/own.sock ssh-add -q /tmp/own
        rm /tmp/own");
    let key = lab.sh("cat /tmp/own.pub");
    sshd.authorize(ACCOUNT, "command=\"echo own\"", key.trim());
    sshd.authorize(lab.user.name(), "", key.trim());
    "/tmp/own.sock".to_owned()
}

#[track_caller]
fn settings_come_back(image: Image, user: User) {
    let lab = lab(image, user);
    let sshd = sshd(&lab);
    lab.sh("mkdir -p -m 700 ~/.ssh");
    let login = format!("{} true", sshd.login());
    for (turn, config) in SSH_CONFIGS.iter().enumerate() {
        let git = GIT_CONFIGS[turn % GIT_CONFIGS.len()];
        lab.write("~/.ssh/config", config);
        lab.write("~/.gitconfig", git);
        lab.sh(["chmod 600 ~/.ssh/config", "chmod 644 ~/.ssh/config"][turn % 2]);
        let files = || [lab.file("~/.ssh/config"), lab.file("~/.gitconfig")];
        let before = files();
        assert_eq!([&before[0].0[..], &before[1].0], [config.as_bytes(), git.as_bytes()]);
        lab.up(&["--lanes", "ssh", "--git"]);
        let during = files();
        for (before, during) in before.iter().zip(&during) {
            assert!(during.0.starts_with(&before.0), "the user's own lines: {config:?}");
            assert!(during.0.len() > before.0.len(), "no lines of ours: {config:?}");
            assert_eq!(during.1, before.1, "mode and owner: {config:?}");
        }
        assert_eq!(lab.sh(&login).trim(), "bridged", "{config:?}");
        // Our lines are no part of the user's last block, nor the other way round.
        assert_eq!(lab.sh("ssh -G any.example | grep -c '^user nobody' || true").trim(), "0");
        assert_eq!(lab.git_setting("gpg.format"), "ssh", "{git:?}");
        lab.docker.down();
        assert_eq!(files(), before, "{config:?}");
    }
}

#[test]
fn settings_come_back_as_they_were_for_root_in_bookworm() {
    settings_come_back(Image::Bookworm, User::Root);
}

#[test]
fn settings_come_back_as_they_were_for_a_normal_user_in_trixie() {
    settings_come_back(Image::Trixie, User::Dev);
}

#[test]
fn where_there_were_no_settings_there_are_none_afterwards() {
    for (image, user) in [(Image::Trixie, User::Root), (Image::Bookworm, User::Dev)] {
        let lab = lab(image, user);
        let before = lab.container().listing();
        lab.up(&["--lanes", "ssh", "--git"]);
        let modes = lab.sh("stat -c '%a %U' ~/.ssh ~/.ssh/config ~/.ssh/agent.sock");
        let name = user.name();
        assert_eq!(modes, format!("700 {name}\n600 {name}\n600 {name}\n"));
        lab.docker.down();
        lab.assert_undone(&before);
    }
}

/// What the user writes while the bridge is up is the user's, wherever it stands.
#[test]
fn lines_that_come_while_the_bridge_is_up_stay() {
    let lab = lab(Image::Trixie, User::Dev);
    lab.sh("mkdir -p -m 700 ~/.ssh");
    lab.write("~/.ssh/config", "Host a\n  User a\n");
    lab.write("~/.gitconfig", "[user]\n\tname = Lab\n");
    lab.up(&["--lanes", "ssh", "--git"]);
    lab.sh("printf 'Host b\\n  User b\\n' >>~/.ssh/config
        git config --global user.email lab@keybridge.example
        git config --global alias.st status
        { echo 'Host first'; echo '  User first'; cat ~/.ssh/config; } >/tmp/config
        cat /tmp/config >~/.ssh/config");
    let user = "ssh -G b | grep '^user '";
    assert_eq!(lab.sh(user), "user b\n");
    lab.docker.down();
    assert_eq!(
        lab.sh("cat ~/.ssh/config"),
        "Host first\n  User first\nHost a\n  User a\nHost b\n  User b\n"
    );
    let git = lab.sh("git config --global --list");
    assert_eq!(git, "user.name=Lab\nuser.email=lab@keybridge.example\nalias.st=status\n");
}

/// The file that git itself would read and write.
#[test]
fn settings_of_git_in_its_other_place() {
    let lab = lab(Image::Bookworm, User::Dev);
    let own = "[user]\n\tname = Lab";
    lab.write("~/.config/git/config", own);
    let before = lab.container().listing();
    lab.up(&["--lanes", "ssh", "--git"]);
    assert_eq!(lab.git_setting("gpg.format"), "ssh");
    assert_eq!(lab.git_setting("user.name"), "Lab");
    lab.docker.down();
    assert_eq!(lab.file("~/.config/git/config").0, own.as_bytes());
    lab.assert_undone(&before);
}

/// A file that the user keeps elsewhere, and links to.
#[test]
fn settings_behind_a_link() {
    let lab = lab(Image::Trixie, User::Dev);
    let sshd = sshd(&lab);
    let (config, git) = ("Host a\n  User a", "[user]\n\tname = Lab\n");
    lab.write("~/dotfiles/config", config);
    lab.write("~/dotfiles/gitconfig", git);
    lab.sh("mkdir -p -m 700 ~/.ssh
        chmod 600 ~/dotfiles/config
        ln -s ../dotfiles/config ~/.ssh/config
        ln -s dotfiles/gitconfig ~/.gitconfig");
    let before = lab.container().listing();
    lab.up(&["--lanes", "ssh", "--git"]);
    assert_eq!(lab.sh(&format!("{} true", sshd.login())).trim(), "bridged");
    assert_eq!(lab.git_setting("gpg.format"), "ssh");
    lab.docker.down();
    assert_eq!(
        lab.sh("readlink ~/.ssh/config ~/.gitconfig"),
        "../dotfiles/config\ndotfiles/gitconfig\n"
    );
    assert_eq!(lab.file("~/dotfiles/config").0, config.as_bytes());
    assert_eq!(lab.file("~/dotfiles/gitconfig").0, git.as_bytes());
    lab.assert_undone(&before);
}

#[track_caller]
fn the_users_own_agent_wins(image: Image, user: User) {
    let lab = lab(image, user);
    let sshd = sshd(&lab);
    let own = own_agent(&lab, &sshd);
    lab.sh("mkdir -p -m 700 ~/.ssh");
    lab.write(
        "~/.ssh/config",
        format!(
            "Host mine\n  IdentityAgent {own}\nHost none\n  IdentityAgent none\n\
             Host mine none other\n  HostName 127.0.0.1\n  HostKeyAlias [127.0.0.1]:{PORT}"
        ),
    );
    lab.up(&["--lanes", "ssh"]);
    let login = |to: &str| format!("ssh -o BatchMode=yes -p {PORT} {to} true");
    let far = |host: &str| login(&format!("{ACCOUNT}@{host}"));
    assert_eq!(lab.sh(&far("other")).trim(), "bridged");
    assert_eq!(lab.sh(&far("127.0.0.1")).trim(), "bridged");
    assert_eq!(lab.sh(&far("mine")).trim(), "own", "the user's own IdentityAgent");
    let refused = complaint(&lab.try_sh(&far("none")));
    assert!(refused.contains("Permission denied"), "{refused}");
    let on_the_line = format!("ssh -o IdentityAgent={own} -p {PORT} {ACCOUNT}@other true");
    assert_eq!(lab.sh(&on_the_line).trim(), "own");
    let with_variable = format!("SSH_AUTH_SOCK={own} {}", far("other"));
    assert_eq!(lab.sh(&with_variable).trim(), "own", "the user's own SSH_AUTH_SOCK");
    let dead = format!("SSH_AUTH_SOCK=/tmp/nobody {}", far("other"));
    assert!(!lab.try_sh(&dead).status.success(), "a dead one is the user's affair");

    // Somebody logs in to the container from elsewhere, with an agent that comes along or not.
    let session = |option: &str| {
        let name = lab.user.name();
        let inside = far("other");
        format!("SSH_AUTH_SOCK={own} ssh {option} -p {PORT} {name}@127.0.0.1 '{inside}'")
    };
    assert_eq!(lab.sh(&session("-A")).trim(), "own", "ssh -A");
    assert_eq!(lab.sh(&session("-a")).trim(), "bridged", "a login without an agent");
}

#[test]
fn the_users_own_agent_wins_for_root_in_trixie() {
    the_users_own_agent_wins(Image::Trixie, User::Root);
}

#[test]
fn the_users_own_agent_wins_for_a_normal_user_in_bookworm() {
    the_users_own_agent_wins(Image::Bookworm, User::Dev);
}

/// git's own way to ssh-keygen leaves a variable that is set alone, and finds the lane without one.
#[test]
fn git_signs_with_the_agent_that_the_environment_names() {
    let lab = SshLab::with(Image::Bookworm, &[], User::Dev, SshHome::with_key());
    let sshd = sshd(&lab);
    let own = own_agent(&lab, &sshd);
    let key = lab.public_key("key");
    lab.git_at_home(&[("gpg.format", "ssh"), ("user.signingKey", &key)]);
    lab.up(&["--lanes", "ssh", "--git"]);
    lab.sh(
        "git config --global user.name Lab; git config --global user.email lab@keybridge.example",
    );
    let commit = "cd \"$(mktemp -d)\"; git init -q; git commit -q --allow-empty -m words 2>&1";
    lab.sh(commit);
    // An agent without that key.
    let failed = lab.try_sh(&format!("export SSH_AUTH_SOCK={own}; {commit}"));
    assert!(!failed.status.success(), "{}", text(&failed.stdout));
    let own_key = lab.sh("cat /tmp/own.pub");
    lab.sh(&format!(
        "export SSH_AUTH_SOCK={own}; git config --global user.signingkey 'key::{}'; {commit}",
        own_key.trim()
    ));
    lab.docker.down();
    let left = lab.sh("git config --global --list");
    assert!(!left.contains("gpg."), "{left}");
}
