//! A bridge is started by whoever and however often, and is one.

use std::process::Stdio;

use crate::lab::{ContainerLab, Image, Program, is_alive, run, text};

/// The process of a bridge, as `status --json` tells it.
pub fn pid_of(bridge: &serde_json::Value) -> u32 {
    bridge["pid"].as_u64().unwrap().try_into().unwrap()
}

#[track_caller]
pub fn ten_shells_at_once_make_one_bridge(engine: Program) {
    let scene = ContainerLab::new_in(engine, Image::Bookworm, &[]);
    let racing: Vec<_> = (0..10)
        .map(|_| {
            let mut up = scene.up_command(&[]);
            up.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let mut made = 0;
    for up in racing {
        let ended = up.wait_with_output().unwrap();
        let (shown, said) = (text(&ended.stdout), text(&ended.stderr));
        assert!(ended.status.success(), "{shown}\n{said}");
        let was_there = shown.contains("is bridged already");
        assert!(was_there || shown.contains("is bridged; "), "{shown}");
        made += usize::from(!was_there);
    }
    assert_eq!(made, 1, "bridges were made");
    assert_eq!(scene.bridges().len(), 1);
    assert_eq!(scene.helpers().len(), 1);
    // Those that came too late have not taken its log away.
    let log = scene.log();
    assert_eq!(log.matches(" ready\n").count(), 1, "{log}");
    assert!(scene.signs(None).status.success());
    scene.down();
    assert_eq!(scene.helpers(), Vec::<String>::new());
}

#[track_caller]
pub fn up_returns_to_a_shell_that_reads_its_output_and_the_bridge_lives_on(engine: Program) {
    let scene = ContainerLab::new_in(engine, Image::Bookworm, &[]);
    let mut up = scene.up_command(&[]);
    let mut shell = keybridge_lab::command("sh");
    // As a person does who keeps the output; the shell is a session of its own and ends, as a
    // terminal does that is closed.
    shell.args(["-c", "x=$(\"$@\" 2>&1) && echo \"returned: $x\"", "sh"]);
    shell.arg(up.get_program()).args(up.get_args()).env_clear();
    for (name, value) in up.get_envs() {
        shell.env(name, value.unwrap());
    }
    up = keybridge_lab::command("setsid");
    up.arg("--wait").arg(shell.get_program()).args(shell.get_args()).env_clear();
    up.envs(shell.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let shown = text(&run(&mut up));
    assert!(shown.starts_with("returned: ") && shown.contains("is bridged; "), "{shown}");
    let bridges = scene.bridges();
    assert!(is_alive(pid_of(&bridges[0])));
    assert!(scene.signs(None).status.success());
}

#[track_caller]
pub fn up_of_a_bridged_container_says_so(engine: Program) {
    let scene = ContainerLab::new_in(engine, Image::Bookworm, &[]);
    scene.up(&[]);
    let before = scene.bridges();
    let shown = scene.up(&[]);
    assert!(shown.contains("is bridged already, since "), "{shown}");
    assert_eq!(pid_of(&scene.bridges()[0]), pid_of(&before[0]));
    assert_eq!(scene.helpers().len(), 1);
}
