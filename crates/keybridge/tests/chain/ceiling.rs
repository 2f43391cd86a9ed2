//! A bridge never lends more than `up` showed, and a connected client never what was taken away.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keybridge_lab::Home;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::forged_block::forge;
use crate::lab::{self, Client, Lab, eventually, is_alive, run, run_with, signal, text};
use crate::settings::Scene;

const NO_SECRET_KEY: &str = "ERR 67108881 No secret key <GPG Agent>\n";
const FORBIDDEN: &str = "ERR 67109115 Forbidden <GPG Agent>\n";
const HASH: &str = "SETHASH 8 0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF0123456789ABCDEF";

/// What a new client hears of a key.
fn asked(scene: &Scene, keygrip: &str) -> String {
    Client::greeted(&scene.lab.target.socket()).ask(format!("HAVEKEY {keygrip}"))
}

/// A client that has chosen a key and a hash, and has signed with it once.
fn signing(scene: &Scene, keygrip: &str) -> Client {
    let mut client = Client::greeted(&scene.lab.target.socket());
    client.ask(format!("SIGKEY {keygrip}"));
    client.ask(HASH);
    assert!(client.ask("PKSIGN").contains("sig-val"));
    client
}

/// Makes a key at home, and gives back its keygrip.
fn new_key(lab: &Lab, user: &str) -> String {
    lab.host.add_key(user);
    lab.host.keygrip_of(user)
}

fn kill(scene: &Scene) {
    let pid = u32::try_from(scene.status()["pid"].as_u64().unwrap()).unwrap();
    signal(pid, Signal::KILL);
    eventually("the process has ended", || !is_alive(pid));
}

#[test]
fn a_new_key_at_home_is_never_lent_before_another_up() {
    let scene = Scene::new();
    let first = scene.lab.host.keygrips()[0].clone();
    scene.up(&[]);
    let new = new_key(&scene.lab, "new@x");
    assert_eq!(asked(&scene, &new), NO_SECRET_KEY);
    let warning = "1 new key isn't lent: run up again";
    assert!(scene.keybridge(&["status"]).contains(warning));
    assert!(scene.keybridge(&["logs", &scene.address]).contains(warning));
    assert_eq!(scene.status()["lanes"]["gpg"]["held_back"], 1);
    // Nobody but a person's `up` changes that.
    for words in [
        &["sync", &scene.address][..],
        &["run", &scene.address, "--", "true"],
        &["doctor", "--fix", "--yes", &scene.address],
    ] {
        let _ = scene.try_keybridge(words);
        assert_eq!(asked(&scene, &new), NO_SECRET_KEY, "{words:?}");
    }
    let mut up = scene.lab.keybridge();
    up.env("XDG_RUNTIME_DIR", scene.lab.at("run")).args(["up", &scene.address]);
    run(up.env("KEYBRIDGE_IN_A_FIX", "1"));
    assert_eq!(asked(&scene, &new), NO_SECRET_KEY, "a fix of doctor's");
    let mut connected = signing(&scene, &first);
    assert_eq!(connected.ask(format!("HAVEKEY {new}")), NO_SECRET_KEY);
    scene.up(&[]);
    assert_eq!(asked(&scene, &new), "OK\n");
    assert_eq!(connected.ask(format!("HAVEKEY {new}")), "OK\n");
    assert!(!scene.keybridge(&["status"]).contains("isn't lent"));
}

#[test]
fn a_bridge_that_was_killed_never_lends_more_when_it_is_started_again() {
    let scene = Scene::new();
    scene.up(&[]);
    let new = new_key(&scene.lab, "new@x");
    kill(&scene);
    scene.keybridge(&["run", &scene.address, "--", "true"]);
    assert_eq!(asked(&scene, &new), NO_SECRET_KEY);
    kill(&scene);
    let again = scene.try_keybridge(&["up", &scene.address]);
    let said = text(&again.stdout) + &text(&again.stderr);
    assert!(said.contains("1 new key isn't lent: run up again"), "{said}");
    assert_eq!(asked(&scene, &new), NO_SECRET_KEY);
    scene.up(&[]);
    assert_eq!(asked(&scene, &new), "OK\n");
    // Who names keys means these.
    let other = new_key(&scene.lab, "other@x");
    kill(&scene);
    scene.up(&["--lend", &format!("&{other}")]);
    assert_eq!(asked(&scene, &other), "OK\n");
    // Who ends it starts anew.
    let last = new_key(&scene.lab, "last@x");
    scene.keybridge(&["down", &scene.address]);
    scene.up(&[]);
    assert_eq!(asked(&scene, &last), "OK\n");
}

#[test]
fn nothing_is_lent_by_a_record_of_what_may_be_lent_that_is_missing_or_damaged() {
    let scene = Scene::new();
    let first = scene.lab.host.keygrips()[0].clone();
    scene.up(&[]);
    for damaged in [None, Some("{\"keys\": 7}")] {
        kill(&scene);
        damage(&scene, "ceiling.json", damaged);
        is_refused_to_run(&scene);
        scene.up(&[]);
        assert_eq!(asked(&scene, &first), "OK\n");
    }
}

#[test]
fn nothing_is_lent_without_a_word_by_settings_that_are_missing_or_damaged() {
    let scene = Scene::new();
    let signs = scene.lab.host.keygrips()[0].clone();
    for damaged in [None, Some("{\"options\": 7}")] {
        scene.up(&["--lend", &format!("&{signs}"), "--uses", "sign"]);
        kill(&scene);
        damage(&scene, "settings.json", damaged);
        is_refused_to_run(&scene);
        let new = new_key(&scene.lab, &format!("{damaged:?}@x"));
        let shown = scene.up(&[]);
        let warned = shown.contains("what was set for the last bridge isn't known any more");
        assert!(warned && shown.contains("lent: "), "{shown}");
        assert_eq!(asked(&scene, &new), NO_SECRET_KEY, "what it could lend is known");
        scene.keybridge(&["down", &scene.address]);
    }
}

/// Removes a file that a bridge keeps, or puts another text into it.
fn damage(scene: &Scene, name: &str, text: Option<&str>) {
    let folders = std::fs::read_dir(scene.lab.at("run/keybridge")).unwrap().flatten();
    let files = folders.map(|folder| folder.path().join(name));
    let files: Vec<_> = files.filter(|file| file.exists()).collect();
    let [file] = files.as_slice() else { panic!("{files:?}") };
    match text {
        Some(text) => std::fs::write(file, text).unwrap(),
        None => std::fs::remove_file(file).unwrap(),
    }
}

/// `run` starts no bridge, and says who can.
#[track_caller]
fn is_refused_to_run(scene: &Scene) {
    let refused = scene.try_keybridge(&["run", &scene.address, "--", "true"]);
    let said = text(&refused.stderr);
    assert!(!refused.status.success() && said.contains("run `keybridge up` again"), "{said}");
}

#[test]
fn a_reading_that_fails_never_takes_away_more_than_until_the_next_one() {
    let mut lab = Lab::with_key();
    let broken = "case $GNUPGHOME in */h) test -e \"$HOME/broken\" && exit 2;; esac";
    lab.put_before("gpg", &format!("{broken}\nPATH=${{PATH#*:}} exec gpg \"$@\"\n"));
    lab::make_private(&lab.at("run"));
    let address = lab::local(lab.target.path());
    let scene = Scene { lab, address };
    let first = scene.lab.host.keygrips()[0].clone();
    scene.up(&[]);
    let mut client = signing(&scene, &first);
    std::fs::write(scene.lab.at("home/broken"), "").unwrap();
    let new = new_key(&scene.lab, "new@x");
    assert_eq!(client.ask("PKSIGN"), NO_SECRET_KEY);
    std::fs::remove_file(scene.lab.at("home/broken")).unwrap();
    eventually("the key is back for the same client", || client.ask("PKSIGN").contains("sig-val"));
    assert_eq!(asked(&scene, &new), NO_SECRET_KEY);
}

#[test]
fn a_key_is_never_taken_for_ones_own_while_gpgsm_fails() {
    let mut lab = Lab::with_key();
    lab.put_before("gpgsm", "exit 2\n");
    lab::make_private(&lab.at("run"));
    let address = lab::local(lab.target.path());
    let scene = Scene { lab, address };
    let (first, key) = (scene.lab.host.keygrips()[0].clone(), scene.lab.host.fingerprint());
    scene.up(&[]);
    assert_eq!(asked(&scene, &first), "OK\n", "it is trusted ultimately");
    run_with(&mut scene.lab.host.gpg(["--import-ownertrust"]), format!("{key}:3:\n").as_bytes());
    let shown = scene.up(&[]);
    assert!(shown.contains(&format!("name it with --lend {key}! if it is yours")), "{shown}");
    assert_eq!(asked(&scene, &first), NO_SECRET_KEY);
    scene.up(&["--lend", &format!("{key}!")]);
    assert_eq!(asked(&scene, &first), "OK\n");
}

/// A host with a subkey that signs, and two keys for ssh in its gpg-agent that no block has; only the first
/// is in `sshcontrol`. The public halves of these, and their keygrips.
fn with_ssh_keys() -> (Scene, [[u8; 32]; 2], [String; 2]) {
    let lab = Lab::empty();
    lab.host.make_certify_only_key();
    lab::make_private(&lab.at("run"));
    let elsewhere = ["one@ssh", "two@ssh"].map(Home::with_key);
    let grips = [0, 1].map(|at| elsewhere[at].keygrips()[0].clone());
    for (home, grip) in elsewhere.iter().zip(&grips) {
        let file = format!("private-keys-v1.d/{grip}.key");
        std::fs::copy(home.file(&file), lab.host.file(&file)).unwrap();
    }
    let control = |grips: &[String]| {
        std::fs::write(lab.host.file("sshcontrol"), grips.join(" 0\n") + " 0\n").unwrap();
    };
    std::fs::write(lab.host.file("gpg-agent.conf"), "enable-ssh-support\n").unwrap();
    lab.host.end_agents();
    lab.host.launch_agent();
    // As anybody finds them where the user has published them.
    control(&grips);
    let mut list = lab.host.command("ssh-add");
    let listed = run(list.arg("-L").env("SSH_AUTH_SOCK", lab.host.dirs("agent-ssh-socket")));
    let points: Vec<[u8; 32]> = text(&listed)
        .lines()
        .map(|line| STANDARD.decode(line.split(' ').nth(1).unwrap()).unwrap())
        .map(|blob| blob[blob.len() - 32..].try_into().unwrap())
        .collect();
    control(&grips[..1]);
    let address = lab::local(lab.target.path());
    (Scene { lab, address }, points.try_into().unwrap(), grips)
}

#[test]
fn a_block_that_a_target_has_forged_never_gets_ssh_keys_lent() {
    let (scene, points, grips) = with_ssh_keys();
    let signs = scene.lab.host.keygrips()[1].clone();
    scene.up(&["--lend", &format!("&{signs}")]);
    let user_id = "lab@keybridge.example";
    let block = forge(&scene.lab, &scene.lab.target.socket(), &signs, user_id, &points);
    scene.up(&["--lend", "pairs"]);
    // The user takes it from a keyserver, or from a mail.
    run_with(&mut scene.lab.host.gpg(["--import"]), &block);
    let listing = text(&run(&mut scene.lab.host.gpg(["-K", "--with-colons", "--with-keygrip"])));
    for grip in &grips {
        assert!(listing.contains(grip), "{listing}");
    }
    let check = |what: &str| {
        assert_eq!(asked(&scene, &signs), "OK\n", "{what}");
        for grip in &grips {
            assert_eq!(asked(&scene, grip), NO_SECRET_KEY, "{what}");
        }
    };
    check("the running bridge");
    for options in [&[][..], &["--lend", user_id], &["--lend", "pairs"]] {
        let ended = scene.try_keybridge(&[&["up", &scene.address], options].concat());
        let said = text(&ended.stdout) + &text(&ended.stderr);
        assert!(ended.status.success(), "{said}");
        let subkeys = scene.lab.host.fingerprints();
        let forged = &subkeys[subkeys.len() - 1];
        assert!(said.contains(&format!("name it with --lend {forged}! if it is yours")), "{said}");
        check(&format!("{options:?}"));
    }
    // Ultimate trust counts, and even then a key for ssh only authenticates.
    let forged = scene.lab.host.fingerprints()[3].clone();
    run_with(&mut scene.lab.host.gpg(["--import-ownertrust"]), format!("{forged}:6:\n").as_bytes());
    scene.up(&[]);
    assert_eq!(asked(&scene, &grips[0]), NO_SECRET_KEY);
    assert_eq!(asked(&scene, &grips[1]), "OK\n");
    // Who names it exactly means it.
    scene.up(&["--lend", &format!("&{}", grips[0])]);
    assert_eq!(asked(&scene, &grips[0]), "OK\n");
}

#[test]
fn a_connected_client_never_uses_a_key_after_a_narrowing() {
    let scene = Scene::new();
    let lab = &scene.lab;
    let (first, other) = (lab.host.keygrips()[0].clone(), new_key(lab, "other@x"));
    scene.up(&[]);
    let mut client = signing(&scene, &first);
    scene.up(&["--uses", "decrypt"]);
    assert_eq!(client.ask("PKSIGN"), NO_SECRET_KEY);
    scene.up(&["--uses", "sign"]);
    assert!(client.ask("PKSIGN").contains("sig-val"), "it is lent again");
    let mut decrypting = Client::greeted(&lab.target.socket());
    decrypting.ask(format!("SETKEY {first}"));
    assert_eq!(decrypting.ask("PKDECRYPT"), FORBIDDEN);
    scene.up(&["--lend", &format!("&{other}")]);
    assert_eq!(client.ask("PKSIGN"), NO_SECRET_KEY);
}

#[test]
fn a_connected_client_never_uses_a_key_that_was_revoked_or_deleted() {
    let scene = Scene::new();
    let lab = &scene.lab;
    let (revoked, deleted) = (new_key(lab, "revoked@x"), new_key(lab, "deleted@x"));
    let fingerprint = lab.host.fingerprint_of("revoked@x");
    scene.up(&[]);
    let [mut first, mut second] = [&revoked, &deleted].map(|grip| signing(&scene, grip));
    let file = lab.host.file("openpgp-revocs.d").join(format!("{fingerprint}.rev"));
    let revocation = std::fs::read_to_string(file).unwrap().replace(":-----BEGIN", "-----BEGIN");
    run_with(&mut lab.host.gpg(["--import"]), revocation.as_bytes());
    assert_eq!(first.ask("PKSIGN"), NO_SECRET_KEY);
    assert!(second.ask("PKSIGN").contains("sig-val"));
    let deleted = lab.host.fingerprint_of("deleted@x");
    run(&mut lab.host.gpg(["--delete-secret-and-public-key", &deleted]));
    assert_eq!(second.ask("PKSIGN"), NO_SECRET_KEY);
}

/// A program of an editor's, which lends at most what a file says.
struct EditorProgram {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl EditorProgram {
    fn start(lab: &Lab, ceiling: &Path) -> Self {
        let mut rpc = lab.keybridge();
        rpc.args(["rpc", "--ceiling"]).arg(ceiling).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = rpc.spawn().unwrap();
        let input = process.stdin.take().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, input, output }
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        writeln!(self.input, "{request}").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    /// What it says of a key.
    fn asked(&mut self, keygrip: &str) -> String {
        let session = self.call("connectAgent", &json!({}))["result"]["sessionId"].clone();
        let block = format!("HAVEKEY {keygrip}");
        let answer = self.call("sendCommands", &json!({ "sessionId": session, "block": block }));
        answer["result"]["response"].as_str().unwrap().to_owned()
    }

    fn end(mut self) {
        drop(self.input);
        assert!(self.process.wait().unwrap().success());
    }
}

/// A person agrees that an editor lends what there is now.
fn agree(lab: &Lab, ceiling: &Path) {
    run(lab.keybridge().args(["rpc", "--raise", "--ceiling"]).arg(ceiling));
}

#[test]
fn an_editors_program_that_is_started_again_never_lends_more_than_before() {
    let lab = Lab::with_key();
    let first = lab.host.keygrips()[0].clone();
    let file = lab.at("ceiling");
    let asked = |keygrip: &str| {
        let mut program = EditorProgram::start(&lab, &file);
        let answer = program.asked(keygrip);
        program.end();
        answer
    };
    assert_eq!(asked(&first), NO_SECRET_KEY, "nobody has agreed to anything");
    assert!(!file.exists());
    agree(&lab, &file);
    assert_eq!(asked(&first), "OK\n");
    let new = new_key(&lab, "new@x");
    for _ in 0..2 {
        assert_eq!(asked(&new), NO_SECRET_KEY);
        assert_eq!(asked(&first), "OK\n");
    }
    agree(&lab, &file);
    assert_eq!(asked(&new), "OK\n");
}

#[test]
fn an_editors_program_that_runs_follows_what_a_person_agrees_to_and_withdraws() {
    let lab = Lab::with_key();
    let first = lab.host.keygrips()[0].clone();
    let file = lab.at("ceiling");
    agree(&lab, &file);
    let mut program = EditorProgram::start(&lab, &file);
    let new = new_key(&lab, "new@x");
    assert_eq!(program.asked(&new), NO_SECRET_KEY);
    agree(&lab, &file);
    assert_eq!(program.asked(&new), "OK\n");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(program.asked(&first), NO_SECRET_KEY);
    program.end();
}
