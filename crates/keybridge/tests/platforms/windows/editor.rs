//! The agent extension of VS Code as Windows has it: its TypeScript in Node for Windows, with `keybridge.exe` of
//! its package. The remote is a target of Linux.

use super::wine::{path, setting};
use super::{Target, Wine};
use crate::lab::shipped;

/// `editors/vscode/test/windows` has what is tested.
#[test]
fn the_extension_bridges_a_remote() {
    let (wine, target) = (Wine::with_key(), Target::new());
    let helper = target.port_to(shipped("keybridge-remote"));
    let programs = target.port();
    let mut node = wine.program(setting("KEYBRIDGE_WINDOWS_NODE"));
    let tests = setting("KEYBRIDGE_EXTENSIONS").join("test");
    // One process: a second one would have a pipe of Linux for its output, which Node can't open.
    node.args(["--test", "--test-reporter=spec", "--experimental-test-isolation=none"])
        .args(
            ["unit/channel.test.ts", "unit/chunk.test.ts", "unit/parts.test.ts"]
                .map(|name| path(&tests.join(name))),
        )
        .arg(path(&tests.join("windows/agent.test.ts")))
        .env("KEYBRIDGE_EXTENSION", path(&setting("KEYBRIDGE_EXTENSION")))
        .env("KEYBRIDGE_RELAY_PROGRAM", path(&setting("KEYBRIDGE_RELAY")))
        .env("KEYBRIDGE_HELPER_PORT", helper.number().to_string())
        .env("KEYBRIDGE_PROGRAMS_PORT", programs.number().to_string());
    let ended = wine.run(node);
    println!("{}", ended.stdout);
    assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    assert_eq!(target.sockets(), "");
}
