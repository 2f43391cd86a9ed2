//! `up` without a target lists the running containers of both engines.

use serde_json::Value;

use crate::lab::{
    AtTerminal, Container, ContainerLab, Image, Program, docker, eventually, output, run, text,
};
use std::process::Command;

/// Containers of both engines.
fn scene() -> (ContainerLab, Container) {
    let scene = ContainerLab::new_in(Program::Podman, Image::Bookworm, &[]);
    let other = Container::start_in(Program::Docker, Image::Trixie, &[]);
    (scene, other)
}

fn up(scene: &ContainerLab, options: &[&str]) -> Command {
    let mut command = scene.keybridge(["up"]);
    command.args(options);
    command
}

/// The row of a container in what was shown.
#[track_caller]
fn row<'a>(shown: &'a str, container: &Container) -> &'a str {
    let mut rows = shown.lines().filter(|line| line.contains(&container.address()));
    rows.next().unwrap_or_else(|| panic!("{} is not listed: {shown}", container.address()))
}

#[test]
fn running_containers_of_both_engines_are_listed_and_bridged() {
    let (scene, other) = scene();
    let mut choosing = AtTerminal::start(&up(&scene, &["--lanes", "gpg"]));
    choosing.wait_for("Which?");
    let shown = choosing.shown_so_far().to_owned();
    for (container, image) in [(&scene.container, Image::Bookworm), (&other, Image::Trixie)] {
        let row = row(&shown, container);
        // These names leave little room for the image.
        assert!(row.contains(&image.name()[..12]), "{row}");
        let is_age = |word: &str| word.trim_end_matches(['s', 'm']).parse::<u32>().is_ok();
        assert!(row.split_whitespace().skip(1).any(is_age), "{row}");
    }
    choosing.type_line(&format!("{} {}", scene.container.name, other.name));
    let (status, shown) = choosing.ended();
    assert_eq!(status, 0, "{shown}");
    let mut targets: Vec<_> =
        scene.bridges().into_iter().map(|one| one["target"].clone()).collect();
    targets.sort_by_key(Value::to_string);
    assert_eq!(targets, [other.address(), scene.container.address()]);
    assert!(scene.signs(None).status.success());

    // The next list says that they are bridged, and how their bridges are.
    run(&mut docker(["pause", &other.name]));
    eventually("the bridge waits", || {
        scene.bridges().iter().any(|bridge| bridge["state"] == "waiting")
    });
    let told = output(&mut up(&scene, &["--json"]));
    let told: Value = serde_json::from_slice(&told.stdout).unwrap();
    let choices = told["error"]["choices"].as_array().unwrap();
    for (container, state) in [(&scene.container, "ready"), (&other, "waiting")] {
        let choice = choices.iter().find(|one| one["target"] == container.address().as_str());
        assert_eq!(choice.unwrap()["state"], state, "{told}");
    }
    let status = AtTerminal::start(&scene.keybridge(["status"])).ended().1;
    assert!(status.contains("the container is paused"), "{status}");
    assert!(status.contains(&format!("keybridge doctor {}", other.address())), "{status}");
    run(&mut docker(["unpause", &other.name]));
    run(&mut scene.keybridge(["down", "--all"]));
}

#[test]
fn a_name_that_both_engines_have_has_to_be_told_apart() {
    let name = format!("kbt-both-{}", std::process::id());
    let mut scene = ContainerLab::new_in(Program::Podman, Image::Bookworm, &[]);
    scene.container = Container::start_named(Program::Podman, name.clone(), Image::Bookworm, &[]);
    let other = Container::start_named(Program::Docker, name.clone(), Image::Bare, &[]);
    let mut choosing = AtTerminal::start(&up(&scene, &[]));
    choosing.answer("Which?", &name);
    let several = format!("{name} may be {} or {}", other.address(), scene.container.address());
    // What is typed before the next question is no answer to it.
    choosing.answer(&format!("{several}\r\n\r\u{1b}[KWhich?"), &scene.container.address());
    let (status, shown) = choosing.ended();
    assert_eq!(status, 0, "{shown}");
    assert_eq!(scene.bridges()[0]["target"], scene.container.address().as_str());
    run(&mut scene.keybridge(["down", "--all"]));
}

/// Only those that run can be bridged.
#[test]
fn containers_that_do_not_run_are_not_listed() {
    let (scene, other) = scene();
    run(&mut docker(["pause", &other.name]));
    let told = text(&output(&mut up(&scene, &["--json"])).stdout);
    let is_listed = |container: &Container| told.contains(&format!("\"{}\"", container.address()));
    assert!(is_listed(&scene.container) && !is_listed(&other), "{told}");
}

#[test]
fn two_words_for_one_container_make_one_bridge() {
    let scene = ContainerLab::new(Image::Bookworm, &[]);
    let shown =
        run(&mut scene.keybridge(["up", &scene.container.name, &scene.container.address()]));
    assert_eq!(scene.bridges().len(), 1, "{}", text(&shown));
    assert_eq!(text(&shown).matches("is bridged already").count(), 1, "{}", text(&shown));
    scene.down();
}
