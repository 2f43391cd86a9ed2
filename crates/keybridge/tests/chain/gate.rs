//! What a target can do is what was lent, with a real gpg-agent and a recorder before it.

use std::process::Command;

use crate::lab::{
    self, Client, FORBIDDEN, Lab, Recorder, is_allowed, lines, output, run, run_with, send_all,
    text, verbs,
};

const NO_SECRET_KEY: &str = "ERR 67108881 No secret key <GPG Agent>\n";
const HASH: &str = "SETHASH 8 0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF";

#[test]
fn only_lines_of_the_table_reach_the_agent() {
    let lab = Lab::with_key();
    let recorder = Recorder::before(&lab.host);
    let bridge = lab.up();
    let keygrips = lab.host.keygrips();
    let mut tried = keygrips.clone();
    tried.push("F".repeat(40));
    let lines = lines(&verbs(&lab.host.socket()), &tried);
    recorder.clear();
    send_all(&bridge.socket(), &lines, &keygrips[1]);
    let arrived = recorder.lines();
    let passed: Vec<&String> = arrived.iter().filter(|line| !is_allowed(line, &keygrips)).collect();
    assert!(passed.is_empty(), "{passed:?}");
    // It isn't empty because nothing works.
    let mut client = Client::greeted(&bridge.socket());
    for line in [format!("SIGKEY {}", keygrips[0]), HASH.to_owned(), "PKSIGN".to_owned()] {
        assert!(client.ask(&line).ends_with("OK\n"), "{line}");
    }
    drop(client);
    bridge.stop();
}

/// `keybridge` with a folder for bridges in the background.
fn background(lab: &Lab, words: &[&str]) -> Command {
    let runtime = lab.at("run");
    if !runtime.exists() {
        lab::make_private(&runtime);
    }
    let mut command = lab.keybridge();
    command.env("XDG_RUNTIME_DIR", &runtime).args(words);
    command
}

/// Ends the helper of a bridge in the background, as a hostile target would have it.
fn kill_helper(lab: &Lab) {
    let said = |process: &std::path::Path, what: &str| {
        text(&std::fs::read(process.join(what)).unwrap_or_default()).replace('\0', " ")
    };
    let mut ended = 0;
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let path = process.path();
        let line = said(&path, "cmdline");
        if line.contains("keybridge-remote")
            && line.contains(" serve ")
            && said(&path, "environ").contains(lab.folder().to_str().unwrap())
        {
            let pid = process.file_name().to_str().unwrap().parse().unwrap();
            lab::signal(pid, rustix::process::Signal::KILL);
            ended += 1;
        }
    }
    assert_eq!(ended, 1);
}

/// Ends the bridges in the background that a failed test has left.
struct EndBridges<'a>(&'a Lab);

impl Drop for EndBridges<'_> {
    fn drop(&mut self) {
        let _ = background(self.0, &["down", "--all"]).output();
    }
}

/// What a careful person has: a primary key that certifies, two subkeys that sign, one that
/// decrypts, one for logins; and a second key.
struct Keys {
    lab: Lab,
    certifies: String,
    signs: [String; 2],
    decrypts: String,
    logs_in: String,
    /// The keygrips of the second key: it signs, and it decrypts.
    second: [String; 2],
}

impl Keys {
    fn new() -> Self {
        let lab = Lab::empty();
        lab.host.make_certify_only_key();
        let primary = lab.host.fingerprint();
        for usage in ["sign", "auth"] {
            let words =
                ["--passphrase", "", "--quick-add-key", &primary, "ed25519", usage, "never"];
            run(&mut lab.host.gpg(words));
        }
        let [certifies, first, decrypts, other, logs_in] =
            <[String; 5]>::try_from(lab.host.keygrips()).unwrap();
        let words = ["--passphrase", "", "--quick-gen-key", "second@keybridge.example"];
        run(&mut lab.host.gpg(words.into_iter().chain(["future-default", "default", "never"])));
        let all = lab.host.keygrips();
        let second = [all[5].clone(), all[6].clone()];
        Self { lab, certifies, signs: [first, other], decrypts, logs_in, second }
    }

    /// The keygrips with which a target can sign and decrypt, of all that there are.
    fn usable(&self, socket: &std::path::Path) -> (Vec<String>, Vec<String>) {
        let mut client = Client::greeted(socket);
        let (mut signing, mut decrypting) = (Vec::new(), Vec::new());
        for keygrip in self.lab.host.keygrips() {
            for choose in ["SIGKEY", "SETKEY"] {
                client.ask("RESET");
                assert_eq!(client.ask(format!("{choose} {keygrip}")), "OK\n");
                assert_eq!(client.ask(HASH), "OK\n");
                let answer = client.ask("PKSIGN");
                let signs = answer.contains("sig-val");
                assert!(signs || [FORBIDDEN, NO_SECRET_KEY].contains(&answer.as_str()), "{answer}");
                if signs && choose == "SIGKEY" {
                    signing.push(keygrip.clone());
                }
                let answer = client.ask("PKDECRYPT");
                let decrypts = answer.ends_with("INQUIRE CIPHERTEXT\n");
                if decrypts {
                    client.ask("CAN");
                }
                if decrypts && choose == "SIGKEY" {
                    decrypting.push(keygrip.clone());
                }
            }
        }
        (signing, decrypting)
    }

    /// The keygrips that gpg in the target has secret keys for.
    fn seen(&self) -> Vec<String> {
        let listing = run(&mut self.lab.target.gpg(["-K", "--with-keygrip", "--with-colons"]));
        let mut is_there = false;
        let mut seen = Vec::new();
        for line in text(&listing).lines() {
            let fields: Vec<&str> = line.split(':').collect();
            match fields[0] {
                "sec" | "ssb" => is_there = fields[14] != "#",
                "grp" if is_there => seen.push(fields[9].to_owned()),
                _ => {}
            }
        }
        seen
    }
}

#[test]
fn only_what_is_lent_is_seen_and_used() {
    let keys = Keys::new();
    let [first, other] = keys.signs.clone();
    let [second_signs, second_decrypts] = keys.second.clone();
    let fingerprints = keys.lab.host.fingerprints();
    let owner = "lab@keybridge.example";
    let both = vec![first.clone(), other.clone()];
    let decrypts = vec![keys.decrypts.clone()];
    let all_sign = vec![first.clone(), other.clone(), second_signs];
    let all_decrypt = vec![keys.decrypts.clone(), second_decrypts];
    let exactly = format!("{}!", fingerprints[3]);
    let keygrip = format!("&{first}");
    let with_primary = vec![keys.certifies.clone(), first.clone(), other.clone()];
    for (arguments, signing, decrypting) in [
        (&["--lend", owner][..], both.clone(), decrypts.clone()),
        (&["--lend", &fingerprints[0]], both.clone(), decrypts.clone()),
        (&["--keys", owner], both.clone(), decrypts.clone()),
        (&["--lend", &exactly], vec![other.clone()], vec![]),
        (&["--lend", &keygrip], vec![first.clone()], vec![]),
        (&["--lend", owner, "--uses", "sign"], both.clone(), vec![]),
        (&["--lend", owner, "--uses", "decrypt"], vec![], decrypts.clone()),
        (&["--lend", owner, "--uses", "sign,certify"], with_primary, vec![]),
        (&[], all_sign, all_decrypt),
    ] {
        let bridge = keys.lab.up_with(arguments);
        let (mut signing, mut decrypting) = (signing, decrypting);
        let mut usable = keys.usable(&bridge.socket());
        for list in [&mut signing, &mut decrypting, &mut usable.0, &mut usable.1] {
            list.sort();
        }
        assert_eq!(usable, (signing.clone(), decrypting.clone()), "{arguments:?}");
        let mut lent = [signing, decrypting].concat();
        let mut seen = keys.seen();
        seen.sort();
        lent.sort();
        assert_eq!(seen, lent, "{arguments:?}");
        assert!(!usable.0.contains(&keys.logs_in) && !seen.contains(&keys.logs_in));
        bridge.stop();
    }
}

#[test]
fn a_target_that_may_not_sign_does_not_sign_by_decrypting() {
    let lab = Lab::empty();
    let words = ["--passphrase", "", "--quick-gen-key", "rsa@x", "rsa2048", "sign,encr", "never"];
    run(&mut lab.host.gpg(words));
    for (uses, answer) in [("sign,decrypt", "INQUIRE CIPHERTEXT\n"), ("decrypt", NO_SECRET_KEY)] {
        let bridge = lab.up_with(&["--uses", uses]);
        let mut client = Client::greeted(&bridge.socket());
        client.ask(format!("SETKEY {}", lab.host.keygrips()[0]));
        assert!(client.ask("PKDECRYPT").ends_with(answer), "{uses}");
        drop(client);
        bridge.stop();
    }
}

#[test]
fn an_expired_key_decrypts_and_no_longer_signs() {
    let lab = Lab::with_key();
    let fingerprint = lab.host.fingerprint();
    let bridge = lab.up();
    let words = ["--encrypt", "--trust-model", "always", "-r", &fingerprint];
    let secret = run_with(&mut lab.host.gpg(words), b"old mail");
    // From now on, without a restart: the keyring's file changes.
    for what in [&[][..], &["*"]] {
        let words = ["--quick-set-expire", &fingerprint, "seconds=1"];
        run(&mut lab.host.gpg(words.iter().chain(what)));
    }
    lab::eventually("the key has expired", || {
        let listing = run(&mut lab.host.gpg(["-K", "--with-colons"]));
        text(&listing).lines().filter(|line| line.starts_with('s')).all(|line| line.contains(":e:"))
    });
    assert_eq!(text(&run_with(&mut lab.target.gpg(["--decrypt"]), &secret)), "old mail");
    let mut client = Client::greeted(&bridge.socket());
    client.ask(format!("SIGKEY {}", lab.host.keygrips()[0]));
    client.ask(HASH);
    assert_eq!(client.ask("PKSIGN"), NO_SECRET_KEY);
    drop(client);
    bridge.stop();
}

#[test]
fn words_that_name_no_key_are_refused_with_what_there_is() {
    let lab = Lab::with_key();
    for (arguments, message) in [
        (["--lend", "nobody@x"], "no secret key matches nobody@x"),
        (["--lend", "&0123"], "no secret key matches &0123"),
        (["--keys", "nobody@x"], "no public key matches nobody@x"),
    ] {
        let refused = output(&mut lab.up_command(&arguments));
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains(message), "{said}");
        assert!(said.contains(&lab.host.fingerprint()), "{said}");
    }
    let refused = output(&mut lab.up_command(&["--uses", "authenticate"]));
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("login and sshsig"), "{}", text(&refused.stderr));
}

#[test]
fn a_home_without_secret_keys_is_bridged_with_a_warning() {
    let lab = Lab::empty();
    let _end = EndBridges(&lab);
    let address = lab::local(lab.target.path());
    let up = output(&mut background(&lab, &["up", &address]));
    let said = text(&up.stdout) + &text(&up.stderr);
    assert!(up.status.success() && said.contains("there is no secret key"), "{said}");
    assert_eq!(Client::greeted(&lab.target.socket()).ask("HAVEKEY --list"), "OK\n");
    run(&mut background(&lab, &["down", &address]));
}

#[test]
fn a_gpg_that_breaks_takes_the_keys_away_and_status_says_why() {
    let mut lab = Lab::with_key();
    // At home alone: the target has the same programs here.
    let broken = "case $GNUPGHOME in */h) test -e \"$HOME/broken\" && \
                  { echo 'gpg: it is broken' >&2; exit 2; };; esac";
    let real = "PATH=${PATH#*:} exec gpg \"$@\"";
    lab.put_before("gpg", &format!("{broken}\n{real}\n"));
    let _end = EndBridges(&lab);
    let address = lab::local(lab.target.path());
    let keybridge = |words: &[&str]| text(&run(&mut background(&lab, words)));
    keybridge(&["up", &address]);
    let grip = &lab.host.keygrips()[0];
    let asked = || Client::greeted(&lab.target.socket()).ask(format!("HAVEKEY {grip}"));
    assert_eq!(asked(), "OK\n");
    std::fs::write(lab.at("home").join("broken"), "").unwrap();
    // Its files have to change for it to be asked again.
    run(&mut lab.host.gpg(["--passphrase", "", "--quick-gen-key", "new@x", "ed25519", "sign"]));
    assert_eq!(asked(), NO_SECRET_KEY);
    let status = keybridge(&["status"]);
    assert!(status.contains("no key is lent") && status.contains("it is broken"), "{status}");
    // A link that is made again lives without them too.
    kill_helper(&lab);
    lab::eventually("the link is made again", || {
        let status = keybridge(&["status", "--json"]);
        status.contains("\"reconnects\":1") && status.contains("\"ready\"")
    });
    assert_eq!(asked(), NO_SECRET_KEY);
    assert!(keybridge(&["status"]).contains("it is broken"));
    std::fs::remove_file(lab.at("home").join("broken")).unwrap();
    lab::eventually("the keys are back", || asked() == "OK\n");
    assert!(!keybridge(&["status"]).contains("no key is lent"));
    keybridge(&["down", &address]);
}

#[test]
fn a_second_up_lends_other_keys_and_widens_nothing_by_itself() {
    let keys = Keys::new();
    let lab = &keys.lab;
    let _end = EndBridges(lab);
    let address = lab::local(lab.target.path());
    let keybridge = |words: &[&str]| output(&mut background(lab, words));
    let done = |words: &[&str]| {
        let output = keybridge(words);
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        let status = text(&keybridge(&["status", "--json"]).stdout);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        status["bridges"][0].clone()
    };
    let usable = || keys.usable(&lab.target.socket());
    let first = done(&["up", &address]);
    assert_eq!((usable().0.len(), usable().1.len()), (3, 2));
    assert_eq!(first["lanes"]["gpg"]["keys"], 5);
    let narrowed = done(&["up", "--lend", &format!("&{}", keys.signs[0]), &address]);
    assert_eq!(usable(), (vec![keys.signs[0].clone()], vec![]));
    assert_eq!((&narrowed["pid"], &narrowed["reconnects"]), (&first["pid"], &first["reconnects"]));
    // Neither another up nor a run lends more than was said last.
    let again = keybridge(&["up", &address]);
    let said = text(&again.stdout) + &text(&again.stderr);
    assert!(
        again.status.success() && said.contains("keeps what was set before for lend:"),
        "{said}"
    );
    assert_eq!(narrowed["lending"]["lend"], format!("&{}", keys.signs[0]));
    assert_eq!(usable(), (vec![keys.signs[0].clone()], vec![]));
    let refused = keybridge(&["up", "--lend", "nobody@x", &address]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("no secret key matches nobody@x"));
    assert_eq!(usable(), (vec![keys.signs[0].clone()], vec![]));
    done(&["up", "--lend", "pairs", "--uses", "decrypt", &address]);
    assert_eq!((usable().0.len(), usable().1.len()), (0, 2));
    done(&["down", &address]);
}

/// A home with the keys of the transcript `claimed`: a primary key that certifies, a subkey that signs
/// and one for logins. Their keygrips.
fn victim(lab: &Lab) -> [String; 3] {
    let secret = include_bytes!("../golden/claimed/victim-secret.asc");
    run_with(&mut lab.host.gpg(["--import"]), secret);
    lab.host.keygrips().try_into().unwrap()
}

#[test]
fn a_stranger_who_claims_the_users_keys_as_subkeys_gains_nothing() {
    let lab = Lab::empty();
    let grips = victim(&lab);
    let trust = format!("{}:6:\n", lab.host.fingerprint());
    run_with(&mut lab.host.gpg(["--import-ownertrust"]), trust.as_bytes());
    for arguments in [&[][..], &["--lend", "me@victim.example"]] {
        let _ = output(&mut lab.host.gpg([
            "--yes",
            "--delete-keys",
            "D1CC7BF88DF7D92E131F44C8FDCBCF0449776605",
        ]));
        let bridge = lab.up_with(arguments);
        let usable = || {
            let mut client = Client::greeted(&bridge.socket());
            let signs = |grip: &&String| {
                client.ask("RESET");
                client.ask(format!("SIGKEY {grip}"));
                client.ask(HASH);
                client.ask("PKSIGN").contains("sig-val")
            };
            grips.iter().filter(signs).cloned().collect::<Vec<_>>()
        };
        assert_eq!(usable(), [grips[1].clone()], "{arguments:?}");
        // It has the same address, and a signing use for each of them.
        run_with(&mut lab.host.gpg(["--import"]), include_bytes!("../golden/claimed/hostile.pgp"));
        let listing = text(&run(&mut lab.host.gpg(["-K", "--with-colons"])));
        assert_eq!(listing.matches("::s:::+").count(), 4, "{listing}");
        assert_eq!(usable(), [grips[1].clone()], "{arguments:?}");
        bridge.stop();
    }
}

#[test]
fn subkeys_of_an_unknown_primary_key_are_lent_when_they_are_named() {
    let lab = Lab::empty();
    let grips = victim(&lab);
    // As people have it on a second machine.
    std::fs::remove_file(lab.host.file("private-keys-v1.d").join(format!("{}.key", grips[0])))
        .unwrap();
    let _end = EndBridges(&lab);
    let address = lab::local(lab.target.path());
    let up = output(&mut background(&lab, &["up", &address]));
    let said = text(&up.stdout) + &text(&up.stderr);
    let subkey = lab.host.fingerprints()[1].clone();
    assert!(said.contains(&format!("name it with --lend {subkey}!")), "{said}");
    let asked = || Client::greeted(&lab.target.socket()).ask(format!("HAVEKEY {}", grips[1]));
    assert_eq!(asked(), NO_SECRET_KEY);
    run(&mut background(&lab, &["up", "--lend", &format!("{subkey}!"), &address]));
    assert_eq!(asked(), "OK\n");
    run(&mut background(&lab, &["up", "--lend", "pairs", &address]));
    assert_eq!(asked(), NO_SECRET_KEY);
    run_with(
        &mut lab.host.gpg(["--import-ownertrust"]),
        format!("{}:6:\n", lab.host.fingerprint()).as_bytes(),
    );
    assert_eq!(asked(), NO_SECRET_KEY, "nobody has run up");
    run(&mut background(&lab, &["up", &address]));
    assert_eq!(asked(), "OK\n", "trusted as one's own");
    run(&mut background(&lab, &["down", &address]));
}

#[test]
fn public_keys_of_other_identities_stay_at_home() {
    let keys = Keys::new();
    let bridge = keys.lab.up_with(&["--lend", "lab@keybridge.example"]);
    let listing = text(&run(&mut keys.lab.target.gpg(["-k"])));
    assert!(listing.contains("lab@keybridge.example"), "{listing}");
    assert!(!listing.contains("second@keybridge.example"), "{listing}");
    bridge.stop();
}

#[test]
fn a_link_that_is_dragged_out_does_not_keep_what_is_no_longer_lent() {
    let mut keys = Keys::new();
    // Another helper takes the place of the one that other tests use.
    keys.lab.set_cache(keys.lab.at("cache"));
    let lab = &keys.lab;
    let _end = EndBridges(lab);
    let address = lab::local(lab.target.path());
    let real =
        std::path::Path::new(env!("CARGO_BIN_EXE_keybridge")).with_file_name("keybridge-remote");
    let (slow, gate) = (lab.at("slow"), lab.at("gate"));
    run(lab.host.command("mkfifo").arg(&gate));
    let script = format!(
        "#!/bin/sh\ncase $1 in serve) test -e {} && {{ echo >{}; cat {}; }};; esac\nexec {} \"$@\"\n",
        slow.display(),
        lab.at("waits").display(),
        gate.display(),
        real.display()
    );
    let helper = lab.at("helper");
    lab::write_program(&helper, script);
    let helper = helper.to_str().unwrap();
    run(&mut background(lab, &["up", "--helper-program", helper, &address]));
    assert_eq!(keys.usable(&lab.target.socket()).0.len(), 3);
    std::fs::write(&slow, "").unwrap();
    kill_helper(lab);
    lab::eventually("the next helper waits", || lab.at("waits").exists());
    std::fs::remove_file(&slow).unwrap();
    let narrowing = format!("&{}", keys.signs[0]);
    let mut narrow = background(lab, &["up", "--lend", &narrowing, &address]).spawn().unwrap();
    lab::eventually("the bridge has heard of it", || {
        let status = text(&run(&mut background(lab, &["status", "--json"])));
        assert!(!status.contains("\"ready\""), "{status}");
        status.contains(&keys.signs[0])
    });
    std::fs::write(&gate, "").unwrap();
    assert!(narrow.wait().unwrap().success());
    assert_eq!(keys.usable(&lab.target.socket()), (vec![keys.signs[0].clone()], vec![]));
    run(&mut background(lab, &["down", &address]));
}
