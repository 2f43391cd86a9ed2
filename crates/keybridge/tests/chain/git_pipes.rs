//! Entries of git that come by the helper's pipes, since they may not connect to its socket; and `here`,
//! which serves these alone.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use keybridge_proto::git::{Format, Request, in_pieces};
use landlock::{
    ABI, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::process::geteuid;

use crate::lab::{
    Bridge, Home, Lab, command, eventually, feed, noise, output, run, set_mode, short_folder, text,
    write_program,
};

const OBJECT: &str = "tree 4b825dc642cb6eb9a060e54bf8d69288fbee4904\n\
    author A <a@x> 1700000000 +0100\ncommitter A <a@x> 1700000001 +0000\n\na commit\n";

fn folder(lab: &Lab) -> PathBuf {
    lab.at("home/.keybridge")
}

/// A slot's pipe.
fn pipe(lab: &Lab, name: &str) -> PathBuf {
    folder(lab).join(".keybridge-pipes").join(name)
}

/// From now on nobody may connect to the socket but who may do everything.
fn forbid_sockets(lab: &Lab) {
    set_mode(&folder(lab).join("git.sock"), 0);
}

/// Ends this: the helper of the next bridge looks whether somebody listens there.
fn allow_sockets(lab: &Lab) {
    set_mode(&folder(lab).join("git.sock"), 0o600);
}

/// A program that may not do everything, also where the tests are root's.
fn sandboxed(home: &Home, program: impl AsRef<OsStr>) -> Command {
    if !geteuid().is_root() {
        return home.command(program);
    }
    let mut command = home.command("setpriv");
    command.args(["--bounding-set", "-all"]).arg(program);
    command
}

/// The entry for gpg in a sandbox, as git calls it.
fn entry(lab: &Lab) -> Command {
    let mut entry = sandboxed(&lab.target, folder(lab).join(".keybridge-gpg"));
    entry.args(["--status-fd=2", "-bsau", &lab.host.fingerprint()]);
    entry
}

#[track_caller]
fn is_signed_by_the_host(lab: &Lab, answer: &Output) {
    let said = text(&answer.stderr);
    assert!(answer.status.success() && said.contains("\n[GNUPG:] SIG_CREATED "), "{answer:?}");
    let object = lab.file("signed", OBJECT);
    feed(lab.host.gpg(["--verify", "-"]).arg(object), &answer.stdout);
}

#[track_caller]
fn signs(lab: &Lab) {
    is_signed_by_the_host(lab, &feed(&mut entry(lab), OBJECT.as_bytes()));
}

fn git_lane(lab: &Lab, more: &[&str]) -> Bridge {
    let bridge = lab.up_with(&[&["--lanes", "git", "--git"], more].concat());
    forbid_sockets(lab);
    bridge
}

#[test]
fn git_signs_where_it_may_not_connect() {
    let lab = Lab::with_key();
    let bridge = git_lane(&lab, &[]);
    let work = lab.at("work");
    run(lab.target.command("git").args(["init", "--quiet"]).arg(&work));
    let git = |words: &[&str]| {
        let mut git = sandboxed(&lab.target, "git");
        git.args(["-c", "user.name=Lab", "-c", "user.email=lab@keybridge.example"]);
        run(git.args(words).current_dir(&work))
    };
    git(&["commit", "--quiet", "--allow-empty", "-S", "-m", "one"]);
    // More than a pipe takes at once.
    git(&["commit", "--quiet", "--allow-empty", "-S", "-m", &"long ".repeat(25_000)]);
    git(&["tag", "-s", "-m", "a tag", "v1"]);
    run(lab.host.command("git").args(["verify-commit", "HEAD", "HEAD~1"]).current_dir(&work));
    run(lab.host.command("git").args(["verify-tag", "v1"]).current_dir(&work));
    bridge.stop();
    assert!(!folder(&lab).exists());
}

/// There are eight slots, and no entry waits longer than 10 s for one, on a busy machine too.
const AT_ONCE: usize = 40;

#[test]
fn more_requests_than_there_are_slots_are_all_signed() {
    let lab = Lab::with_key();
    let bridge = git_lane(&lab, &[]);
    let object = lab.file("object", OBJECT);
    let running: Vec<_> = (0..AT_ONCE)
        .map(|_| {
            let mut entry = entry(&lab);
            entry.stdin(File::open(&object).unwrap());
            entry.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    for entry in running {
        is_signed_by_the_host(&lab, &entry.wait_with_output().unwrap());
    }
    bridge.stop();
}

/// Opens a pipe for writing, without waiting for the other end.
fn open(pipe: &Path) -> File {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    File::options().write(true).custom_flags(flags).open(pipe).unwrap()
}

/// Writes into a pipe and leaves.
fn write_and_leave(pipe: &Path, bytes: &[u8]) {
    open(pipe).write_all(bytes).unwrap();
}

#[test]
fn what_others_leave_in_a_pipe_harms_nobody() {
    let lab = Lab::with_key();
    let bridge = git_lane(&lab, &[]);
    let key = lab.host.fingerprint().into_bytes();
    let request = Request { format: Format::Openpgp, key, object: OBJECT.into() };
    let pieces = in_pieces(7, &request.encode().unwrap()).concat();
    let (half, _) = pieces.split_at(pieces.len() / 2);
    let more = [&pieces[..], b"more"].concat();
    // Half a request, whole ones that nobody waits for, and bytes that are none.
    for bytes in [half, &pieces, &pieces.repeat(3), &more, &[0xff; 4096], b"\0", &noise(60_000)] {
        write_and_leave(&pipe(&lab, "0.request"), bytes);
        signs(&lab);
    }
    // An answer that no entry has asked for.
    let answer = in_pieces(9, b"\0\0\0\x06\0\0\0\x02{}").concat();
    for bytes in [&answer[..], &answer[..7], &[0xff; 9000]] {
        write_and_leave(&pipe(&lab, "0.answer"), bytes);
        signs(&lab);
    }
    bridge.stop();
}

#[test]
fn what_has_the_place_of_a_pipe_is_passed_over_and_no_link_is_followed() {
    let lab = Lab::with_key();
    let bridge = git_lane(&lab, &[]);
    let own = lab.file("own", "the user's");
    let replace = |name: &str| std::fs::remove_file(pipe(&lab, name)).unwrap();
    replace("0.request");
    std::fs::write(pipe(&lab, "0.request"), "a file").unwrap();
    replace("1.request");
    std::os::unix::fs::symlink(&own, pipe(&lab, "1.request")).unwrap();
    replace("2.answer");
    std::os::unix::fs::symlink(&own, pipe(&lab, "2.answer")).unwrap();
    replace("3.request");
    run(command("mkfifo").arg(pipe(&lab, "3.request")));
    signs(&lab);
    bridge.stop();
    assert_eq!(std::fs::read_to_string(own).unwrap(), "the user's");
}

#[test]
fn an_entry_waits_for_a_slot_and_a_slot_that_is_held_is_not_the_only_one() {
    let lab = Lab::with_key();
    let bridge = git_lane(&lab, &[]);
    let hold = |slot: usize| {
        let pipe = open(&pipe(&lab, &format!("{slot}.request")));
        flock(&pipe, FlockOperation::NonBlockingLockExclusive).unwrap();
        pipe
    };
    let mut taken: Vec<_> = (0..7).map(hold).collect();
    signs(&lab);
    taken.push(hold(7));
    let mut waiting = entry(&lab);
    let object = lab.file("object", OBJECT);
    waiting.stdin(File::open(&object).unwrap());
    let mut waiting = waiting.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    assert!(waiting.try_wait().unwrap().is_none());
    taken.remove(3);
    is_signed_by_the_host(&lab, &waiting.wait_with_output().unwrap());
    bridge.stop();
}

#[test]
fn without_a_bridge_behind_the_pipes_an_entry_says_what_to_do() {
    let lab = Lab::with_key();
    let bridge = git_lane(&lab, &[]);
    bridge.kill();
    let failed = feed(&mut entry(&lab), OBJECT.as_bytes());
    let said = text(&failed.stderr);
    assert!(!failed.status.success() && failed.stdout.is_empty(), "{said}");
    let ours: Vec<_> = said.lines().filter(|line| line.starts_with("keybridge: ")).collect();
    assert!(matches!(ours[..], [line] if line.contains("`keybridge up`")), "{said}");
    allow_sockets(&lab);
    // A bridge that has only died leaves nothing that another one doesn't undo.
    git_lane(&lab, &[]).stop();
    assert!(!folder(&lab).exists());
}

#[test]
fn the_pipes_can_be_in_a_folder_that_a_sandbox_may_write_to() {
    let lab = Lab::with_key();
    let place = short_folder("kbp");
    let named = place.path().to_str().unwrap();
    let bridge = git_lane(&lab, &["--pipes", named]);
    assert!(!pipe(&lab, "0.request").exists());
    assert!(place.path().join(".keybridge-pipes/0.request").exists());
    signs(&lab);
    bridge.kill();
    allow_sockets(&lab);
    // The next one takes its settings, and undoes what is left.
    git_lane(&lab, &[]).stop();
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    let refused = output(&mut lab.up_command(&["--pipes", "relative"]));
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

/// Has the entry sign in a sandbox whose Landlock allows writing in this folder alone.
fn sign_in_landlock(lab: &Lab, writable: &Path) -> Output {
    let writes = AccessFs::from_write(ABI::V1);
    let mut entry = entry(lab);
    let sign = || {
        let ruleset = Ruleset::default().handle_access(writes).unwrap().create().unwrap();
        let rule = PathBeneath::new(PathFd::new(writable).unwrap(), writes);
        let enforced = ruleset.add_rule(rule).unwrap().restrict_self().unwrap();
        assert_eq!(enforced.ruleset, RulesetStatus::FullyEnforced, "the kernel has no Landlock");
        feed(&mut entry, OBJECT.as_bytes())
    };
    // It holds for the thread that asks for it, and for what that starts.
    std::thread::scope(|scope| scope.spawn(sign).join().unwrap())
}

#[test]
fn where_landlock_forbids_the_pipes_they_can_be_in_a_folder_that_it_allows() {
    let lab = Lab::with_key();
    let place = short_folder("kbp");
    let bridge = git_lane(&lab, &[]);
    let failed = sign_in_landlock(&lab, place.path());
    let said = text(&failed.stderr);
    assert!(!failed.status.success() && failed.stdout.is_empty(), "{failed:?}");
    let ours: Vec<_> = said.lines().filter(|line| line.starts_with("keybridge: ")).collect();
    assert!(matches!(ours[..], [line] if line.contains("`keybridge up --pipes DIR`")), "{said}");
    allow_sockets(&lab);
    bridge.stop();
    let bridge = git_lane(&lab, &["--pipes", place.path().to_str().unwrap()]);
    is_signed_by_the_host(&lab, &sign_in_landlock(&lab, place.path()));
    bridge.stop();
}

#[test]
fn a_link_that_a_sandbox_puts_in_the_way_of_the_pipes_is_not_followed() {
    let lab = Lab::with_key();
    let place = short_folder("kbp");
    let [linked, named, elsewhere] =
        ["linked", "named", "elsewhere"].map(|name| place.path().join(name));
    std::fs::create_dir(&named).unwrap();
    let others = elsewhere.join(".keybridge-pipes");
    std::fs::create_dir_all(&others).unwrap();
    set_mode(&others, 0o700);
    run(command("mkfifo").arg(others.join("0.request")));
    // One that is there before is the user's.
    std::os::unix::fs::symlink(&named, &linked).unwrap();
    let bridge = git_lane(&lab, &["--pipes", linked.to_str().unwrap()]);
    signs(&lab);
    std::fs::rename(&named, place.path().join("away")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, &named).unwrap();
    bridge.stop();
    assert!(others.join("0.request").exists() && !folder(&lab).exists());
}

/// `up here`, where the target's home is the host's own.
fn here(lab: &Lab) -> Bridge {
    let mut up = lab.keybridge();
    let bridge = Bridge::start(std::mem::replace(
        up.args(["up", "here", "--foreground", "--json"]),
        Command::new(""),
    ));
    eventually("the entries are there", || folder(lab).join(".keybridge-gpg").exists());
    bridge
}

#[test]
fn here_signs_for_sandboxes_alone_and_changes_only_which_program_git_runs() {
    let lab = Lab::with_key();
    let own = lab.at("bin/gpg-of-the-user");
    write_program(&own, "#!/bin/sh\necho own >&2\nexit 9\n");
    let before = format!("[gpg]\n\tprogram = {}\n", own.display());
    let settings = lab.file("home/.gitconfig", &before);
    let bridge = here(&lab);
    let outside = |lab: &Lab| {
        let mut entry = lab.target.command(folder(lab).join(".keybridge-gpg"));
        entry.args(["--status-fd=2", "-bsau", &lab.host.fingerprint()]);
        entry.env("GIT_CONFIG_NOSYSTEM", "1");
        feed(&mut entry, OBJECT.as_bytes())
    };
    let ran = outside(&lab);
    assert_eq!((ran.status.code(), text(&ran.stderr).as_str()), (Some(9), "own\n"));
    forbid_sockets(&lab);
    signs(&lab);
    let setting = |name: &str| {
        let mut git = lab.target.command("git");
        let read = output(git.args(["config", "--global", "--includes", "--get", name]));
        text(&read.stdout).trim().to_owned()
    };
    assert!(setting("gpg.program").ends_with("/.keybridge-gpg"));
    for name in ["user.signingkey", "commit.gpgsign", "gpg.format"] {
        assert_eq!(setting(name), "", "{name}");
    }
    bridge.stop();
    assert!(!folder(&lab).exists());
    assert_eq!(std::fs::read_to_string(settings).unwrap(), before);
}

#[test]
fn commands_that_sandboxes_have_no_use_for_say_so() {
    let lab = Lab::with_key();
    for words in [
        &["sync", "here"][..],
        &["env", "here"],
        &["run", "here", "--", "true"],
        &["up", "--lanes", "gpg", "here"],
    ] {
        let mut command = lab.keybridge();
        let refused = output(command.env("KEYBRIDGE_STATE", lab.at("state")).args(words));
        let said = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("git"), "{words:?}: {said}");
    }
}
