//! What the git lane signs, with a real gpg, ssh-keygen and agents.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use keybridge::git::{GitKeys, GitSigner};
use keybridge::gnupg::Gnupg;
use keybridge::keyring::{Keyring, Lending, SharedCeiling};
use keybridge_lab::{feed, run, run_with, text, write_program};
use keybridge_proto::git::{Answer, Format, MAX_KEY, Request};
use keybridge_proto::session::{Entry, Operations, Outcome, Recorder};
use keybridge_proto::ssh::{Fingerprint, KeySelection, SelectionInForce};

use crate::agent_home::{FoundAgent, Home, SshHome, gnupg, local};
use crate::ssh_wire::blob;

const COMMIT: &str = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\
    author A <a@x> 1700000000 +0100\ncommitter C <c@x> 1700000001 -0000\n\nsubject\n";

const USER: &str = "Git <git@keybridge.example>";

fn request(format: Format, key: impl AsRef<[u8]>) -> Request {
    Request { format, key: key.as_ref().to_vec(), object: COMMIT.into() }
}

async fn openpgp(gnupg: Gnupg, lend: Option<&str>) -> GitSigner {
    openpgp_with(gnupg, lend, &Operations::default()).await
}

async fn openpgp_with(gnupg: Gnupg, lend: Option<&str>, operations: &Operations) -> GitSigner {
    let lending = Lending { lend: lend.map(str::to_owned), ..Lending::default() };
    let (keyring, _) = Keyring::open(gnupg, lending, &SharedCeiling::default()).await.unwrap();
    let keys = GitKeys { openpgp: Some(Rc::new(keyring)), ssh: None };
    keys.signer(&SelectionInForce::default(), operations)
}

async fn sign(signer: &GitSigner, key: &str) -> Answer {
    signer.answer(&request(Format::Openpgp, key)).await
}

/// The key that a signature is good by.
fn verified(home: &Home, answer: &Answer) -> String {
    let Answer::Signed { status, signature } = answer else { panic!("{answer:?}") };
    // git before 2.36 finds it only behind another line.
    assert!(status.contains("\n[GNUPG:] SIG_CREATED D ") && status.ends_with('\n'), "{status}");
    std::fs::write(home.file("sig"), signature).unwrap();
    let mut verify = home.gpg(["--status-fd", "1", "--verify"]);
    let said = text(&run_with(verify.arg(home.file("sig")).arg("-"), COMMIT.as_bytes()));
    let good = said.lines().find_map(|line| line.strip_prefix("[GNUPG:] VALIDSIG "));
    let by = good.unwrap_or_else(|| panic!("{said}")).split(' ').next().unwrap().to_owned();
    assert!(status.trim_end().ends_with(&by), "{status}");
    by
}

/// A script in the place of gpg, which GnuPG's other programs don't know of.
fn with_gpg(home: &Home, script: &str) -> Gnupg {
    let path = home.file("gpg-of-test");
    write_program(&path, format!("#!/bin/sh\n{script}"));
    Gnupg { gpg: path, ..gnupg(home) }
}

/// The script runs this for a signature, and gpg for anything else.
pub fn instead_of_signing(home: &Home, script: &str) -> Gnupg {
    with_gpg(home, &format!("case \"$*\" in *-bsau*) {script} ;; *) exec gpg \"$@\" ;; esac\n"))
}

#[test]
fn a_commit_is_signed_by_the_key_that_git_named() {
    let home = Home::new();
    home.make_certify_only_key();
    home.add_key(USER);
    let [primary, signs] = [0, 1].map(|index| home.fingerprints()[index].clone());
    let other = home.fingerprint_of(USER);
    local(async {
        let signer = openpgp(gnupg(&home), None).await;
        for (name, by) in [
            (primary.clone(), &signs),
            (signs.clone(), &signs),
            (format!("{signs}!"), &signs),
            (format!("0x{}", &signs[24..]), &signs),
            ("lab@keybridge.example".into(), &signs),
            ("Who Ever <lab@keybridge.example>".into(), &signs),
            (USER.into(), &other),
        ] {
            assert_eq!(&verified(&home, &sign(&signer, &name).await), by, "{name}");
        }
        for name in [&format!("{primary}!"), "nobody@x", "", "--help", &"F".repeat(40)] {
            let answer = sign(&signer, name).await;
            assert!(matches!(answer, Answer::NotLent(_)), "{name}: {answer:?}");
        }
        // What isn't lent isn't there.
        let signer = openpgp(gnupg(&home), Some(&other)).await;
        assert_eq!(verified(&home, &sign(&signer, &other).await), other);
        for name in [&signs, &primary, "lab@keybridge.example"] {
            assert!(matches!(sign(&signer, name).await, Answer::NotLent(_)), "{name}");
        }
    });
}

#[test]
fn a_long_name_of_a_key_is_not_said_again_in_full() {
    let home = Home::with_key(USER);
    local(async {
        let signer = openpgp(gnupg(&home), None).await;
        let Answer::NotLent(why) = sign(&signer, &"\u{1}".repeat(MAX_KEY)).await else { panic!() };
        assert!(why.starts_with("\\u{1}") && why.len() < 200, "{why}");
    });
}

#[test]
fn an_address_of_two_lent_keys_signs_nothing() {
    let home = Home::with_key(USER);
    run(&mut home.gpg(["--passphrase", "", "--quick-gen-key", "Other <git@keybridge.example>"]));
    local(async {
        let signer = openpgp(gnupg(&home), None).await;
        let answer = sign(&signer, "git@keybridge.example").await;
        assert!(matches!(&answer, Answer::Failed(why) if why.contains("several")), "{answer:?}");
    });
}

#[test]
fn a_signature_has_what_gpg_in_a_target_gives_it() {
    let home = Home::with_key(USER);
    let packets = |signature: &[u8]| -> Vec<String> {
        let listed = text(&run_with(&mut home.gpg(["--list-packets"]), signature));
        let kept = listed.lines().filter(|line| {
            let line = line.trim_start();
            line.starts_with(':') || line.contains("subpkt") || line.starts_with("digest algo")
        });
        let without_hash = |line: &str| line.split(", begin").next().unwrap().to_owned();
        kept.map(without_hash).collect()
    };
    let fingerprint = home.fingerprint();
    local(async {
        let signer = openpgp(gnupg(&home), None).await;
        for name in [&fingerprint, "git@keybridge.example", USER, &format!("{fingerprint}!")] {
            let Answer::Signed { signature, status } = sign(&signer, name).await else { panic!() };
            let mut direct = home.gpg(["--status-fd=2", "-bsau", name]);
            let direct = feed(&mut direct, COMMIT.as_bytes());
            assert_eq!(packets(&signature), packets(&direct.stdout), "{name}");
            let said = text(&direct.stderr);
            let begins = said.lines().find(|line| line.starts_with("[GNUPG:] BEGIN_SIGNING "));
            assert_eq!(status.lines().next(), begins, "{name}");
        }
    });
}

#[test]
fn what_is_no_commit_is_refused_before_any_program_runs() {
    let home = Home::with_key(USER);
    local(async {
        let marker = home.file("ran");
        let gnupg = instead_of_signing(&home, &format!("touch {}", marker.display()));
        let signer = openpgp(gnupg, None).await;
        for object in [
            "a file",
            &COMMIT.replacen(
                "\nauthor",
                "\ntree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\nauthor",
                1,
            ),
            &COMMIT.replacen("\n\n", "\ngpgsig2 x\n\n", 1),
            &COMMIT.replacen("\n\n", "\n\r\n\n", 1),
            &COMMIT.replacen("subject", "sub\0ject", 1),
            &COMMIT[..60],
        ] {
            let wanted = Request { object: object.into(), ..request(Format::Openpgp, USER) };
            let answer = signer.answer(&wanted).await;
            assert!(matches!(answer, Answer::Refused(_)), "{object:?}: {answer:?}");
            let wanted = Request { key: b"nobody@x".into(), ..wanted };
            assert!(matches!(signer.answer(&wanted).await, Answer::NotLent(_)), "{object:?}");
        }
        assert!(!marker.exists());
    });
}

#[test]
fn a_signature_by_another_key_too_does_not_leave_the_host() {
    let home = Home::with_key(USER);
    home.add_key("Other <other@keybridge.example>");
    let fingerprint = home.fingerprint_of(USER);
    std::fs::write(home.file("gpg.conf"), "local-user other@keybridge.example\n").unwrap();
    local(async {
        let signer = openpgp(gnupg(&home), Some(&fingerprint)).await;
        let answer = sign(&signer, &fingerprint).await;
        assert!(matches!(&answer, Answer::Failed(why) if why.contains("local-user")), "{answer:?}");
    });
}

#[test]
fn no_setting_of_gpg_takes_a_part_of_the_object_for_something_else() {
    let home = Home::with_key(USER);
    let fingerprint = home.fingerprint();
    std::fs::write(home.file("gpg.conf"), "passphrase-fd 0\ncommand-fd 0\n").unwrap();
    local(async {
        let signer = openpgp(gnupg(&home), None).await;
        let answer = sign(&signer, &fingerprint).await;
        std::fs::remove_file(home.file("gpg.conf")).unwrap();
        assert_eq!(verified(&home, &answer), fingerprint);
    });
}

#[test]
fn what_gpg_says_is_checked() {
    let home = Home::with_key(USER);
    let fingerprint = home.fingerprint();
    let status = |kind: &str, class: &str, by: &str| {
        format!("echo '[GNUPG:] SIG_CREATED {kind} 22 8 {class} 1 {by}' >&2")
    };
    let (ours, sign_it) = (status("D", "00", &fingerprint), "gpg --batch -bsa -u lab");
    let no_signature = "echo x";
    local(async {
        for script in [
            // The right status, and no signature; the wrong status, and a signature.
            format!("cat >/dev/null; {ours}; {no_signature}"),
            format!("{}; {sign_it}", status("S", "00", &fingerprint)),
            format!("{}; {sign_it}", status("D", "01", &fingerprint)),
            format!("{}; {sign_it}", status("D", "00", &"0".repeat(40))),
            format!("{ours}; {ours}; {sign_it}"),
            "cat >/dev/null".to_owned(),
            format!("{ours}; exit 2"),
        ] {
            let signer = openpgp(instead_of_signing(&home, &script), None).await;
            let answer = sign(&signer, &fingerprint).await;
            assert!(matches!(answer, Answer::Failed(_)), "{script}: {answer:?}");
        }
    });
}

#[test]
fn gpg_gets_no_environment_and_asks_where_the_key_file_says_so() {
    let home = Home::with_key(USER);
    let noted = home.file("noted");
    let note = format!("{{ echo \"$@\"; env; }} >{}; exit 2", noted.display());
    let keygrip = home.keygrip_of(USER);
    let key_file = home.file("private-keys-v1.d").join(format!("{keygrip}.key"));
    local(async {
        let signer = openpgp(instead_of_signing(&home, &note), None).await;
        sign(&signer, USER).await;
        let said = std::fs::read_to_string(&noted).unwrap();
        let (arguments, environment) = said.split_once('\n').unwrap();
        assert!(!arguments.contains("--request-origin"), "{arguments}");
        let (options, file) = arguments.split_once(" -- ").unwrap();
        assert!(options.ends_with(&format!("-bsau {}!", home.fingerprint())), "{arguments}");
        assert!(!Path::new(file).parent().unwrap().exists(), "{file}");
        for line in environment.lines() {
            let (name, _) = line.split_once('=').unwrap();
            // The shell itself sets the last ones.
            let known = ["HOME", "GNUPGHOME", "PWD", "OLDPWD", "SHLVL", "_"];
            assert!(known.contains(&name), "{line}");
        }
        let key = std::fs::read(&key_file).unwrap();
        std::fs::write(&key_file, [b"Confirm: restricted\n", &key[..]].concat()).unwrap();
        sign(&signer, USER).await;
        let said = std::fs::read_to_string(&noted).unwrap();
        assert!(said.lines().next().unwrap().contains("--request-origin remote"), "{said}");
    });
}

#[test]
fn a_cancelled_dialog_is_a_refusal_and_does_not_come_again_at_once() {
    let home = Home::new();
    let words = ["--pinentry-mode", "loopback", "--passphrase", "secret", "--quick-gen-key", USER];
    run(home.gpg(words).args(["ed25519", "sign", "never"]));
    let (pinentry, asked) = (home.file("pinentry-of-test"), home.file("asked"));
    write_program(
        &pinentry,
        format!(
            "#!/bin/sh\necho OK\nwhile read -r verb rest; do case $verb in\n\
             GETPIN) echo asked >>{}; echo 'ERR 83886179 Operation cancelled <Pinentry>' ;;\n\
             BYE) echo OK; exit ;;\n*) echo OK ;;\nesac; done\n",
            asked.display()
        ),
    );
    let configuration = format!("pinentry-program {}\n", pinentry.display());
    std::fs::write(home.file("gpg-agent.conf"), configuration).unwrap();
    home.end_agents();
    local(async {
        let signer = openpgp(gnupg(&home), None).await;
        for _ in 0..3 {
            let answer = sign(&signer, USER).await;
            assert!(
                matches!(&answer, Answer::Refused(why) if why.contains("cancelled")),
                "{answer:?}"
            );
        }
        assert_eq!(std::fs::read_to_string(&asked).unwrap().lines().count(), 1);
        // Nor for those that have waited meanwhile: four are under way at once.
        std::fs::remove_file(&asked).unwrap();
        let operations = Operations::default();
        let recorder = Rc::new(Narrowing::default());
        operations.record_with(recorder.clone());
        let signer = openpgp_with(gnupg(&home), None, &operations).await;
        let mut waiting = tokio::task::JoinSet::new();
        for _ in 0..12 {
            let signer = signer.clone();
            waiting.spawn_local(async move { sign(&signer, USER).await });
        }
        for answer in waiting.join_all().await {
            assert!(matches!(&answer, Answer::Refused(_)), "{answer:?}");
        }
        assert!(std::fs::read_to_string(&asked).unwrap().lines().count() <= 4);
        let ended = recorder.ended.borrow();
        assert!(ended.iter().all(|outcome| *outcome == Outcome::Cancelled), "{ended:?}");
    });
}

#[test]
fn a_host_without_gpg_or_a_secret_half_says_so() {
    let home = Home::with_key(USER);
    let fingerprint = home.fingerprint();
    local(async {
        let gone = with_gpg(&home, "exec gpg \"$@\"\n");
        let signer = openpgp(gone.clone(), None).await;
        std::fs::remove_file(&gone.gpg).unwrap();
        let answer = sign(&signer, &fingerprint).await;
        // By then the keys may have to be listed again, or not.
        let is_said = |why: &str| {
            why.contains("list its keys") || why.contains("can't start gpg on the host")
        };
        assert!(matches!(&answer, Answer::Failed(why) if is_said(why)), "{answer:?}");
        // The key's card isn't in, for example.
        let script = "echo 'gpg: signing failed: Card not present' >&2; exit 2";
        let signer = openpgp(instead_of_signing(&home, script), None).await;
        let answer = sign(&signer, &fingerprint).await;
        let is_said = |why: &String| why.ends_with("gpg: signing failed: Card not present");
        assert!(matches!(&answer, Answer::Failed(why) if is_said(why)), "{answer:?}");
    });
}

fn ssh(home: &SshHome, words: Option<&[&str]>) -> GitSigner {
    let chosen = words.map(|words| KeySelection::of_words(words.iter().copied()).unwrap());
    let keys = GitKeys { openpgp: None, ssh: Some(home.dialer()) };
    keys.signer(&SelectionInForce::new(chosen.unwrap_or_default()), &Operations::default())
}

/// Whether ssh-keygen says that it is a signature of the commit.
fn is_good(home: &SshHome, signature: &[u8]) -> bool {
    let path = home.file("sig");
    std::fs::write(&path, signature).unwrap();
    let mut check = home.command("ssh-keygen");
    check.args(["-Y", "check-novalidate", "-n", "git", "-s"]).arg(&path);
    feed(&mut check, COMMIT.as_bytes()).status.success()
}

#[test]
fn ssh_keygen_signs_with_a_lent_key_of_the_agent() {
    let home = SshHome::started();
    for key in ["work", "home", "elsewhere"] {
        home.make_key(key);
    }
    home.add(&["-q", "work", "home"]);
    let key = |name: &str| home.public_key(name);
    local(async {
        let signer = ssh(&home, None);
        for name in ["work", "home"] {
            let answer = signer.answer(&request(Format::Ssh, key(name))).await;
            let Answer::Signed { status, signature } = answer else { panic!("{name}: {answer:?}") };
            assert!(status.is_empty() && is_good(&home, &signature), "{name}");
        }
        // A key that the agent doesn't have, other words, a path.
        let path = home.file("work").display().to_string();
        for name in [&key("elsewhere"), "", "ssh-ed25519 AAAA", &path, "-f"] {
            let answer = signer.answer(&request(Format::Ssh, name)).await;
            assert!(matches!(answer, Answer::NotLent(_)), "{name}: {answer:?}");
        }
        let print = Fingerprint::of(&blob(&home, "work")).unwrap().to_string();
        for words in [&[&*print][..], &["wo*"]] {
            let signer = ssh(&home, Some(words));
            let answer = signer.answer(&request(Format::Ssh, key("work"))).await;
            assert!(matches!(answer, Answer::Signed { .. }), "{answer:?}");
            let answer = signer.answer(&request(Format::Ssh, key("home"))).await;
            assert!(matches!(answer, Answer::NotLent(_)), "{answer:?}");
            // What it is told of a key that the agent hasn't says no more.
            let other = signer.answer(&request(Format::Ssh, key("elsewhere"))).await;
            assert_eq!(answer, other);
        }
        home.kill();
        let answer = signer.answer(&request(Format::Ssh, key("work"))).await;
        assert!(matches!(answer, Answer::Failed(_)), "{answer:?}");
    });
}

/// Lends no ssh key any more once an operation is asked for, and notes how it ends.
#[derive(Default)]
struct Narrowing {
    keys: SelectionInForce,
    ended: RefCell<Vec<Outcome>>,
}

impl Recorder for Narrowing {
    fn is_ready(&self) -> bool {
        self.keys.set(KeySelection::of_words(["none"]).unwrap());
        true
    }

    fn record(&self, entry: &Entry<'_>) {
        self.ended.borrow_mut().push(entry.outcome);
    }
}

#[test]
fn a_key_that_is_not_lent_any_more_when_its_turn_comes_is_recorded_as_refused() {
    let home = SshHome::with_key();
    local(async {
        let keys = SelectionInForce::default();
        let operations = Operations::default();
        let recorder = Rc::new(Narrowing { keys: keys.clone(), ended: RefCell::default() });
        operations.record_with(recorder.clone());
        let dialer = GitKeys { openpgp: None, ssh: Some(home.dialer()) };
        let signer = dialer.signer(&keys, &operations);
        let answer = signer.answer(&request(Format::Ssh, home.public_key("key"))).await;
        assert!(matches!(answer, Answer::NotLent(_)), "{answer:?}");
        assert_eq!(*recorder.ended.borrow(), [Outcome::Refused]);
    });
}

#[test]
fn a_host_without_an_ssh_agent_leaves_ssh_keys_to_the_target() {
    let home = SshHome::with_key();
    let key = home.public_key("key");
    home.kill();
    local(async {
        let answer = ssh(&home, None).answer(&request(Format::Ssh, key)).await;
        assert!(matches!(answer, Answer::NotLent(_)), "{answer:?}");
    });
}

#[test]
fn a_kind_of_key_that_is_not_lent_is_another_programs() {
    let home = SshHome::with_key();
    local(async {
        let signer = ssh(&home, None);
        let answer = signer.answer(&request(Format::Openpgp, USER)).await;
        assert!(matches!(answer, Answer::NotLent(_)), "{answer:?}");
        let nothing = GitKeys { openpgp: None, ssh: None };
        let nothing = nothing.signer(&SelectionInForce::default(), &Operations::default());
        let answer = nothing.answer(&request(Format::Ssh, home.public_key("key"))).await;
        assert!(matches!(answer, Answer::NotLent(_)), "{answer:?}");
    });
}
