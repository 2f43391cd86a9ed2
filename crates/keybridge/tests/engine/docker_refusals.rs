//! What can't be bridged: an exit status, one line that says why, a way out, and nothing left behind
//! in the container.

use std::collections::HashMap;
use std::os::unix::net::UnixListener;
use std::process::Command;

use crate::lab::{
    self, Container, Docker, Image, KEYBRIDGE, make_private, output, run, set_mode, set_owner, text,
};

/// Nobody of this machine.
const STRANGER: u32 = 54_321;

/// Runs a command that has to be refused: one line that has `words` in it, and at least one hint.
#[track_caller]
fn refused(command: &mut Command, status: i32, words: &[&str]) -> String {
    let output = output(command);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    let mut lines = said.lines();
    let message = lines.next().unwrap_or_default();
    assert!(message.starts_with("keybridge: "), "{said}");
    for word in words {
        assert!(message.contains(word), "{word:?} is not in the message: {said}");
    }
    let hints: Vec<_> = lines.collect();
    assert!(!hints.is_empty() && hints.iter().all(|hint| hint.starts_with("  → ")), "{said}");
    for line in (said.clone() + &text(&output.stdout)).lines() {
        assert!(!line.contains(char::is_control), "raw control characters: {line:?}");
    }
    said
}

/// `up` has to be refused, and to leave nothing behind.
#[track_caller]
fn refused_and_clean(docker: &Docker, options: &[&str], status: i32, words: &[&str]) -> String {
    let before = docker.container.listing();
    let said = refused(&mut docker.up_command(options), status, words);
    docker.container.assert_unchanged(&before);
    assert_eq!(docker.helpers(), Vec::<String>::new());
    assert_eq!(docker.bridges().len(), 0);
    said
}

#[test]
fn a_container_that_is_not_there() {
    let docker = Docker::new(Image::Bare, &[]);
    for verb in ["up", "down", "sync", "status", "logs"] {
        let said = refused(&mut docker.keybridge([verb, "kbt-none"]), 3, &["kbt-none"]);
        assert!(said.contains("no container"), "{verb}: {said}");
    }
}

#[test]
fn a_prefix_of_two_ids() {
    let docker = Docker::new(Image::Bare, &[]);
    let mut digits = HashMap::from([(docker.container.id[..1].to_owned(), 1)]);
    let mut others = Vec::new();
    // Two of seventeen share one of sixteen digits.
    let digit = loop {
        let other = Container::start(Image::Bare, &[]);
        let digit = other.id[..1].to_owned();
        others.push(other);
        let count = digits.entry(digit.clone()).or_insert(0);
        *count += 1;
        if *count == 2 {
            break digit;
        }
    };
    let words = ["more than one container", "begins with"];
    for verb in ["up", "down", "status"] {
        refused(&mut docker.keybridge([verb, &digit]), 3, &words);
    }
}

#[test]
fn a_container_that_is_not_running() {
    let docker = Docker::new(Image::Bare, &[]);
    let name = format!("{}-2", docker.container.name);
    let image = run(&mut lab::docker(["inspect", "--format", "{{.Image}}", &docker.container.id]));
    let image = text(&image);
    let create = ["create", "--network", "none", "--name", &name, image.trim(), "true"];
    let id = text(&run(&mut lab::docker(create))).trim().to_owned();
    let created = Container { name: name.clone(), id, engine: lab::Program::Docker };
    let said = refused(&mut docker.keybridge(["up", &name]), 3, &[&name, "was never started"]);
    assert!(said.contains(&format!("docker start {name}")), "{said}");
    run(&mut lab::docker(["start", "--attach", &created.id]));
    let said = refused(&mut docker.keybridge(["up", &name]), 3, &[&name, "isn't running"]);
    assert!(said.contains(&format!("docker start {name}")), "{said}");
}

#[test]
fn a_container_that_is_paused() {
    let docker = Docker::new(Image::Bare, &[]);
    let name = docker.container.name.as_str();
    run(&mut lab::docker(["pause", name]));
    let said = refused(&mut docker.up_command(&[]), 3, &[name, "is paused"]);
    assert!(said.contains(&format!("docker unpause {name}")), "{said}");
    run(&mut lab::docker(["unpause", name]));
}

#[test]
fn an_engine_that_does_not_answer() {
    let docker = Docker::new(Image::Bare, &[]);
    let path = docker.lab.at("engine");
    let listener = UnixListener::bind(&path).unwrap();
    // Takes every connection, and says nothing.
    std::thread::spawn(move || {
        let mut taken = Vec::new();
        while let Ok((stream, _)) = listener.accept() {
            taken.push(stream);
        }
    });
    let mut up = docker.up_command(&[]);
    up.env("DOCKER_HOST", format!("unix://{}", path.display()));
    refused(&mut up, 3, &[path.to_str().unwrap(), "no answer within"]);
}

#[test]
fn an_engine_that_is_not_there() {
    let docker = Docker::new(Image::Bare, &[]);
    let path = docker.lab.at("engine");
    let host = format!("unix://{}", path.display());
    let words = [path.to_str().unwrap(), "no such socket"];
    let said = refused(docker.up_command(&[]).env("DOCKER_HOST", &host), 3, &words);
    assert!(said.contains("DOCKER_HOST"), "{said}");
    // A socket that nobody listens at.
    lab::leave_dead_socket(&path);
    let words = [path.to_str().unwrap(), "nothing answers there"];
    refused(docker.up_command(&[]).env("DOCKER_HOST", &host), 3, &words);
    let words = ["ftp://engine"];
    refused(docker.up_command(&[]).env("DOCKER_HOST", "ftp://engine"), 3, &words);
}

#[test]
fn no_right_to_the_socket_of_the_engine() {
    let docker = Docker::new(Image::Bare, &[]);
    // A stranger needs a home and a state of their own, and programs that they can read.
    let (home, programs) = (docker.lab.at("stranger"), docker.lab.at("programs"));
    make_private(&home);
    set_owner(&home, STRANGER);
    make_private(&programs);
    let program = programs.join("keybridge");
    lab::write_program(&program, std::fs::read(KEYBRIDGE).unwrap());
    for path in [docker.lab.folder(), &programs] {
        set_mode(path, 0o755);
    }
    let up = |targets: &[&str]| {
        let mut up = keybridge_lab::command("setpriv");
        up.args([&format!("--reuid={STRANGER}"), &format!("--regid={STRANGER}"), "--clear-groups"])
            .arg(&program)
            .arg("up")
            .args(targets)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", &home)
            .env("KEYBRIDGE_STATE", home.join("state"));
        up
    };
    let address = docker.container.address();
    let said = refused(&mut up(&[&address]), 3, &["docker.sock", "aren't allowed"]);
    assert!(said.contains("group"), "{said}");
    // The list of targets does without that engine.
    let said = refused(&mut up(&[]), 2, &["no target is named"]);
    assert!(said.contains("docker.sock: you aren't allowed to use its socket\n"), "{said}");
}

#[test]
fn a_container_without_gpg() {
    let docker = Docker::new(Image::Bare, &[]);
    let helper = lab::static_helper().to_str().unwrap();
    let said = refused_and_clean(&docker, &["--helper-program", helper], 3, &["no gpg"]);
    assert!(said.contains("install gnupg"), "{said}");
}

#[test]
fn a_container_without_a_shell() {
    let docker = Docker::new(Image::NoShell, &[]);
    let helper = lab::static_helper().to_str().unwrap();
    // It gets as far as the helper saying what is missing: the engine has put it there.
    let before = docker.container.archive_listing(&[]);
    let mut up = docker.up_command(&["--helper-program", helper]);
    let said = refused(&mut up, 3, &["no gpg"]);
    assert!(said.contains("install gnupg"), "{said}");
    assert_eq!(docker.container.archive_listing(&[]), before);
}

/// A container for a processor that its engine can't emulate. It runs because its first program comes from
/// here.
fn foreign_container(image: Image) -> Docker {
    let mut docker = Docker::new(Image::NoShell, &[]);
    let name = format!("{}-foreign", docker.container.name);
    let sleep = format!("{}:/own/sleep:ro", lab::program("busybox").display());
    let options = ["--platform", "linux/arm64", "-v", &sleep];
    let first = ["/own/sleep", "infinity"];
    docker.container =
        Container::start_with(lab::Program::Docker, name, image.name(), &options, &first);
    docker
}

const FOREIGN: [&str; 3] =
    ["is for aarch64", "its engine runs on x86_64", "can't run its programs"];

#[test]
fn a_container_for_a_processor_that_its_engine_does_not_emulate() {
    let docker = foreign_container(Image::Foreign);
    let before = docker.container.archive_listing(&[]);
    let said = refused(&mut docker.up_command(&[]), 1, &FOREIGN);
    assert!(said.contains("install emulation of aarch64"), "{said}");
    assert_eq!(docker.container.archive_listing(&[]), before);
    assert_eq!(docker.bridges().len(), 0);
}

/// The engine puts the helper there before it can be tried. It can't remove it, but it can empty it.
#[test]
fn a_container_without_a_shell_for_a_processor_that_its_engine_does_not_emulate() {
    let docker = foreign_container(Image::ForeignNoShell);
    let helper = docker.lab.file("helper", lab::program_for(lab::NO_PROCESSOR));
    let options = ["--helper-program", helper.to_str().unwrap()];
    let said = refused(&mut docker.up_command(&options), 1, &FOREIGN);
    assert!(said.contains("/keybridge-remote stays there, empty"), "{said}");
    let listing = docker.container.archive_listing(&["-v", "--numeric-owner"]);
    let left: Vec<_> = listing.lines().filter(|line| line.contains("keybridge-")).collect();
    let [folder, file] = &left[..] else { panic!("{left:?}") };
    assert!(folder.starts_with("drwx------ 0/0 "), "{folder}");
    let size = file.strip_prefix("-rwx------ 0/0 ").and_then(|rest| rest.split_whitespace().next());
    assert_eq!(size, Some("0"), "{file}");
}

#[test]
fn a_gpg_older_than_2_1() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let old = b"#!/bin/sh\necho 'gpg (GnuPG) 2.0.22'\necho 'libgcrypt 1.5.3'\n";
    docker.container.put_program("/usr/bin/gpg", old);
    let said = refused_and_clean(&docker, &[], 3, &["2.0.22", "too old", "2.1"]);
    assert!(said.contains("install gnupg"), "{said}");
}

#[test]
fn a_read_only_root_without_a_writable_folder() {
    let docker = Docker::new(Image::Bookworm, &["--read-only"]);
    let words = ["no folder that the helper can be put in and run from"];
    refused_and_clean(&docker, &[], 1, &words);
}

#[test]
fn temporary_folders_and_a_home_that_let_no_program_run() {
    let mounts = ["--read-only", "--tmpfs", "/tmp", "--tmpfs", "/root", "--tmpfs", "/var/tmp"];
    let docker = Docker::new(Image::Bookworm, &mounts);
    let words = ["no folder that the helper can be put in and run from"];
    let said = refused_and_clean(&docker, &[], 1, &words);
    assert!(said.contains("noexec"), "{said}");
}

#[test]
fn a_home_that_can_not_be_written() {
    let docker = Docker::new(Image::Bookworm, &["--read-only", "--tmpfs", "/tmp:exec"]);
    refused_and_clean(&docker, &[], 1, &["/root/.gnupg", "ead-only"]);
}

#[test]
fn a_user_that_does_not_exist() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let said = refused_and_clean(&docker, &["--user", "nobody-here"], 1, &["no user nobody-here"]);
    assert!(said.contains("--user"), "{said}");
}

#[test]
fn a_disk_that_fills_in_the_middle_of_the_copy() {
    let mounts = ["--read-only", "--tmpfs", "/root:exec,size=512k"];
    let docker = Docker::new(Image::Bookworm, &mounts);
    let said = refused_and_clean(&docker, &[], 1, &["/root/.cache/keybridge"]);
    assert!(said.contains("full"), "{said}");
    assert_eq!(docker.container.sh(None, "find /root -type f"), "");
}

/// What an evil or broken target could write to the terminal of whoever bridges it.
const ESCAPE: &str = "\u{1b}]0;owned\u{7}\u{1b}[31m";

#[test]
fn a_version_of_gpg_with_escape_sequences() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let evil = format!("#!/bin/sh\necho 'gpg (GnuPG) {ESCAPE}2.2.40'\n");
    docker.container.put_program("/usr/bin/gpg", evil.as_bytes());
    refused_and_clean(&docker, &[], 3, &["expected the version of gpg", "[31m"]);
    let complains = format!("#!/bin/sh\necho '{ESCAPE}complaint' >&2\nexit 9\n");
    docker.container.put_program("/usr/bin/gpg", complains.as_bytes());
    refused_and_clean(&docker, &[], 1, &["complaint"]);
    let log = docker.log();
    assert!(!log.contains('\u{1b}') && !log.contains('\u{7}'), "{log:?}");
}

#[test]
fn a_user_in_a_label_with_escape_sequences() {
    let metadata = serde_json::json!([{ "remoteUser": format!("dev{ESCAPE}") }]);
    let label = format!("devcontainer.metadata={metadata}");
    let docker = Docker::new(Image::Bookworm, &["--label", &label]);
    refused_and_clean(&docker, &[], 1, &["no user dev"]);
}

#[test]
fn a_name_with_escape_sequences_is_a_wrong_word() {
    let docker = Docker::new(Image::Bare, &[]);
    for verb in ["up", "down", "status", "sync", "logs"] {
        let name = format!("web{ESCAPE}");
        refused(&mut docker.keybridge([verb, &name]), 2, &["not the address of a target"]);
    }
}

/// Where the output of a target's program goes on, it goes on escaped.
#[test]
fn warnings_of_an_import_with_escape_sequences() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let evil = format!(
        "#!/bin/sh
        case \"$*\" in
        *--import*) cat >/dev/null; echo 'gpg: {ESCAPE}no import' >&2; exit 2 ;;
        *) exec /usr/bin/gpg.real \"$@\" ;;
        esac\n"
    );
    docker.container.sh(None, "mv /usr/bin/gpg /usr/bin/gpg.real");
    docker.container.put_program("/usr/bin/gpg", evil.as_bytes());
    let shown = docker.up(&[]);
    assert!(shown.contains("no import"), "{shown}");
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown:?}");
}
