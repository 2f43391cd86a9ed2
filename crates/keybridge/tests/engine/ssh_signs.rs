//! ssh, git and ssh-keygen in a fresh container log in and sign with the ssh-agent of the host.

use crate::lab::{self, Image, run, text};
use crate::ssh_lab::{ACCOUNT, EMAIL, SshLab, Sshd, User, be_ssh_agent, complaint};
use keybridge_lab::SshHome;

/// The port of the container's sshd.
const PORT: u16 = 2201;

/// Logs in with plain ssh, and clones and pushes with plain git.
#[track_caller]
fn logs_in(lab: &SshLab, key: &str) {
    let sshd = Sshd::start(lab.container(), PORT);
    sshd.authorize(ACCOUNT, "", key);
    assert_eq!(lab.sh(&format!("{} whoami", sshd.login())).trim(), ACCOUNT);

    lab.container().sh(Some(ACCOUNT), "git init --quiet --bare ~/work.git");
    let pushed = lab.sh(&format!(
        "cd \"$(mktemp -d)\"
        git clone --quiet {} . 2>/dev/null
        git config user.name Lab
        git config user.email {EMAIL}
        git commit --quiet --allow-empty --message pushed
        git push --quiet origin HEAD:refs/heads/main
        git rev-parse HEAD",
        sshd.repository("work.git")
    ));
    let arrived = lab.container().sh(Some(ACCOUNT), "git -C ~/work.git rev-parse main");
    assert_eq!(arrived, pushed);
    let cloned = lab.sh(&format!(
        "cd \"$(mktemp -d)\"
        git clone --quiet --branch main {} .
        git rev-parse HEAD",
        sshd.repository("work.git")
    ));
    assert_eq!(cloned, pushed);
    assert!(sshd.log().contains("Accepted publickey for far"), "{}", sshd.log());
}

/// Signs a file as git would, and has the signature verified at home.
#[track_caller]
fn signs_a_file(lab: &SshLab, key: &str) {
    let signature = lab.run([
        "sh",
        "-ec",
        &format!(
            "cd \"$(mktemp -d)\"
            echo '{key}' >key.pub
            echo words >file
            ssh-keygen -q -Y sign -n git -f key.pub file 2>/dev/null
            cat file.sig"
        ),
    ]);
    std::fs::write(lab.home.file("signers"), signers(key)).unwrap();
    std::fs::write(lab.home.file("file.sig"), signature).unwrap();
    let mut verify = lab.home.command("ssh-keygen");
    verify.args(["-Y", "verify", "-f", "signers", "-I", EMAIL, "-n", "git", "-s", "file.sig"]);
    let verified = lab::run_with(&mut verify, b"words\n");
    assert!(text(&verified).starts_with("Good \"git\" signature"), "{}", text(&verified));
}

fn signers(key: &str) -> String {
    format!("{EMAIL} namespaces=\"git\" {key}\n")
}

/// Commits and tags with plain git, in a repository with a remote; both have to be signed with the SSH key.
#[track_caller]
fn git_signs(lab: &SshLab, key: &str) {
    lab.write("/tmp/signers", signers(key));
    let verified = lab.sh(&format!(
        "cd \"$(mktemp -d)\"
        git init --quiet .
        git remote add origin https://git.example/x.git
        git config user.name Lab
        git config user.email {EMAIL}
        git commit --quiet --allow-empty --message signed
        git tag --message tagged v1
        git config gpg.ssh.allowedSignersFile /tmp/signers
        git verify-commit HEAD 2>&1
        git verify-tag v1 2>&1
        git log -1 --format='%G? %GS'
        rm /tmp/signers"
    ));
    assert_eq!(verified.matches("Good \"git\" signature for").count(), 2, "{verified}");
    assert!(verified.ends_with(&format!("G {EMAIL}\n")), "{verified}");
}

/// `ssh-add -l` by both ways that `keybridge` has for it.
#[track_caller]
fn lists(lab: &SshLab, keys: &str) {
    assert_eq!(lab.run(["ssh-add", "-l"]), keys);
    let set = text(&run(&mut lab.keybridge(["env", &lab.container().name])));
    assert_eq!(lab.sh(&format!("{set}\nssh-add -l")), keys);
}

/// After `down` there is no key, no socket, no helper, and none of our lines.
#[track_caller]
fn is_undone(lab: &SshLab) {
    let socket = lab.socket();
    lab.docker.down();
    assert_eq!(lab.docker.helpers(), Vec::<String>::new());
    assert!(lab.try_sh(&format!("test -e {socket}")).status.code() == Some(1), "the socket stays");
    let home = lab.user.home();
    let marked = lab.try_sh(&format!("grep -rl keybridge {home}/.ssh {home}/.gitconfig"));
    assert_eq!(text(&marked.stdout), "", "marked lines stay");
}

/// The whole way with OpenSSH's agent: nothing is set up in the container but by `up --git`.
#[track_caller]
fn with_ssh_agent(image: Image, user: User) {
    let lab = SshLab::new(image, user);
    let key = lab.public_key("key");
    let public = lab.home.file("key.pub");
    lab.git_at_home(&[
        ("gpg.format", "ssh"),
        ("user.signingKey", public.to_str().unwrap()),
        ("gpg.ssh.program", "/opt/only-here/ssh-keygen"),
    ]);
    let shown = lab.up(&["--lanes", "gpg,ssh", "--git"]);
    assert!(shown.contains("✓ your ssh-agent: ") && shown.contains(", 1 key "), "{shown}");
    assert!(shown.contains("ssh-agent with 1 key answers"), "{shown}");
    assert_eq!(lab.status()["lanes"]["ssh"]["socket"], format!("{}/.ssh/agent.sock", user.home()));

    lists(&lab, &lab.home.keys());
    git_signs(&lab, &key);
    signs_a_file(&lab, &key);
    for setting in ["gpg.ssh.program", "user.signingKey"] {
        let set = lab.git_setting(setting);
        assert_ne!(set, "", "{setting}");
        assert!(!set.contains("/opt/only-here"), "a path of the host: {set}");
        assert!(!set.contains(public.to_str().unwrap()), "a path of the host: {set}");
    }
    assert!(lab.docker.signs(Some(user.name())).status.success(), "the gpg lane");
    is_undone(&lab);

    lab.up(&["--lanes", "ssh"]);
    logs_in(&lab, &key);
    is_undone(&lab);
    let refused = lab.try_sh(&format!("ssh -o BatchMode=yes -p {PORT} {ACCOUNT}@127.0.0.1 true"));
    assert!(complaint(&refused).contains("Permission denied"), "{refused:?}");
}

#[test]
fn a_bookworm_container_as_root() {
    with_ssh_agent(Image::Bookworm, User::Root);
}

#[test]
fn a_bookworm_container_as_a_normal_user() {
    with_ssh_agent(Image::Bookworm, User::Dev);
}

#[test]
fn a_trixie_container_as_root() {
    with_ssh_agent(Image::Trixie, User::Root);
}

#[test]
fn a_trixie_container_as_a_normal_user() {
    with_ssh_agent(Image::Trixie, User::Dev);
}

/// Neither the bridge nor what git makes of its settings stays, but for the keys that were synced.
#[test]
fn signing_leaves_nothing_behind() {
    let lab = SshLab::new(Image::Trixie, User::Dev);
    let before = lab.container().listing();
    let key = lab.public_key("key");
    lab.git_at_home(&[("gpg.format", "ssh"), ("user.signingKey", &key)]);
    lab.up(&["--git"]);
    git_signs(&lab, &key);
    signs_a_file(&lab, &key);
    lab.sh("rm -rf /tmp/tmp.*");
    lab.docker.down();
    lab.assert_undone_but(&before, "/home/dev/.gnupg");
}

/// The same with gpg-agent as the ssh-agent: nothing names it, it is found.
#[track_caller]
fn with_gpg_agent(image: Image, user: User) {
    let lab = SshLab::with(image, &[], user, SshHome::new());
    let key = be_ssh_agent(&lab.docker.lab.host, "", "");
    lab.git_at_home(&[("gpg.format", "ssh"), ("user.signingKey", &format!("key::{key}"))]);
    let words = ["up", &lab.container().name, "--user", user.name(), "--lanes", "gpg,ssh", "--git"];
    let shown = text(&run(&mut lab.docker.keybridge(words)));
    assert!(shown.contains("S.gpg-agent.ssh (gpg-agent), 1 key "), "{shown}");
    assert!(lab.run(["ssh-add", "-L"]).starts_with(&key));
    logs_in(&lab, &key);
    signs_a_file(&lab, &key);
    git_signs(&lab, &key);
    assert!(lab.docker.signs(Some(user.name())).status.success(), "the gpg lane");
    is_undone(&lab);
}

#[test]
fn gpg_agent_as_the_ssh_agent_for_root() {
    with_gpg_agent(Image::Bookworm, User::Root);
}

#[test]
fn gpg_agent_as_the_ssh_agent_for_a_normal_user() {
    with_gpg_agent(Image::Trixie, User::Dev);
}

/// Plain `git commit` with the OpenPGP key of the host.
#[track_caller]
fn git_signs_with_gpg(image: Image, user: User) {
    let lab = SshLab::new(image, user);
    let fingerprint = lab.docker.lab.host.fingerprint();
    lab.git_at_home(&[
        ("user.signingKey", &fingerprint[24..]),
        ("gpg.program", "/opt/only-here/gpg"),
    ]);
    lab.up(&["--lanes", "gpg,ssh", "--git"]);
    let verified = lab.sh(&format!(
        "cd \"$(mktemp -d)\"
        git init --quiet .
        git config user.name Lab
        git config user.email {EMAIL}
        git commit --quiet --allow-empty --message signed
        git tag --message tagged v1
        git verify-commit HEAD 2>&1
        git verify-tag v1 2>&1
        git log -1 --format='%G? %GP'"
    ));
    assert_eq!(verified.matches("Good signature from").count(), 2, "{verified}");
    assert!(verified.ends_with(&format!("G {fingerprint}\n")), "{verified}");
    assert_eq!(text(&lab.try_sh("git config gpg.program").stdout), "", "a path of the host");
    is_undone(&lab);
    assert_eq!(lab.try_sh("test -e ~/.gitconfig").status.code(), Some(1));
}

#[test]
fn git_signs_with_gpg_as_root() {
    git_signs_with_gpg(Image::Trixie, User::Root);
}

#[test]
fn git_signs_with_gpg_as_a_normal_user() {
    git_signs_with_gpg(Image::Bookworm, User::Dev);
}

/// Careful people name the subkey that is to sign, and no other.
#[test]
fn git_signs_with_the_subkey_that_is_named_at_home() {
    let lab = SshLab::new(Image::Trixie, User::Dev);
    let host = &lab.docker.lab.host;
    let words = ["--passphrase", "", "--quick-add-key", &host.fingerprint(), "ed25519", "sign"];
    run(&mut host.gpg(words));
    let subkeys = host.fingerprints();
    // Of the two that sign, gpg itself would take the newer one.
    for (named, signed_by) in [(&subkeys[1], &subkeys[1]), (&subkeys[3], &subkeys[3])] {
        for name in [format!("{named}!"), format!("0x{}!", &named[24..])] {
            lab.git_at_home(&[("user.signingKey", &name)]);
            lab.up(&["--git"]);
            let signed = lab.sh(&format!(
                "cd \"$(mktemp -d)\"
                git init --quiet .
                git remote add origin https://git.example/x.git
                git config user.name Lab
                git config user.email {EMAIL}
                git commit --quiet --allow-empty --message signed
                git log -1 --format='%G? %GF'"
            ));
            assert_eq!(signed, format!("G {signed_by}\n"), "{name}");
            lab.docker.down();
        }
    }
}

#[test]
fn without_git_one_line_says_how_and_a_bridge_that_is_up_can_be_told_later() {
    let lab = SshLab::new(Image::Trixie, User::Dev);
    let key = lab.public_key("key");
    lab.git_at_home(&[("gpg.format", "ssh"), ("user.signingKey", &key)]);
    let shown = lab.up(&["--lanes", "gpg,ssh"]);
    let told: Vec<_> = shown.lines().filter(|line| line.contains("--git")).collect();
    assert_eq!(told.len(), 1, "{shown}");
    assert_eq!(lab.try_sh("test -e ~/.gitconfig").status.code(), Some(1));
    lab.up(&["--lanes", "gpg,ssh", "--git"]);
    git_signs(&lab, &key);
    is_undone(&lab);
    assert_eq!(lab.try_sh("test -e ~/.gitconfig").status.code(), Some(1));
}

/// A container that names a place for its agent gets it there.
#[test]
fn the_socket_that_the_container_names() {
    let options = ["--env", "SSH_AUTH_SOCK=/tmp/kb/agent.sock"];
    let lab = SshLab::with(Image::Bookworm, &options, User::Dev, SshHome::with_key());
    lab.sh("mkdir -m 700 /tmp/kb");
    lab.up(&["--lanes", "ssh"]);
    assert_eq!(lab.socket(), "/tmp/kb/agent.sock");
    assert_eq!(lab.sh("ssh-add -l"), lab.home.keys());
    logs_in(&lab, &lab.public_key("key"));
    is_undone(&lab);
}
