//! Clients whose own connections the helper passes to the host: nothing changes for them, and nothing of
//! it is needed.

use rustix::process::Signal;

use crate::lab::{Client, Docker, Image, Program, eventually, output, run, signal, text};

const SOCKET: &str = "/root/.gnupg/S.gpg-agent";

const NO_AGENT: &str = "ERR 67108941 No agent running <GPG Agent>";

fn path_of(docker: &Docker) -> String {
    docker.bridges()[0]["path"].as_str().unwrap_or("none").to_owned()
}

#[track_caller]
fn up_passed(docker: &Docker, options: &[&str]) {
    docker.up(options);
    eventually("clients are passed", || path_of(docker) == "passed");
}

#[track_caller]
fn signs(docker: &Docker, user: Option<&str>) {
    let signed = docker.signs(user);
    assert!(signed.status.success(), "{}", text(&signed.stderr));
}

#[test]
fn root_and_a_normal_user_are_passed_in_docker_and_podman() {
    for engine in [Program::Docker, Program::Podman] {
        for user in ["root", "dev"] {
            let docker = Docker::new_in(engine, Image::Bookworm, &[]);
            up_passed(&docker, &["--user", user, "--log", "debug"]);
            signs(&docker, Some(user));
            let shown = text(&run(&mut docker.keybridge(["status"])));
            assert!(shown.contains(" passed "), "{shown}");
            let log = docker.log();
            assert!(log.contains("passed{"), "{log}");
            assert_eq!(docker.bridges()[0]["lanes"]["gpg"]["open"], 0);
            docker.down();
        }
    }
}

#[test]
fn it_can_be_switched_off_and_on() {
    let docker = Docker::new(Image::Bookworm, &[]);
    up_passed(&docker, &[]);
    docker.up(&["--no-pass"]);
    eventually("the link carries the bytes", || path_of(&docker) == "direct");
    signs(&docker, None);
    docker.up(&["--no-pass=false"]);
    eventually("clients are passed", || path_of(&docker) == "passed");
    signs(&docker, None);
}

#[test]
fn the_end_of_the_host_is_the_end_of_passed_clients_and_others_are_told_at_once() {
    let docker = Docker::new(Image::Bookworm, &[]);
    up_passed(&docker, &[]);
    let socket = docker.container.path_from_outside(SOCKET);
    let mut passed = Client::greeted(&socket);
    assert_eq!(passed.ask("NOP"), "OK\n");
    let pid = docker.bridges()[0]["pid"].as_u64().unwrap();
    signal(pid.try_into().unwrap(), Signal::KILL);
    assert_eq!(passed.line(), "");
    assert_eq!(Client::connect(&socket).line(), NO_AGENT);
    up_passed(&docker, &[]);
    assert_eq!(Client::greeted(&socket).ask("NOP"), "OK\n");
}

#[test]
fn a_client_that_waits_is_told_that_the_bridge_ends() {
    let docker = Docker::new(Image::Bookworm, &[]);
    up_passed(&docker, &[]);
    let socket = docker.container.path_from_outside(SOCKET);
    let (mut idle, mut asking) = (Client::greeted(&socket), Client::greeted(&socket));
    // Half a command.
    asking.send("GETINFO ");
    assert_eq!(idle.ask("NOP"), "OK\n");
    docker.down();
    assert_eq!(idle.line(), "");
    assert_eq!(asking.line(), NO_AGENT);
}

/// A seccomp profile that lets programs do everything but send messages with descriptors.
const NO_SENDMSG: &str = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
    {"names": ["sendmsg", "recvmsg"], "action": "SCMP_ACT_ERRNO"}]}"#;

#[test]
fn where_descriptors_cannot_be_passed_the_link_carries_the_bytes() {
    let profile = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(profile.path(), NO_SENDMSG).unwrap();
    let option = format!("seccomp={}", profile.path().display());
    let docker = Docker::new(Image::Bookworm, &["--security-opt", &option]);
    docker.up(&[]);
    signs(&docker, None);
    assert_ne!(path_of(&docker), "passed");
    output(&mut docker.keybridge(["down", &docker.container.name]));
}
