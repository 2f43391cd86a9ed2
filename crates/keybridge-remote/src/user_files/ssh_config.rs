//! ssh's settings: lines that name the bridge's socket where the environment names no agent.

use std::path::Path;

use super::marked_block::MarkedBlock;

/// The block that names this agent in this file. The first value counts in ssh's settings: the user's
/// own lines come before ours and win.
pub(crate) fn block(file: &Path, identity_agent: &str) -> MarkedBlock {
    // The user's shell runs the test, whichever that is. After it lines hold for every host, so
    // that lines which somebody adds there are not ours.
    let lines = format!(
        "Match exec \"sh -c 'test ${{#SSH_AUTH_SOCK}} = 0'\"\n    \
         IdentityAgent {identity_agent}\n\
         Match all\n"
    );
    MarkedBlock::new(file, lines)
}

/// Whether a path means itself in ssh's settings, between quotes.
pub(crate) fn can_be_named(path: &Path) -> bool {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-+,:@= ".contains(letter);
    path.is_absolute() && path.to_str().is_some_and(|path| path.chars().all(plain))
}
