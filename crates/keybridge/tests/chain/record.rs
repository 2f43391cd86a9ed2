//! The record of what was done with the user's keys.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::lab::{self, Bridge, Client, Lab, eventually, need_root, output, run, text};
use crate::settings::Scene;

/// How many operations a busy run has on each of its targets.
const BUSY: usize = 334;

/// The newest file of the record.
fn newest(lab: &Lab) -> PathBuf {
    lab.at("var/keybridge/record")
}

/// The lines, as `keybridge record` prints them.
#[track_caller]
fn recorded(lab: &Lab, words: &[&str]) -> Vec<Value> {
    let mut record = keybridge(lab, &["record", "--json"]);
    let lines = text(&run(record.args(words)));
    lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn keybridge(lab: &Lab, words: &[&str]) -> Command {
    let mut command = lab.keybridge();
    command.env("XDG_RUNTIME_DIR", lab.at("run")).args(words);
    command
}

fn verify(lab: &Lab) -> Output {
    output(&mut keybridge(lab, &["record", "--verify"]))
}

#[track_caller]
fn verifies(lab: &Lab, lines: usize) {
    let ended = verify(lab);
    let said = text(&ended.stdout);
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert!(said.starts_with(&format!("{lines} lines, all as they were written")), "{said}");
    assert!(said.contains("with your own rights"), "{said}");
}

#[track_caller]
fn is_found(lab: &Lab, why: &str) {
    let ended = verify(lab);
    let said = text(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains(why), "{said}");
}

/// A client of a target whose next signatures are those of this hash.
fn signer(lab: &Lab, socket: &Path, hash: &str) -> Client {
    let mut client = Client::greeted(socket);
    let grip = &lab.host.keygrips()[0];
    for line in [format!("SIGKEY {grip}"), format!("SETHASH 8 {hash}")] {
        assert!(client.ask(&line).starts_with("OK"), "{line}");
    }
    client
}

#[track_caller]
fn signs(client: &mut Client) {
    let answer = client.ask("PKSIGN");
    assert!(answer.contains("sig-val"), "{answer}");
}

/// Three targets at once: nothing of what was signed is in the record, and what is changed in it is found.
#[test]
fn the_record_of_a_busy_run_is_one_chain_without_a_payload() {
    let hash = "feed5eed".repeat(8);
    let scene = Scene::new();
    let homes: Vec<PathBuf> = ["one", "two"].iter().map(|name| scene.lab.at(name)).collect();
    for home in &homes {
        lab::make_private(home);
    }
    let homes: Vec<&Path> =
        homes.iter().map(PathBuf::as_path).chain([scene.lab.target.path()]).collect();
    let addresses: Vec<String> = homes.iter().map(|home| lab::local(home)).collect();
    let mut up = vec!["up", "--lanes", "gpg"];
    up.extend(addresses.iter().map(String::as_str));
    scene.keybridge(&up);
    std::thread::scope(|threads| {
        for home in &homes {
            threads.spawn(|| {
                let mut client = signer(&scene.lab, &home.join("S.gpg-agent"), &hash);
                for _ in 0..BUSY {
                    signs(&mut client);
                }
            });
        }
    });
    scene.keybridge(&["down", "--all"]);
    let lab = &scene.lab;
    verifies(lab, 3 * BUSY);
    for address in &addresses {
        let lines = recorded(lab, &[address]);
        assert_eq!(lines.len(), BUSY, "{address}");
        let is_its = |line: &Value| {
            line["target"] == address.as_str()
                && line["operations"] == serde_json::json!(["sign"])
                && line["key"] == lab.host.keygrips()[0].as_str()
                && line["decided"] == "settings"
                && line["result"] == "succeeded"
        };
        assert!(lines.iter().all(is_its), "{}", lines[0]);
    }
    let path = newest(lab);
    let whole = fs::read_to_string(&path).unwrap();
    assert!(!whole.to_lowercase().contains("feed5eed"));
    let change = |at: usize, to: &str| {
        fs::write(&path, [&whole[..at], to, &whole[at + 1..]].concat()).unwrap();
    };
    let in_the_middle = whole.match_indices("succeeded").nth(BUSY).unwrap().0;
    change(in_the_middle, "S");
    is_found(lab, &format!("record, line {}: ", BUSY + 1));
    // One line less, in the middle and at the end.
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    for gone in [BUSY, lines.len() - 1] {
        let left = lines.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, line)| *line);
        fs::write(&path, left.collect::<String>()).unwrap();
        is_found(lab, if gone == BUSY { "its number is" } else { "1 at the end are missing" });
    }
    fs::write(&path, &whole).unwrap();
    verifies(lab, 3 * BUSY);
}

#[test]
fn commits_and_tags_are_recorded_with_the_ids_that_git_gives_to_them() {
    let scene = Scene::new();
    scene.up(&["--lanes", "git", "--git", "--uses", "commit,tag"]);
    for format in ["sha1", "sha256"] {
        let work = scene.lab.at(format);
        fs::create_dir(&work).unwrap();
        let git = |words: &[&str]| {
            let mut git = scene.lab.target.command("git");
            git.args(["-c", "user.name=Ada", "-c", "user.email=ada@keybridge.example"]);
            git.env("GIT_CONFIG_NOSYSTEM", "1").current_dir(&work);
            text(&run(git.args(words))).trim().to_owned()
        };
        git(&["init", "--quiet", "--object-format", format]);
        git(&["commit", "-qS", "--allow-empty", "-m", "A title\n\nthe secret body"]);
        git(&["tag", "-s", "-m", "Its title\n\nthe secret body", "v1"]);
        let lines = recorded(&scene.lab, &[&scene.address]);
        let [.., commit, tag] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(commit["lane"], "git");
        assert_eq!(commit["operations"], serde_json::json!(["commit"]));
        let signed = &commit["signed"];
        assert_eq!(signed["id"], git(&["rev-parse", "HEAD"]), "{signed}");
        assert_eq!(
            (&signed["title"], &signed["author"]["name"]),
            (&"A title".into(), &"Ada".into())
        );
        let signed = &tag["signed"];
        assert_eq!(signed["id"], git(&["rev-parse", "v1"]), "{signed}");
        assert_eq!((&signed["title"], &signed["name"]), (&"Its title".into(), &"v1".into()));
    }
    let shown = scene.keybridge(&["record", "--since", "1h", &scene.address]);
    assert_eq!(shown.lines().count(), 4, "{shown}");
    assert!(shown.contains(" “A title” of “Ada <ada@keybridge.example>”\n"), "{shown}");
    assert!(shown.contains("  commit: done (settings), key "), "{shown}");
    assert!(!fs::read_to_string(newest(&scene.lab)).unwrap().contains("secret"));
    assert_eq!(scene.keybridge(&["record", "--since", "2099-01-01"]), "");
    assert_eq!(scene.keybridge(&["record", "local:/nowhere"]), "");
}

#[test]
fn a_target_that_tries_what_is_not_lent_can_fill_no_disk() {
    const TRIES: usize = 500;
    let scene = Scene::new();
    scene.up(&["--uses", "decrypt"]);
    let socket = scene.lab.target.path().join("S.gpg-agent");
    let mut client = Client::greeted(&socket);
    let grip = scene.lab.host.keygrips()[0].clone();
    client.ask(format!("SIGKEY {grip}"));
    for _ in 0..TRIES {
        assert!(client.ask("PKSIGN").starts_with("ERR"));
    }
    scene.keybridge(&["down", &scene.address]);
    let lines = recorded(&scene.lab, &[]);
    let [refused @ .., left_out] = &lines[..] else { panic!("{lines:?}") };
    for line in refused {
        assert_eq!((&line["key"], &line["result"]), (&grip.as_str().into(), &"refused".into()));
        assert_eq!(line["decided"]["refused"], "not-lent");
    }
    assert!((1..TRIES / 2).contains(&refused.len()), "{}", refused.len());
    assert_eq!(left_out["not_done"], TRIES - refused.len(), "{left_out}");
}

#[test]
fn new_lines_are_shown_as_they_come() {
    let scene = Scene::new();
    scene.up(&["--lanes", "gpg"]);
    let socket = scene.lab.target.path().join("S.gpg-agent");
    let mut client = signer(&scene.lab, &socket, &"ab".repeat(32));
    let mut record = keybridge(&scene.lab, &["record", "-f", &scene.address]);
    let mut follower = record.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        signs(&mut client);
        let line = lines.next().unwrap().unwrap();
        assert!(line.contains("  sign: done (settings), key "), "{line}");
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
}

#[test]
fn what_is_not_to_be_recorded_is_not() {
    let scene = Scene::new();
    scene.up(&["--record", "off"]);
    let socket = scene.lab.target.path().join("S.gpg-agent");
    let mut client = signer(&scene.lab, &socket, &"ab".repeat(32));
    signs(&mut client);
    assert_eq!(scene.keybridge(&["record"]), "");
    // It counts at once.
    let shown = scene.up(&["--record", "required"]);
    assert!(shown.contains("; changed: record"), "{shown}");
    signs(&mut client);
    assert_eq!(recorded(&scene.lab, &[]).len(), 1);
    let wrong = scene.try_keybridge(&["up", "--record", "perhaps", &scene.address]);
    assert!(text(&wrong.stderr).contains("expected on, required or off"), "{wrong:?}");
}

/// A bridge whose record is on a small disk.
struct SmallDisk {
    lab: Lab,
    bridge: Bridge,
    disk: PathBuf,
}

impl SmallDisk {
    fn with(mode: &str) -> Self {
        need_root();
        let lab = Lab::with_key();
        let mount = lab.at("var");
        lab::make_private(&mount);
        let up = lab.up_command(&["--record", mode]);
        let script = format!("mount -t tmpfs -o size=64k none {} && exec \"$@\"", mount.display());
        let mut own = Command::new("unshare");
        own.args(["-m", "sh", "-c", &script, "sh"]).arg(up.get_program()).args(up.get_args());
        own.env_clear().envs(up.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let bridge = Bridge::start(own);
        // As the bridge sees it.
        let root = PathBuf::from(format!("/proc/{}/root", bridge.host_pid()));
        let disk = root.join(mount.strip_prefix("/").unwrap());
        Self { lab, bridge, disk }
    }

    fn client(&self) -> Client {
        signer(&self.lab, &self.bridge.socket(), &"ab".repeat(32))
    }

    fn fill(&self) {
        let path = self.disk.join("filler");
        let mut filler = OpenOptions::new().create(true).append(true).open(path).unwrap();
        while filler.write(&[0; 512]).is_ok_and(|count| count > 0) {}
    }

    fn empty(&self) {
        fs::remove_file(self.disk.join("filler")).unwrap();
    }

    fn problem(&self) -> Value {
        let status = run(self.lab.keybridge().args(["status", "--json"]));
        let status: Value = serde_json::from_slice(&status).unwrap();
        status["bridges"][0]["record_problem"].clone()
    }

    fn record(&self, words: &[&str]) -> String {
        let mut record = self.lab.keybridge();
        text(&run(record.arg("record").args(words).env("XDG_STATE_HOME", &self.disk)))
    }
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to mount a small disk")]
fn a_full_disk_is_a_warning_and_what_is_not_recorded_is_counted() {
    let scene = SmallDisk::with("on");
    let mut client = scene.client();
    signs(&mut client);
    scene.fill();
    eventually("the disk is full", || {
        signs(&mut client);
        scene.problem() != Value::Null
    });
    assert!(scene.bridge.stderr().contains("can't write the record of operations: "));
    scene.empty();
    eventually("it is recorded again", || {
        signs(&mut client);
        scene.problem() == Value::Null
    });
    assert!(scene.record(&[]).contains("that couldn't be written\n"));
    scene.record(&["--verify"]);
    scene.bridge.stop();
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs root, to mount a small disk")]
fn nothing_is_done_that_has_to_be_recorded_and_can_not() {
    let scene = SmallDisk::with("required");
    let mut client = scene.client();
    signs(&mut client);
    scene.fill();
    for _ in 0..3 {
        assert!(client.ask("PKSIGN").contains("Not confirmed"));
    }
    assert_ne!(scene.problem(), Value::Null);
    scene.empty();
    eventually("it can be recorded again", || client.ask("PKSIGN").contains("sig-val"));
    assert_eq!(scene.record(&["--json"]).matches("\"succeeded\"").count(), 2);
    scene.record(&["--verify"]);
    scene.bridge.stop();
}
