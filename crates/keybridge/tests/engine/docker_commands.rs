//! Commands in a container: what they find in their environment.

use keybridge::target::{Target, TargetAddress, TargetCommand};

use crate::any_engine::presence::local;
use crate::lab::{Container, Image};

#[test]
fn a_command_finds_what_was_set_for_it_beside_its_own_environment() {
    let container = Container::start(Image::Bare, &["--env", "OWN=there"]);
    local(async {
        let address: TargetAddress = container.name.parse().unwrap();
        let target = Target::find(&address, None).await.unwrap();
        let command =
            TargetCommand::new(["sh", "-c", "echo \"$FIRST,$SECOND,$OWN,${HOME:+home}\""])
                .env("FIRST", "one word=two")
                .env("SECOND", "$x;");
        let said = target.output(&command).await.unwrap();
        assert_eq!(said.trim(), "one word=two,$x;,there,home");
    });
}
