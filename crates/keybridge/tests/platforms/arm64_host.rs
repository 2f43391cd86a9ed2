//! The host's program for arm64, where all other programs are for arm64 too.

use crate::lab::{Container, Image, shipped};

#[test]
fn the_demo_works() {
    let container = Container::start(Image::Arm64, &[]);
    let program = std::fs::read(shipped("aarch64/keybridge")).unwrap();
    container.put_program("/usr/local/bin/keybridge", &program);
    let before = container.listing();
    let shown = container.sh(None, "uname -m; keybridge demo");
    assert!(shown.starts_with("aarch64\n"), "{shown}");
    for step in ["✓ git verify-commit: a good signature", "✓ gpg --decrypt in the second home"]
    {
        assert!(shown.contains(step), "{shown}");
    }
    container.assert_unchanged(&before);
}
