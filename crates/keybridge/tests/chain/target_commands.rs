//! Commands on this machine: what they find in their environment, and when they end.

use crate::lab::{Lab, eventually, is_alive, local, on_this_thread, signal};
use keybridge::target::{Target, TargetAddress, TargetCommand};
use rustix::process::Signal;
use tokio::io::{AsyncBufReadExt, BufReader};

#[test]
fn a_command_finds_what_was_set_for_it_beside_its_own_environment() {
    let lab = Lab::empty();
    on_this_thread(async {
        let command = TargetCommand::new(["sh", "-c", "echo \"$FIRST,$SECOND,${HOME:+home}\""])
            .env("FIRST", "one word=two")
            .env("SECOND", "$x;");
        let target = find(&local(lab.target.path())).await;
        let said = target.output(&command).await.unwrap();
        assert_eq!(said.trim(), "one word=two,$x;,home");
    });
}

#[test]
fn a_local_command_ends_with_us_unless_it_is_to_outlive_us() {
    let lab = Lab::empty();
    on_this_thread(async {
        let target = find(&local(lab.target.path())).await;
        let command = TargetCommand::new(["sh", "-c", "echo $$; exec sleep 600"]);
        let ending = start(&target, &command).await;
        let outliving = start(&target, &TargetCommand { outlives_us: true, ..command }).await;
        // Both processes were dropped. One is killed by that.
        eventually("the command has ended", || !is_alive(ending));
        assert!(is_alive(outliving));
        signal(outliving, Signal::KILL);
    });
}

/// Starts a command that says its pid, and lets go of it.
async fn start(target: &Target, command: &TargetCommand) -> u32 {
    let (stdout, _stdin, _remaining) = target.run(command).await.unwrap().split();
    let mut pid = String::new();
    BufReader::new(stdout).read_line(&mut pid).await.unwrap();
    pid.trim().parse().unwrap()
}

async fn find(address: &str) -> Target {
    let address: TargetAddress = address.parse().unwrap();
    Target::find(&address, None).await.unwrap()
}
