//! The way past the engine: taken where it can be had, left when it breaks, and never needed.

use crate::lab::{Client, Docker, Image, Program, StandIn, cut_direct_path, eventually, run, text};

/// The longest `D` line: 1000 bytes and its end.
const LINE: usize = 1001;

/// How many lines of an answer the client reads before the path is cut, and after.
const LINES: usize = 4000;

fn path_of(docker: &Docker) -> String {
    docker.bridges()[0]["path"].as_str().unwrap_or("none").to_owned()
}

fn pid_of(docker: &Docker) -> u32 {
    docker.bridges()[0]["pid"].as_u64().unwrap().try_into().unwrap()
}

fn log_of(docker: &Docker) -> String {
    text(&run(&mut docker.keybridge(["logs", &docker.container.name])))
}

/// A bridge whose link has gone past the engine, and which carries the bytes of its clients.
#[track_caller]
fn up_direct(docker: &Docker, options: &[&str]) {
    docker.up(&[&["--no-pass"], options].concat());
    eventually("the direct path is taken", || path_of(docker) == "direct");
}

/// The process of the helper, as this machine counts it.
fn helper_of(docker: &Docker) -> u32 {
    let shown =
        run(&mut Program::Docker.command(["top", &docker.container.name, "-eo", "pid,args"]));
    let shown = text(&shown);
    let line =
        shown.lines().find(|line| line.contains("keybridge-remote") && line.contains("serve"));
    line.unwrap().split_whitespace().next().unwrap().parse().unwrap()
}

/// Cuts the direct path of a bridge.
fn cut(docker: &Docker) {
    cut_direct_path(pid_of(docker), helper_of(docker));
}

#[test]
fn root_and_a_normal_user_are_reached_past_the_engine() {
    for user in ["root", "dev"] {
        let docker = Docker::new(Image::Bookworm, &[]);
        let before = docker.container.listing();
        up_direct(&docker, &["--user", user]);
        let signed = docker.signs(Some(user));
        assert!(signed.status.success(), "{}", text(&signed.stderr));
        let shown = text(&run(&mut docker.keybridge(["status"])));
        assert!(shown.contains(" direct "), "{shown}");
        // The socket is gone as soon as it is used.
        let new: Vec<_> = docker.container.listing().difference(&before).cloned().collect();
        assert!(!new.iter().any(|path| path.contains("direct-")), "{new:?}");
        docker.down();
    }
}

#[test]
fn it_can_be_switched_off() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.up(&["--no-direct"]);
    assert!(docker.signs(None).status.success());
    assert_eq!(path_of(&docker), "exec");
    let log = log_of(&docker);
    assert!(!log.contains("direct path"), "{log}");
    let shown = text(&run(&mut docker.keybridge(["status"])));
    assert!(shown.contains(" exec "), "{shown}");
}

#[test]
fn a_path_that_is_cut_in_mid_answer_loses_and_doubles_nothing() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let grip = docker.lab.host.keygrips().remove(1);
    // A real agent has no answer that is long enough to be cut in its middle.
    let _agent = StandIn::at_home(&docker.lab.host, |line, peer| match line {
        b"PKSIGN" => {
            for number in 0..2 * LINES {
                peer.write(data_line(number))?;
            }
            peer.write("OK\n")
        }
        _ => peer.write("ERR 67109139 Unknown IPC command <GPG Agent>\n"),
    });
    up_direct(&docker, &["--lanes", "gpg"]);
    let socket = docker.container.path_from_outside("/root/.gnupg/S.gpg-agent");
    let mut client = Client::greeted(&socket);
    let mut beside = Client::greeted(&socket);
    assert_eq!(client.ask(format!("SIGKEY {grip}")), "OK\n");
    client.send("PKSIGN\n");
    for number in 0..LINES {
        assert_eq!(client.bytes_line(), data_line(number));
        if number == LINES / 2 {
            cut(&docker);
        }
    }
    assert_eq!(beside.ask("NOP"), "OK\n");
    for number in LINES..2 * LINES {
        assert_eq!(client.bytes_line(), data_line(number));
    }
    assert_eq!(client.line(), "OK");
    let bridge = &docker.bridges()[0];
    assert_eq!((&bridge["path"], &bridge["reconnects"]), (&"exec".into(), &0.into()), "{bridge}");
    let log = log_of(&docker);
    assert!(log.contains("the direct path broke; the link goes on without it"), "{log}");
    // What comes later goes the old way too.
    assert_eq!(Client::greeted(&socket).ask("NOP"), "OK\n");
    docker.down();
}

fn data_line(number: usize) -> Vec<u8> {
    let mut line = format!("D {number:08} ").into_bytes();
    line.resize(LINE - 1, b'a' + u8::try_from(number % 26).unwrap());
    line.push(b'\n');
    line
}

#[test]
fn a_cut_path_is_had_again_with_the_next_link() {
    let docker = Docker::new(Image::Bookworm, &[]);
    up_direct(&docker, &[]);
    cut(&docker);
    eventually("the engine carries the bytes", || path_of(&docker) == "exec");
    assert!(docker.signs(None).status.success());
    run(&mut Program::Docker.command(["restart", &docker.container.name]));
    eventually("the direct path is taken again", || path_of(&docker) == "direct");
    eventually("gpg signs again", || docker.signs(None).status.success());
}

#[test]
fn a_podman_container_is_reached_past_the_engine() {
    let docker = Docker::new_in(Program::Podman, Image::Bookworm, &[]);
    up_direct(&docker, &[]);
    assert!(docker.signs(None).status.success());
}
