//! A server of version 1 that is in the container already, driven by the host: our own helper under the
//! name that such servers have.

use crate::lab::{self, Docker, Image, output, run, static_helper, text};

const SERVER: &str = "/usr/local/bin/clawker-socket-server";

#[test]
fn a_server_in_the_container_is_driven_and_signs() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let to = format!("{}:{SERVER}", docker.container.name);
    run(&mut lab::docker(["cp", static_helper().to_str().unwrap(), &to]));
    let shown = docker.up(&["--lanes", "gpg", "--helper", SERVER]);
    assert!(shown.contains("version 1") && shown.contains("answers"), "{shown}");
    assert!(docker.signs(None).status.success());
    let refused = output(&mut docker.keybridge(["sync", &docker.container.name]));
    assert!(text(&refused.stderr).contains("version 1"), "{}", text(&refused.stderr));
    docker.down();
    assert_eq!(docker.container.processes("clawker-socket-server"), Vec::<String>::new());
}

#[test]
fn what_a_server_did_is_not_called_undone_after_a_down_that_had_to_wait() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let name = docker.container.name.as_str();
    run(&mut lab::docker(["cp", static_helper().to_str().unwrap(), &format!("{name}:{SERVER}")]));
    docker.up(&["--lanes", "gpg", "--helper", SERVER]);
    run(&mut lab::docker(["pause", name]));
    for _ in 0..2 {
        let shown = docker.down();
        assert!(shown.contains("is undone at the next up or down"), "{shown}");
    }
    run(&mut lab::docker(["unpause", name]));
    let shown = docker.down();
    assert!(shown.contains("its version 1 server undoes") && !shown.contains(" undone"), "{shown}");
    assert!(docker.down().contains("is not bridged"));
}

#[test]
fn a_server_that_says_nothing_is_told_of_and_leaves_no_bridge() {
    let docker = Docker::new(Image::Bookworm, &[]);
    docker.container.sh(None, "printf '#!/bin/sh\\nexec sleep 600\\n' >/mute && chmod 755 /mute");
    let refused = output(&mut docker.up_command(&["--lanes", "gpg", "--helper", "/mute"]));
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains("sent no READY") && said.contains("/mute"), "{said}");
    assert_eq!(docker.bridges().len(), 0);
}
